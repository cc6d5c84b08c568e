"""A request whose author placed the arguments (`backend.http.parameters`, `body`): pure.

Arguments fill values: of segments, query parameters, headers and the body. None names a header or a query parameter
that the author has taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from toolcrib.resources.backends import Method
from toolcrib.resources.placing import BodyKind, ParameterPlace, is_reserved_header
from toolcrib.wire.backends import PublishedBackend, PublishedParameter
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.backends.http import request
from toolcrib_registry.calls.errors import InvalidArguments, NoBackend

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MAX_HEADER = 4_096
"""Characters of a header's value; servers take 8 KiB of all headers together."""
MAX_FORM = 262_144
"""Characters of a form before they are encoded, which takes 15 ms then. Names of nested values repeat their outer names, so
that a small object may make a large form."""
_MAX_NAMES = 4 * MAX_FORM
"""Characters of all names that are made for a request, also of those that hold nothing to send."""
_WITHOUT_BODY = (Method.GET, Method.DELETE)


@dataclass(frozen=True, slots=True)
class Filled:
    """What the arguments make of a request.

    Attributes:
        path: with its query, percent-encoded.
        body: None: there is none.
        content_type: of the body.
        headers: that arguments fill, by lower-case names.
    """

    path: str
    body: bytes | None
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def filled(backend: PublishedBackend, path: str, checked: CheckedArguments, *, limit: int) -> Filled:
    """The request of a call.

    Args:
        backend: where its author placed arguments.
        path: the backend's path; `{name}` stands for an argument. A query in it is kept.
        checked: the arguments, as the caller sent them.
        limit: longest path with query, in bytes.

    Raises:
        InvalidArguments: a value that cannot stand where it is to stand, or one that the path needs is missing.
        NoBackend: a header that no argument may fill, of an API server without this version's rule.
    """
    if backend.parameters is None and backend.body is None:
        whole, body = request.fill(path, backend.method, checked, limit=limit)
        return Filled(whole, body)
    route, mark, query = path.partition("?")
    left = dict(checked.value)
    given = {p.argument: p for p in backend.parameters or ()}
    placed = {p: left.pop(p.argument) for p in given.values() if p.argument in left}

    in_path = {p.name: v for p, v in placed.items() if p.place is ParameterPlace.PATH}
    names = {p.name: p.argument for p in given.values() if p.place is ParameterPlace.PATH}
    # a placeholder that no parameter names is the argument of its name
    known = {k: v for k, v in left.items() if k not in names} | in_path
    used: set[str] = set()
    segments = [request.segment(part, known, used, names) for part in route.split("/")]
    for name in used - in_path.keys():
        left.pop(name)

    headers = dict(
        _header(p, v) for p, v in placed.items() if p.place is ParameterPlace.HEADER and v is not None
    )
    flat = _Pairs(brackets=False)
    pairs: list[Iterator[tuple[str, str]]] = []
    taken = request.fixed_in(query)
    for p in given.values():
        if p.place is not ParameterPlace.QUERY:
            continue
        if request.parameter(p.name) in taken and p in placed:
            raise request.wrong(p.argument, "the tool sets this query parameter; omit the argument")
        pairs.append(flat.of(p.argument, p.name, placed.get(p)))
    kind = backend.body or (BodyKind.NONE if backend.method in _WITHOUT_BODY else BodyKind.JSON)
    content_type, body = JSON, None
    if kind is BodyKind.NONE:
        taken |= {request.parameter(p.name) for p in given.values() if p.place is ParameterPlace.QUERY}
        for name, value in left.items():
            if request.parameter(name) in taken:
                raise request.wrong(name, "the tool sets this query parameter; omit the argument")
            pairs.append(flat.of(name, name, value))
    elif kind is BodyKind.JSON:
        body = checked.body if left == checked.value else serialised(left)
    elif left:
        deep = _Pairs(brackets=kind is BodyKind.DEEP_FORM)
        content_type = FORM
        form = chain.from_iterable(deep.of(k, k, v) for k, v in left.items())
        body = request.encoded(request.short(form, MAX_FORM, _LARGE)).encode()
    query = request.extended(query, chain.from_iterable(pairs), limit=limit)
    whole = "/".join(segments) + (f"?{query}" if query or mark else "")
    return Filled(request.bounded(whole, limit), body, content_type, headers)


def _header(parameter: PublishedParameter, value: Any) -> tuple[str, str]:
    name = parameter.name.lower()
    if is_reserved_header(name):
        raise NoBackend(f"the tool's parameters name the header {name}, which no argument can fill")
    if isinstance(value, list | dict):
        raise request.wrong(parameter.argument, "must be text, a number or a boolean: it is sent in a header")
    text = request.scalar(parameter.argument, value)
    # isprintable: no control character; isascii: what bytes others mean in a header depends on who reads it
    if not text.isascii() or not text.isprintable() or text != text.strip():
        message = "must be printable ASCII without spaces at its ends: it is sent in a header"
        raise request.wrong(parameter.argument, message)
    if len(text) > MAX_HEADER:
        raise request.wrong(
            parameter.argument, f"must have at most {MAX_HEADER} characters: it is sent in a header"
        )
    return name, text


_LARGE = f"the arguments are larger than {MAX_FORM} characters as a query or a form"


class _Pairs:
    """The names and values of one request.

    Args:
        brackets: whether the items of each list are `name[0]`, `name[1]`.
    """

    def __init__(self, *, brackets: bool) -> None:
        self._brackets = brackets
        self._names = _MAX_NAMES

    def of(self, argument: str, name: str, value: Any) -> Iterator[tuple[str, str]]:
        """`value` under `name`: nothing for null, `name[key]` for an object's members.

        A list repeats the name (OpenAPI's form, explode); with `brackets`, and where it holds more than single values,
        its items are `name[0]`, `name[1]`.

        Raises:
            InvalidArguments: what has no such form, or all names together are too long.
        """
        self._names -= len(name)
        if self._names < 0:
            raise InvalidArguments(_LARGE)
        if value is None:
            return
        if isinstance(value, dict):
            for key, member in value.items():
                yield from self.of(argument, f"{name}[{key}]", member)
        elif isinstance(value, list):
            numbered = self._brackets or any(isinstance(item, list | dict) for item in value)
            for number, item in enumerate(value):
                yield from self.of(argument, f"{name}[{number}]" if numbered else name, item)
        else:
            yield name, request.scalar(argument, value)
