"""Other people's text, made safe to show: control, bidirectional and zero-width characters escaped."""

from __future__ import annotations

import unicodedata

_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
# Unicode's Default_Ignorable_Code_Point of other categories: fillers, joiners, and variation selectors, in which
# text can be smuggled. U+FE0F stays: it only asks for the coloured form of an emoji.
_IGNORABLE = frozenset({
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0,
    0x2065, *range(0x180B, 0x1810), *range(0xFE00, 0xFE0F), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000),
})  # fmt: skip


def hides(character: str) -> bool:
    """Whether a character could move, hide or reorder others, or cannot be seen itself."""
    return unicodedata.category(character) in _INVISIBLE or ord(character) in _IGNORABLE


def escape(text: str, *, keep_newlines: bool = False) -> str:
    """Show `text` with every character that could move, hide or reorder others written as `\\uXXXX`."""
    if text.isascii() and text.isprintable():
        return text

    def shown(c: str) -> str:
        if (c == "\n" and keep_newlines) or not hides(c):
            return c
        point = ord(c)
        if point < 0x100:
            return f"\\x{point:02x}"
        return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"

    return "".join(map(shown, text))


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters; a cut is marked with an ellipsis."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


_SHORT = 200


def short(description: str) -> str:
    """The first sentence or so, on one line."""
    text = " ".join(description.split())
    if len(text) <= _SHORT:
        return text
    cut = text[: _SHORT - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut) + "…"
