"""How long the registry's validator takes to compile a schema: it keeps the interpreter for all of that time.

Nanoseconds, on the high side, measured on the machine of `argument_cost`. Each pattern is compiled once however often it
stands in a schema, and most of the time goes to classes of Unicode characters. `unevaluatedProperties` lists again every
property and pattern that applies to the same value, through references as often as they lead there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas.patterns import summed
from toolcrib.schemas.references import in_place

BUDGET = 50e6
"""What compiling may take: other callers wait for it."""
AT_ONCE_BYTES = 2 * 1024
"""A schema of so many bytes without patterns and references compiles in 2 ms, its cost table included."""

TOO_SLOW = (
    "the patterns of the schema take too long to compile; use fewer, with fewer Unicode classes (\\p{…}) and shorter"
    " repeats"
)

_EACH = 55_000.0
"""A pattern, however short."""
_ATOM, _GROUP, _WIDE, _CLASS, _RANGES, _FOLDED = 450.0, 700.0, 3_500.0, 1_200.0, 6_500.0, 4.0
"""A character, a group, a character beyond ASCII, a class, one that leaves out or is named, and each character of a range that
is to be matched in either case."""
_ESCAPES = {
    **dict.fromkeys("pP", 320_000.0),
    "S": 14_000.0,
    "s": 8_000.0,
    "W": 7_000.0,
    "D": 7_000.0,
    "d": 1_600.0,
    "w": 900.0,
}
_EITHER_CASE = 7_500.0
_FLAG = re.compile(r"\(\?[a-zA-Z]*i")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MOST = frozenset("WDSP")
"""Escapes for most of all characters."""
_CODE = re.compile(r"\\[xuU]\{?([0-9A-Fa-f]{1,8})")
_LAST = 0x10FFFF
_STEP, _PROPERTY, _PATTERN_PROPERTY = 5_000.0, 180.0, 2_600.0
"""For `unevaluatedProperties`: a schema that the same value is held against, and each of its properties and patterns."""

_SLOW = (b"pattern", b'"$', b'"unevaluated', b"\\")
"""What a text must not hold for its schema to be compiled at once; `\\` may hide any of it."""


@lru_cache(maxsize=4_096)
def pattern_time(pattern: str) -> float:
    """Of one pattern."""
    either = bool(_FLAG.search(pattern))
    return _EACH + summed(pattern, lambda atom: _of_atom(atom, either=either))


def _of_atom(atom: str, *, either: bool) -> float:
    if atom[0] == "[":
        time = _of_class(atom) + (_fold(atom) if either else 0.0)
    elif atom[0] == "\\":
        time = _ESCAPES.get(atom[1:2], _WIDE)
    elif atom == "(":
        time = _GROUP
    elif atom == ".":
        time = _RANGES
    else:
        time = _ATOM if atom.isascii() else _WIDE
    return time + _EITHER_CASE if either else time


def _of_class(atom: str) -> float:
    escaped = _ESCAPED.findall(atom)
    time = _CLASS + 40.0 * len(atom) + _WIDE * sum(not c.isascii() for c in atom)
    time += sum(_ESCAPES.get(c, _RANGES) for c in escaped)
    return time + _RANGES * (atom.count("[^") + atom.count("[:"))


def _fold(atom: str) -> float:
    """What it takes to find each character of a class in the other case."""
    inner, ranges = atom[1:], atom.count("-")
    whole = inner.count("[^") + inner.count("[:^") + sum(c in _MOST for c in _ESCAPED.findall(atom))
    highest = max((ord(c) for c in atom), default=0)
    for digits in _CODE.findall(atom):
        highest = max(highest, min(int(digits, 16), _LAST))
    return _FOLDED * (whole * _LAST + ranges * (highest if highest > 0x7F else 0))


def check(root: dict[str, Any], nodes: Iterable[dict[str, Any]]) -> None:
    """Refuse a schema that takes longer than `BUDGET`.

    Args:
        root: the whole schema; its references lead somewhere, and not back to themselves.
        nodes: every subschema in it.

    Raises:
        SchemaUnsafe: it does.
    """
    patterns: set[str] = set()
    listed = _Listed(root)
    repeated = 0.0
    for node in nodes:
        if isinstance(node.get("pattern"), str):
            patterns.add(node["pattern"])
        patterns.update(node.get("patternProperties", ()))
        if "unevaluatedProperties" in node:
            repeated += listed.time(node)
            if repeated > BUDGET:
                raise SchemaUnsafe(
                    "/: unevaluatedProperties applies to too many properties, through references again and again"
                )
    if repeated + sum(map(pattern_time, patterns)) > BUDGET:
        raise SchemaUnsafe(f"/: {TOO_SLOW}")


def is_short(text: bytes) -> bool:
    """Whether the schema that is serialised in `text` compiles in some milliseconds."""
    return len(text) <= AT_ONCE_BYTES and not any(mark in text for mark in _SLOW)


class _Listed:
    """What `unevaluatedProperties` makes of the properties that the same value is held against."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, float] = {}

    def time(self, node: Any) -> float:
        if not isinstance(node, dict):
            return 0.0
        known = self._known.get(id(node))
        if known is None:
            own = _STEP + _PROPERTY * len(node.get("properties", ()))
            own += _PATTERN_PROPERTY * len(node.get("patternProperties", ()))
            known = self._known[id(node)] = own + sum(map(self.time, in_place(self._root, node)))
        return known
