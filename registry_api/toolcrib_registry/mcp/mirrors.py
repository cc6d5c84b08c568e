"""Header fields of the stateless era that repeat what stands in a request's body, so that a proxy can route by them.

A request whose field differs from its body is refused: a proxy that routes by the field would be deceived. Values that a field
cannot carry stand there as `=?base64?…?=`. (MCP 2026-07-28, Streamable HTTP, Request Headers and Custom Headers.)
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.schemas.header_marks import MARK, Mirror, marks
from toolcrib_registry.mcp.protocol import HEADER_MISMATCH, RpcError
from toolcrib_registry.upstream.header_fields import METHOD, NAME, NAMED, PARAM, VERSION, WRAPPED, at, written

__all__ = [
    "MARK",
    "VERSION",
    "Fields",
    "Mirror",
    "check",
    "check_arguments",
    "decoded",
    "fields_of",
    "mirrors_of",
    "mismatch",
    "one",
]

_WHOLE = re.compile(r"(-?[0-9]{1,400})(?:\.0+)?")
Fields = Mapping[str, str | None]
"""Header fields whose names begin with `mcp-`, in lower case; None: it came more than once."""


def fields_of(headers: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Those of a request; names are in lower case."""
    found: dict[str, str | None] = {}
    for name, value in headers:
        if name.startswith(b"mcp-"):
            key = name.decode("latin-1")
            # only what HTTP treats as white space, so a proxy reads the same value
            found[key] = None if key in found else value.strip(b" \t").decode("latin-1")
    return found


def one(fields: Fields, name: str) -> str | None:
    """The value of a field, None where it is absent.

    Raises:
        RpcError: it is there twice: two readers would read two values.
    """
    value = fields.get(name)
    if value is None and name in fields:
        raise mismatch(f"The header {name} appears more than once.")
    return value


def check(fields: Fields, method: str, params: Mapping[str, Any]) -> None:
    """Compare method and name with the body.

    Raises:
        RpcError: a field is missing, there twice, or says something else.
    """
    if one(fields, METHOD) != method:
        raise mismatch("The header Mcp-Method does not equal the method in the body.")
    key = NAMED.get(method)
    named = None if key is None else params.get(key)
    field = one(fields, NAME)
    if named is not None and (field is None or decoded(field) != named):
        raise mismatch(f"The header Mcp-Name does not equal params.{key} in the body.")


def check_arguments(mirrors: Sequence[Mirror], arguments: Mapping[str, Any], fields: Fields) -> None:
    """Compare the fields of a tool's arguments with the body.

    Raises:
        RpcError: one is missing or there twice, or says something else, or its argument is absent.
    """
    for path, name, kind in mirrors:
        field = one(fields, PARAM + name.lower())
        value = at(arguments, path)
        shown, where = f"Mcp-Param-{name}", ".".join(path)
        expected = written(value)
        if expected is None:
            if field is not None:
                raise mismatch(f"The header {shown} is present, but the argument {where} is missing.")
        elif field is None:
            raise mismatch(f"The header {shown} is missing, but the argument {where} is present.")
        elif (text := decoded(field)) is None or not _same(kind, value, expected, text):
            raise mismatch(f"The header {shown} does not equal the argument {where}.")


def decoded(field: str) -> str | None:
    """What a field's value stands for; None: it claims to be base64 and is not, in its one form."""
    wrapped = WRAPPED.fullmatch(field)
    if wrapped is None:
        return field
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except ValueError:  # also of characters that are none of ASCII
        return None


def mirrors_of(schema: Mapping[str, Any]) -> tuple[Mirror, ...]:
    """The arguments that have a field; none where one of the marks is not as the specification has it.

    Clients leave out a tool with a wrong mark, so none of its fields is sent by a client that follows the rules.
    """
    return marks(schema) or ()


def mismatch(message: str) -> RpcError:
    """Refuse fields that deceive."""
    return RpcError(HEADER_MISMATCH, message, refused=True)


def _same(kind: str, value: Any, written: str, text: str) -> bool:
    whole = _WHOLE.fullmatch(text) if kind == "integer" and type(value) in (int, float) else None
    if whole is not None and (type(value) is int or value.is_integer()):
        return int(whole[1]) == int(value)
    return text == written
