"""Hidden text: characters that a person does not see and a model reads, in the texts of a Tool.

Hidden are, after Unicode's properties: control characters (Cc), format characters (Cf: bidirectional controls, tags,
zero-width spaces and joiners), line and paragraph separators (Zl, Zp), lone surrogates (Cs), and everything of
Default_Ignorable_Code_Point (DerivedCoreProperties.txt: fillers, variation selectors, code points reserved for such).
UTR #36 (Unicode Security Considerations, 2.5 and 3) and UTS #39 (Unicode Security Mechanisms, 3.1) name these classes.

What text needs is not hidden:

* newline, also as CR LF, and tab
* U+200C and U+200D between two letters of one script that joins or stacks its letters (Arabic, Devanagari, ...)
* U+200D between emoji, and U+FE0E or U+FE0F after one
* Cf that is drawn (Prepended_Concatenation_Mark: the number signs of Arabic and Kaithi)

The flags of England, Scotland and Wales are spelt with tags: they count as hidden. What joiners spell between letters
of such scripts, and look-alikes of visible characters, this does not find.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolcrib.text import escape, truncate

MOST_PLACES = 5
"""Places that are named in one message."""
MOST_POINTS = 4
"""Code points that are named of one place."""
FIELDS = ("title", "description", "examples", "tags", "returns", "message", "input_schema", "output_schema")
"""The texts of a Tool's spec that may hold any character; names, scopes and addresses are held to ASCII by their patterns."""
HINT = "delete these characters, or type the text again; a regular expression can name one as \\u200b"

_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""All of it, as ranges: a search in C over any text. `tests/unit/core/lint/test_hidden_text.py` holds it against `unicodedata`."""

_JOINERS = "\u200c\u200d"
_ZWJ = "\u200d"
_STYLES = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
_SCRIPTS = (
    (0x0600, 0x06FF, 0x0750, 0x077F, 0x0870, 0x08FF),  # Arabic
    (0x0700, 0x074F, 0x0860, 0x086F),  # Syriac
    (0x0900, 0x097F, 0xA8E0, 0xA8FF),  # Devanagari
    *((first, first + 0x7F) for first in range(0x0980, 0x0E00, 0x80)),  # Bengali to Sinhala, a block each
    (0x07C0, 0x07FF), (0x0840, 0x085F),  # N'Ko, Mandaic
    (0x1000, 0x109F, 0xA9E0, 0xA9FF, 0xAA60, 0xAA7F),  # Myanmar
    (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1B00, 0x1B7F), (0xA980, 0xA9DF),  # Khmer, Mongolian, Balinese, Javanese
    (0x11000, 0x1107F), (0x11180, 0x111DF), (0x11300, 0x1137F), (0x11480, 0x114DF), (0x11580, 0x115FF),  # Brahmi, ...
)  # fmt: skip
"""Scripts that need joiners (UAX #31, 2.3), as pairs of first and last code point; a script may have several blocks."""
_PICTURES = (
    (0x2190, 0x21FF), (0x2300, 0x23FF), (0x25A0, 0x27BF), (0x2900, 0x297F), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF),
)  # fmt: skip
"""Blocks of Unicode's emoji; what is a symbol there counts as one (UTS #51)."""
_MORE_PICTURES = frozenset("\u00a9\u00ae\u203c\u2049\u2122\u2139\u24c2\u3030\u303d\u3297\u3299")
_KEYS = frozenset("0123456789#*")


class Hidden(StrEnum):
    """What becomes of a Tool with hidden text."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Place:
    """One text with hidden characters: `where` as `description` or `inputSchema/properties/a~1b`, and which they are."""

    where: str
    points: tuple[int, ...]

    @property
    def field(self) -> str:
        """The field of the spec that it is in."""
        return self.where.split("/", 1)[0]

    @property
    def said(self) -> tuple[str, str]:
        """Where in a Tool, and what is there."""
        named = ", ".join(_named(p) for p in self.points[:MOST_POINTS])
        more = len(self.points) - MOST_POINTS
        return f"spec.{self.where}", f"hidden {named}" + (f" and {more} more" if more > 0 else "")

    def __str__(self) -> str:
        return ": ".join(self.said)


def hidden_in(text: str) -> tuple[int, ...]:
    """The hidden code points of `text`, each once, in order. Linear in its length."""
    if text.isascii() and text.isprintable():
        return ()
    found: dict[int, None] = {}
    for match in _SUSPECT.finditer(text):
        if not _needed(text, match.start()):
            found[ord(match[0])] = None
    return tuple(found)


def places(spec: Any) -> Iterator[Place]:
    """Every text of a ToolSpec, or of what has its `FIELDS`, that holds hidden characters; keys of schemas too.

    The schemas must have passed `schemas.check`, which bounds their depth.
    """
    for field in FIELDS:
        value = getattr(spec, field, None)
        if value:
            head, *tail = field.split("_")
            name = head + "".join(part.capitalize() for part in tail)
            for where, points in _walk(value, name):
                yield Place(where, points)


def message(found: Sequence[Place]) -> str:
    """What is said of a Tool with hidden text."""
    said = "; ".join(map(str, found[:MOST_PLACES]))
    more = len(found) - MOST_PLACES
    return f"{said}; and {more} more places" if more > 0 else said


def _walk(value: Any, where: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(value, str):
        if points := hidden_in(value):
            yield where, points
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            points = hidden_in(key)
            if points:
                yield _below(where, key), points
            if isinstance(inner, str):
                if points := hidden_in(inner):
                    yield _below(where, key), points
            elif isinstance(inner, Mapping | list | tuple):
                yield from _walk(inner, _below(where, key))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            if isinstance(inner, str | Mapping | list | tuple):
                yield from _walk(inner, f"{where}/{i}")


def _below(where: str, key: str) -> str:
    """A JSON pointer, one step further; a key is shown without what it hides, and cut."""
    return f"{where}/{escape(truncate(key.replace('~', '~0').replace('/', '~1'), 60))}"


def _named(point: int) -> str:
    name = unicodedata.name(chr(point), "")
    return f"U+{point:04X} {name}" if name else f"U+{point:04X}"


def _needed(text: str, at: int) -> bool:
    """Whether a suspect character stands where text needs it."""
    c = text[at]
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if c == "\r":
        return after == "\n"
    if c in _STYLES:
        return _is_picture(before) or (before in _KEYS and before != "" and after == _KEYCAP)
    if c not in _JOINERS or not before or not after:
        return False
    if c == _ZWJ and _is_picture(after):
        # an emoji may carry its style, or the colour of a skin, which is a picture of its own
        return _is_picture(before) or (before in _STYLES and at > 1 and _is_picture(text[at - 2]))
    script = _script(before)
    return script is not None and script == _script(after)


def _is_picture(c: str) -> bool:
    if not c:
        return False
    if c in _MORE_PICTURES:
        return True
    point = ord(c)
    return (
        point >= 0x2190 and any(a <= point <= b for a, b in _PICTURES) and unicodedata.category(c)[0] == "S"
    )


def _script(c: str) -> int | None:
    """Which of the scripts that need joiners a letter, or a mark on one, is of."""
    point = ord(c)
    if point < 0x600 or unicodedata.category(c)[0] not in "LM":
        return None
    for i, blocks in enumerate(_SCRIPTS):
        for at in range(0, len(blocks), 2):
            if blocks[at] <= point <= blocks[at + 1]:
                return i
    return None
