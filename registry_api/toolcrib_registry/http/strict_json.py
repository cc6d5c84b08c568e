"""JSON as it is accepted from callers: nothing that two parsers could read in two ways.

Duplicate keys, NaN and infinities, lone surrogates, invalid UTF-8 and deep nesting are refused, the last before
anything recurses. (RFC 8259 §4 and §9; I-JSON, RFC 7493.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson

MAX_DEPTH = 32
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_LONG_NUMBER = re.compile(rb"-0|[0-9]{18}")
"""What orjson may read otherwise than json."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPENS = 2
"""The bit that `[` and `{` have, and `]` and `}` have not."""


class InvalidJson(ValueError):
    """Why the text is refused, in words for the one who sent it."""


def parse(raw: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of `raw`.

    Raises:
        InvalidJson: it is not JSON, or not unambiguous, or nested deeper than `max_depth`.
    """
    bare = check(raw, max_depth=max_depth)
    value = read(raw)
    return value if is_plain(value, bare) else read_again(raw)


def check(raw: bytes, *, max_depth: int = MAX_DEPTH) -> bytes:
    """The first step of `parse`: depth. Gives what is left of the text without its strings.

    Raises:
        InvalidJson: it is nested deeper than `max_depth`.
    """
    bare = _STRINGS.sub(b"", raw)
    brackets = bare.translate(None, _NO_BRACKETS)
    # so few open no more levels than are allowed
    if len(brackets) > max_depth:
        depths = np.cumsum(np.where(np.frombuffer(brackets, np.uint8) & _OPENS, 1, -1))
        if depths.max() > max_depth:
            raise InvalidJson(f"nested deeper than {max_depth} levels")
    return bare


def read(raw: bytes) -> Any:
    """The value, as orjson has it: strict about UTF-8, surrogates, NaN, infinities and syntax, which json is not.

    Raises:
        InvalidJson: it is not JSON.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from error


def is_plain(value: Any, bare: bytes) -> bool:
    """Whether `value`, with no strings `bare`, is surely what `read_again` would give."""
    # a key that stands twice is a colon more than there are members
    colons = bare.count(b":")
    return (not colons or colons == _members(value)) and _LONG_NUMBER.search(bare) is None


def read_again(raw: bytes) -> Any:
    """The value, as json has it, which keeps integers of any length and sees keys that stand twice.

    Raises:
        InvalidJson: it is ambiguous.
    """
    try:
        return json.loads(raw, object_pairs_hook=_object)
    except InvalidJson:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)[:200]) from error


def _members(value: Any) -> int:
    """How many members the objects in `value` have together."""
    count, left = 0, list[Iterable[Any]]([(value,)])
    while left:
        for node in left.pop():
            if type(node) is dict:
                count += len(node)
                left.append(node.values())
            elif type(node) is list:
                left.append(node)
    return count


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidJson(f"the key {key[:64]!r} appears twice in one object")
            seen.add(key)
    return made
