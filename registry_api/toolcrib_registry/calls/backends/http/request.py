"""From arguments to a request: pure. Arguments fill the path, the query or the body; they never name headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote_plus

from toolcrib.resources.backends import PLACEHOLDER, Method
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.errors import InvalidArguments

_PLACE = re.compile(PLACEHOLDER)
_IN_QUERY = (Method.GET, Method.DELETE)
_SEPARATORS = re.compile("[&;]")


def fill(path: str, method: Method, checked: CheckedArguments, *, limit: int) -> tuple[str, bytes | None]:
    """(path with query, body) of a call.

    Args:
        path: the backend's path; `{name}` stands for an argument. A query in it is kept: no argument adds another
            value to a parameter of it.
        method: GET and DELETE send what is left in the query, the others as a JSON object in the body.
        checked: the arguments, as the caller sent them.
        limit: longest path with query, in bytes.

    Raises:
        InvalidArguments: an argument that the path needs is missing, a value that cannot stand there, or a parameter that
            the author of the tool has fixed.
    """
    if method not in _IN_QUERY and (fixed := _without_places(path)) is not None:
        return _bounded(fixed, limit), checked.body
    arguments = checked.value
    route, mark, query = path.partition("?")
    used: set[str] = set()
    segments = [_segment(segment, arguments, used) for segment in route.split("/")]
    filled = "/".join(segments)
    left = {k: v for k, v in arguments.items() if k not in used}
    if method in _IN_QUERY:
        set_by_author = {
            _parameter(unquote_plus(part.partition("=")[0])) for part in _SEPARATORS.split(query) if part
        }
        for name in left:
            if _parameter(name) in set_by_author:
                raise _wrong(name, "the tool sets this query parameter; omit the argument")
        pairs = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in _pairs(left))
        query = f"{query}&{pairs}" if query and pairs else query or pairs
        body = None
    else:
        body = serialised(left) if used else checked.body
    return _bounded(f"{filled}?{query}" if query or mark else filled, limit), body


@lru_cache(maxsize=4_096)
def _without_places(path: str) -> str | None:
    """The path with its query as it is sent, whatever the arguments are; None: an argument stands in it."""
    route, mark, query = path.partition("?")
    if _PLACE.search(route):
        return None
    return "/".join(_segment(segment, {}, set()) for segment in route.split("/")) + mark + query


def _bounded(whole: str, limit: int) -> str:
    if len(whole) > limit:
        raise InvalidArguments(f"path and query are longer than {limit} bytes")
    return whole


def _parameter(name: str) -> str:
    """A parameter's name as servers tell names apart: some ignore case, and PHP reads `a.b`, `a b` and `a_b[x]` as `a_b`."""
    return re.sub(r"[ .]", "_", name.strip().partition("\0")[0].partition("[")[0]).casefold()


def _segment(template: str, arguments: dict[str, Any], used: set[str]) -> str:
    """One path segment. What it says after decoding must still be one segment, and not `.` or `..`.

    A `/` or `\\` in a value is refused although it would be encoded: many servers decode before they route.
    """
    names = _PLACE.findall(template)
    if not names:
        return quote(template, safe="%:@!$&'()*+,;=~-._{}")
    decoded, encoded, rest = "", "", 0
    for found in _PLACE.finditer(template):
        name = found.group(1)
        if name not in arguments:
            raise _wrong(name, "required: the path contains it")
        value = _scalar(name, arguments[name])
        if any(c in "/\\" or ord(c) < 0x20 or ord(c) == 0x7F for c in value):
            raise _wrong(name, "must be one path segment, without slashes and control characters")
        literal = template[rest : found.start()]
        decoded += literal + value
        encoded += quote(literal, safe="%:@!$&'()*+,;=~-._") + quote(value, safe="")
        rest = found.end()
        used.add(name)
    decoded += template[rest:]
    encoded += quote(template[rest:], safe="%:@!$&'()*+,;=~-._")
    if decoded.strip() in ("", ".", ".."):
        raise _wrong(names[0], "must not be empty, . or ..: it is a path segment")
    return encoded


def _pairs(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        if value is None:
            continue
        for item in value if isinstance(value, list) else [value]:
            yield name, _scalar(name, item)


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return serialised({"": value})[4:-1].decode()
    if isinstance(value, str):
        return value
    raise _wrong(name, "must be text, a number, a boolean or a list of them: it is sent in the path or query")


def _wrong(name: str, message: str) -> InvalidArguments:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    return InvalidArguments(message, [{"pointer": pointer, "message": message}])
