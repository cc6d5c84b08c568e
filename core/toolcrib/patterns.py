"""Regular expressions that somebody else wrote: run only in a linear-time engine, and only while small.

The engine is Rust's `regex`, which pydantic carries here and jsonschema-rs in the registry. It has no look-around
and no back references, so its time is linear; what remains is the size of the compiled pattern, which counted
repeats multiply (`(\\w{100}){100}`), and which `weight` estimates before anything is compiled.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

MAX_WEIGHT = 50_000
"""Of all patterns of one schema together: about a second of compiling at worst, measured on 2 cores."""
_UNICODE_CLASS = 16
"""`\\w`, `\\d`, `\\s` and `\\p{…}` compile to tables of Unicode ranges; a plain character counts 1."""
_REPEAT = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")


@lru_cache(maxsize=4_096)
def is_linear(pattern: str) -> bool:
    """Whether the linear-time engine accepts the pattern."""
    if weight(pattern) > MAX_WEIGHT:
        return False
    try:
        TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return False
    return True


def weight(pattern: str) -> int:
    """About how large the compiled pattern gets: atoms, multiplied by the counted repeats around them."""
    groups: list[list[int]] = [[]]
    at = 0
    while at < len(pattern):
        at = _step(pattern, at, groups)
    return sum(sum(group) for group in groups)


def _step(pattern: str, at: int, groups: list[list[int]]) -> int:
    """Take the piece at `at` into the innermost open group; the position after it."""
    atoms, c = groups[-1], pattern[at]
    if c == "(":
        groups.append([])
        return at + 1
    if c == ")" and len(groups) > 1:
        closed = sum(groups.pop())
        groups[-1].append(closed + 1)
        return at + 1
    if c == "{" and (repeat := _REPEAT.match(pattern, at)) is not None:
        low, high = int(repeat[1]), int(repeat[3] or 0)
        if atoms:
            atoms[-1] *= max(low, high, 1)
        return repeat.end()
    if c == "[":
        end = _class_end(pattern, at)
        inside = pattern[at:end]
        atoms.append(1 + len(inside) // 4 + _UNICODE_CLASS * inside.count("\\"))
        return end
    if c == "\\":
        atoms.append(_UNICODE_CLASS if pattern[at + 1 : at + 2] in set("wWdDsSpPbB") else 1)
        return at + 2
    atoms.append(4 if c == "." else 1)
    return at + 1


def _class_end(pattern: str, at: int) -> int:
    """The position after a character class; classes nest in Rust's syntax."""
    depth, i = 0, at
    while i < len(pattern):
        if pattern[i] == "\\":
            i += 1
        elif pattern[i] == "[":
            depth += 1
        elif pattern[i] == "]" and not (depth == 1 and pattern[at + 1 : i] in ("", "^")):
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return len(pattern)
