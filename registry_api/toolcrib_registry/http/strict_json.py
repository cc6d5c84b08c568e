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
_NOT_BRACKETS = re.compile(rb"[^\[\]{}]+")


class InvalidJson(ValueError):
    """Why the text is refused, in words for the one who sent it."""


def parse(raw: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of `raw`.

    Raises:
        InvalidJson: it is not JSON, or not unambiguous, or nested deeper than `max_depth`.
    """
    check(raw, max_depth=max_depth)
    return read(raw)


def check(raw: bytes, *, max_depth: int = MAX_DEPTH) -> None:
    """The first half of `parse`: syntax and depth.

    Raises:
        InvalidJson: it is not JSON, or nested deeper than `max_depth`.
    """
    _check_depth(raw, max_depth)
    try:
        orjson.loads(raw)  # strict about UTF-8, surrogates, NaN, infinities and syntax, which json is not
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from error


def read(raw: bytes) -> Any:
    """The second half: the value of what was checked.

    Raises:
        InvalidJson: it is ambiguous.
    """
    try:
        return json.loads(raw, object_pairs_hook=_object)
    except InvalidJson:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)[:200]) from error


def _check_depth(raw: bytes, limit: int) -> None:
    depth = 0
    for bracket in _NOT_BRACKETS.sub(b"", _STRINGS.sub(b"", raw)):
        if bracket in b"[{":
            depth += 1
            if depth > limit:
                raise InvalidJson(f"nested deeper than {limit} levels")
        else:
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidJson(f"the key {key[:64]!r} stands twice in one object")
            seen.add(key)
    return made
