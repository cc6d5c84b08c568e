"""JSON as it is accepted from callers: nothing that two parsers could read in two ways.

Duplicate keys, NaN and infinities, lone surrogates, invalid UTF-8 and deep nesting are refused, the last before
anything recurses. (RFC 8259 §4 and §9; I-JSON, RFC 7493.)
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

MAX_DEPTH = 32
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_LONG_NUMBER = re.compile(rb"-0|[0-9]{18}")
"""What orjson may read otherwise than json."""
_NOT_BRACKETS = re.compile(rb"[^\[\]{}]+")


class InvalidJson(ValueError):
    """Why the text is refused, in words for the one who sent it."""


def parse(raw: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of `raw`.

    Raises:
        InvalidJson: it is not JSON, or not unambiguous, or nested deeper than `max_depth`.
    """
    return read(raw, check(raw, max_depth=max_depth))


def check(raw: bytes, *, max_depth: int = MAX_DEPTH) -> bytes:
    """The first half of `parse`: depth. Gives what is left of the text without its strings.

    Raises:
        InvalidJson: it is nested deeper than `max_depth`.
    """
    bare = _STRINGS.sub(b"", raw)
    depth = 0
    for bracket in _NOT_BRACKETS.sub(b"", bare):
        if bracket in b"[{":
            depth += 1
            if depth > max_depth:
                raise InvalidJson(f"nested deeper than {max_depth} levels")
        else:
            depth -= 1
    return bare


def read(raw: bytes, bare: bytes) -> Any:
    """The second half: the value. orjson is strict about UTF-8, surrogates, NaN, infinities and syntax, which json is
    not; json keeps integers of any length, and sees keys that stand twice.

    Raises:
        InvalidJson: it is not JSON, or ambiguous.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    # a key that stands twice is a colon more than there are members
    if bare.count(b":") == _members(value) and _LONG_NUMBER.search(bare) is None:
        return value
    try:
        return json.loads(raw, object_pairs_hook=_object)
    except InvalidJson:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)[:200]) from error


def _members(value: Any) -> int:
    """How many members the objects in `value` have together."""
    count, left = 0, [value]
    while left:
        node = left.pop()
        if type(node) is dict:
            count += len(node)
            left += node.values()
        elif type(node) is list:
            left += node
    return count


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidJson(f"the key {key[:64]!r} stands twice in one object")
            seen.add(key)
    return made
