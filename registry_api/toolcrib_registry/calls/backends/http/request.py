"""From arguments to a request: pure. Arguments fill the path, the query or the body; they never name headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote_plus

from toolcrib.resources.backends import PLACEHOLDER, Method
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.errors import InvalidArguments

_PLACE = re.compile(PLACEHOLDER)
_IN_QUERY = (Method.GET, Method.DELETE)
_SEPARATORS = re.compile("[&;]")
_MAX_SEGMENT = 65_536
"""Characters of an argument in a path, far more than any server takes: a longer one is not even encoded."""
_LONG = "path and query are longer than {} bytes"


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
        return bounded(fixed, limit), checked.body
    arguments = checked.value
    route, mark, query = path.partition("?")
    used: set[str] = set()
    segments = [segment(part, arguments, used) for part in route.split("/")]
    filled = "/".join(segments)
    left = {k: v for k, v in arguments.items() if k not in used}
    if method in _IN_QUERY:
        set_by_author = fixed_in(query)
        for name in left:
            if parameter(name) in set_by_author:
                raise wrong(name, "the tool sets this query parameter; omit the argument")
        query = extended(query, _pairs(left), limit=limit)
        body = None
    else:
        body = serialised(left) if used else checked.body
    return bounded(f"{filled}?{query}" if query or mark else filled, limit), body


def fixed_in(query: str) -> set[str]:
    """The parameters that a tool's author has set, as `parameter` tells them apart."""
    return {parameter(unquote_plus(part.partition("=")[0])) for part in _SEPARATORS.split(query) if part}


def encoded(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, percent-encoded, as a query or as a form."""
    return "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in pairs)


def short(pairs: Iterable[tuple[str, str]], most: int, said: str) -> Iterator[tuple[str, str]]:
    """The pairs, while they have `most` characters together. Raises InvalidArguments, with `said`, before any is encoded."""
    size = 0
    for name, value in pairs:
        size += len(name) + len(value)
        if size > most:
            raise InvalidArguments(said)
        yield name, value


def extended(query: str, pairs: Iterable[tuple[str, str]], *, limit: int) -> str:
    """The query with more parameters. Raises InvalidArguments where these alone exceed `limit` bytes."""
    more = encoded(short(pairs, limit, _LONG.format(limit)))
    return f"{query}&{more}" if query and more else query or more


@lru_cache(maxsize=4_096)
def _without_places(path: str) -> str | None:
    """The path with its query as it is sent, whatever the arguments are; None: an argument stands in it."""
    route, mark, query = path.partition("?")
    if _PLACE.search(route):
        return None
    return "/".join(segment(part, {}, set()) for part in route.split("/")) + mark + query


def bounded(whole: str, limit: int) -> str:
    """Path and query, within `limit` bytes. Raises InvalidArguments."""
    if len(whole) > limit:
        raise InvalidArguments(_LONG.format(limit))
    return whole


def parameter(name: str) -> str:
    """A parameter's name as servers tell names apart: some ignore case, and PHP reads `a.b`, `a b` and `a_b[x]` as `a_b`."""
    return re.sub(r"[ .]", "_", name.strip().partition("\0")[0].partition("[")[0]).casefold()


def segment(
    template: str, arguments: dict[str, Any], used: set[str], called: Mapping[str, str] | None = None
) -> str:
    """One path segment. What it says after decoding must still be one segment, and not `.` or `..`.

    A `/` or `\\` in a value is refused although it would be encoded: many servers decode before they route.

    Args:
        template: the segment, with placeholders.
        arguments: values, by placeholder.
        used: placeholders found are added to it.
        called: the argument of a placeholder that has another name.
    """
    names = _PLACE.findall(template)
    if not names:
        return quote(template, safe="%:@!$&'()*+,;=~-._{}")
    decoded, encoded, rest = "", "", 0
    for found in _PLACE.finditer(template):
        name = found.group(1)
        said = (called or {}).get(name, name)
        if name not in arguments:
            raise wrong(said, "required: the path contains it")
        value = scalar(said, arguments[name])
        if len(value) > _MAX_SEGMENT:
            raise wrong(said, f"must have at most {_MAX_SEGMENT} characters: it is a path segment")
        if any(c in "/\\" or ord(c) < 0x20 or ord(c) == 0x7F for c in value):
            raise wrong(said, "must be one path segment, without slashes and control characters")
        literal = template[rest : found.start()]
        decoded += literal + value
        encoded += quote(literal, safe="%:@!$&'()*+,;=~-._") + quote(value, safe="")
        rest = found.end()
        used.add(name)
    decoded += template[rest:]
    encoded += quote(template[rest:], safe="%:@!$&'()*+,;=~-._")
    if decoded.strip() in ("", ".", ".."):
        raise wrong(
            (called or {}).get(names[0], names[0]), "must not be empty, . or ..: it is a path segment"
        )
    return encoded


def _pairs(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        if value is None:
            continue
        for item in value if isinstance(value, list) else [value]:
            yield name, scalar(name, item)


def scalar(name: str, value: Any) -> str:
    """A value as text. Raises InvalidArguments for what has no such form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return serialised({"": value})[4:-1].decode()
    if isinstance(value, str):
        return value
    raise wrong(name, "must be text, a number, a boolean or a list of them: it is sent in the path or query")


def wrong(name: str, message: str) -> InvalidArguments:
    """The refusal of one argument."""
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    return InvalidArguments(message, [{"pointer": pointer, "message": message}])
