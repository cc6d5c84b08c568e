"""Other people's text, made safe to show: control, bidirectional and zero-width characters escaped."""

from __future__ import annotations

import unicodedata

_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def escape(text: str, *, keep_newlines: bool = False) -> str:
    """Show `text` with every character that could move, hide or reorder others written as `\\uXXXX`."""
    if text.isascii() and text.isprintable():
        return text

    def shown(c: str) -> str:
        if c == "\n" and keep_newlines:
            return c
        if unicodedata.category(c) not in _INVISIBLE:
            return c
        point = ord(c)
        if point < 0x100:
            return f"\\x{point:02x}"
        return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"

    return "".join(map(shown, text))


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters; a cut is marked with an ellipsis."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"
