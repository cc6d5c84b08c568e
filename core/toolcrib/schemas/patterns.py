"""Regular expressions that somebody else wrote: run only in a linear-time engine, and only while small.

The engine is Rust's `regex`, which pydantic carries here and jsonschema-rs in the registry. It has no look-around
and no back references, so its time is linear; what remains is the size of the compiled pattern, which counted
repeats multiply (`(\\w{100}){100}`), and which `weight` estimates before anything is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, TypeVar, cast

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

MAX_BYTES = 1 << 20
"""Of one pattern once compiled: the limit of the registry's validator (`calls.arguments`), whose dialect reads classes otherwise."""
MAX_WEIGHT = 50_000
"""Of all patterns of one schema together; how long they take to compile has a bound of its own (`compile_time`)."""
_UNICODE_CLASS = 16
"""`\\w`, `\\d`, `\\s` and `\\p{…}` compile to tables of Unicode ranges; a plain character counts 1."""
_CLASS_BYTES = {
    **dict.fromkeys("pP", 48_000),
    "S": 2_200,
    "W": 1_200,
    "D": 1_100,
    "s": 800,
    "w": 100,
    "d": 80,
}
_ANY_BYTES = 1_100
"""A dot, and a class that excludes: all lengths of UTF-8."""
_SET_BYTES, _GROUP_BYTES, _ATOM_BYTES, _WIDE_BYTES, _CASE_BYTES = 120, 70, 40, 110, 220
"""A class, a group, an ASCII character, any other one, and what `(?i)` adds to each.

Upper bounds, measured: how often each may be repeated until the validator refuses the pattern.
"""
_ASCII = {"w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]", "d": "[0-9]", "D": "[^0-9]"}
"""As the validator reads them. The engine here takes them for Unicode, in which a word character compiles in 0.3 ms."""
_MOST_WIDE = 250
"""Unicode classes within classes in one pattern, repeats counted: more are larger than the engine takes, which it finds out in 0.1 s."""
_EITHER_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|[pP].|.)?", re.DOTALL)
"""What a repeat behind it repeats: all of `\\pL` and `\\u{1F600}`."""
_WIDE_ESCAPES = frozenset("wWpP")
N = TypeVar("N", int, float)
_REPEAT = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")


@lru_cache(maxsize=4_096)
def is_linear(pattern: str) -> bool:
    """Whether the linear-time engine accepts the pattern."""
    if weight(pattern) > MAX_WEIGHT or compiled_bytes(pattern) > MAX_BYTES:
        return False
    read = _in_ascii(pattern)
    if summed(read, _wide) > _MOST_WIDE:
        return False
    try:
        TypeAdapter(Annotated[str, StringConstraints(pattern=read)])
    except SchemaError:
        return False
    return True


def weight(pattern: str) -> int:
    """About how large the compiled pattern gets: atoms, multiplied by the counted repeats around them."""
    return summed(pattern, _weight_of)


def compiled_bytes(pattern: str) -> int:
    """At most how many bytes the registry's validator takes for the pattern."""
    either_case = _CASE_BYTES if _EITHER_CASE.search(pattern) else 0
    return summed(pattern, lambda atom: _bytes_of(atom) + either_case)


def summed(pattern: str, price: Callable[[str], N]) -> N:
    """The price of each atom, multiplied by the counted repeats around it, together."""
    groups: list[list[N]] = [[]]
    at = 0
    while at < len(pattern):
        at = _step(pattern, at, groups, price)
    return cast(N, sum(sum(group) for group in groups))


def _in_ascii(pattern: str) -> str:
    """The pattern with its `\\w` and `\\d` spelled out, except within classes."""
    read, at = list[str](), 0
    while at < len(pattern):
        end = at + (2 if pattern[at] == "\\" else 1)
        if pattern[at] == "[":
            end = _class_end(pattern, at)
        piece = pattern[at:end]
        read.append(_ASCII.get(piece[1:], piece) if piece[0] == "\\" else piece)
        at = end
    return "".join(read)


def _wide(atom: str) -> int:
    return sum(c in _WIDE_ESCAPES for c in _ESCAPED.findall(atom))


def _weight_of(atom: str) -> int:
    if atom[0] == "[":
        return 1 + len(atom) // 4 + _UNICODE_CLASS * atom.count("\\")
    if atom[0] == "\\":
        return _UNICODE_CLASS if atom[1:2] in set("wWdDsSpPbB") else 1
    return 4 if atom == "." else 1


def _bytes_of(atom: str) -> int:
    if atom[0] == "[":
        escapes = sum(_CLASS_BYTES.get(c, 0) for c in _ESCAPED.findall(atom))
        wide = _WIDE_BYTES * sum(not c.isascii() for c in atom)
        return _SET_BYTES + escapes + wide + (_ANY_BYTES if "[^" in atom else 0)
    if atom[0] == "\\":
        return _CLASS_BYTES.get(atom[1:2], _WIDE_BYTES if len(atom) > 2 else _ATOM_BYTES)
    if atom in ".(":
        return _ANY_BYTES if atom == "." else _GROUP_BYTES
    return _ATOM_BYTES if atom.isascii() else _WIDE_BYTES


def _step(pattern: str, at: int, groups: list[list[N]], price: Callable[[str], N]) -> int:
    """Take the piece at `at` into the innermost open group; the position after it."""
    atoms, c = groups[-1], pattern[at]
    if c == "(":
        groups.append([])
        return at + 1
    if c == ")" and len(groups) > 1:
        closed = sum(groups.pop())
        groups[-1].append(closed + price("("))
        return at + 1
    if c == "{" and (repeat := _REPEAT.match(pattern, at)) is not None:
        low, high = int(repeat[1]), int(repeat[3] or 0)
        if atoms:
            atoms[-1] *= max(low, high, 1)
        return repeat.end()
    if c == "[":
        end = _class_end(pattern, at)
        atoms.append(price(pattern[at:end]))
        return end
    if c == "\\":
        escape = _ESCAPE.match(pattern, at)
        assert escape is not None, "it begins with a backslash"
        atoms.append(price(escape[0]))
        return escape.end()
    atoms.append(price(c))
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
