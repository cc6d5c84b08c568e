"""Header fields of the stateless era that repeat what stands in a request's body, so that a proxy can route by them.

A request whose field differs from its body is refused: a proxy that routes by the field would be deceived. Values that a field
cannot carry stand there as `=?base64?…?=`. (MCP 2026-07-28, Streamable HTTP, Request Headers and Custom Headers.)
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib_registry.mcp.protocol import HEADER_MISMATCH, RpcError

VERSION, METHOD, NAME, PARAM = "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-"
"""Names of fields, in lower case; the last is a prefix."""
MARK = "x-mcp-header"
"""In a property's schema: the field that repeats the argument."""
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_WHOLE = re.compile(r"(-?[0-9]{1,400})(?:\.0+)?")
_TYPES = ("string", "integer", "boolean")
_ONE = ("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties",
        "not", "if", "then", "else", "contentSchema")  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMES = ("patternProperties", "dependentSchemas", "$defs", "definitions")

Fields = Sequence[tuple[str, str]]
"""Header fields whose names begin with `mcp-`, in lower case, as they came."""
Mirror = tuple[tuple[str, ...], str, str]
"""Where an argument stands, the field that repeats it, and its type."""


def one(fields: Fields, name: str) -> str | None:
    """The value of a field, None where it is absent.

    Raises:
        RpcError: it is there twice: two readers would read two values.
    """
    found = [value for key, value in fields if key == name]
    if len(found) > 1:
        raise mismatch(f"The header {name} appears more than once.")
    # only what HTTP treats as white space, so a proxy reads the same value
    return found[0].strip(" \t") if found else None


def check(fields: Fields, method: str, params: Mapping[str, Any]) -> None:
    """Compare method and name with the body.

    Raises:
        RpcError: a field is missing, there twice, or says something else.
    """
    if one(fields, METHOD) != method:
        raise mismatch("The header Mcp-Method does not equal the method in the body.")
    key = _NAMED.get(method)
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
        value = _at(arguments, path)
        shown, where = f"Mcp-Param-{name}", ".".join(path)
        written = _written(value)
        if written is None:
            if field is not None:
                raise mismatch(f"The header {shown} is there, but the argument {where} is not.")
        elif field is None:
            raise mismatch(f"The header {shown} is missing, but the argument {where} is there.")
        elif (text := decoded(field)) is None or not _same(kind, value, written, text):
            raise mismatch(f"The header {shown} does not equal the argument {where}.")


def decoded(field: str) -> str | None:
    """What a field's value stands for; None: it claims to be base64 and is not, in its one form."""
    wrapped = _WRAPPED.fullmatch(field)
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
    found: list[Mirror] = []
    for path, node in _positions(schema):
        if MARK not in node:
            continue
        name, kind = node[MARK], node.get("type")
        if not path or type(name) is not str or _TOKEN.fullmatch(name) is None or kind not in _TYPES:
            return ()
        found.append((path, name, kind))
    names = [name.lower() for _, name, _ in found]
    return tuple(found) if len(set(names)) == len(names) else ()


def mismatch(message: str) -> RpcError:
    """Refuse fields that deceive."""
    return RpcError(HEADER_MISMATCH, message, refused=True)


def _positions(schema: Any) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every schema in `schema`, with the names of properties that lead there; None where other keywords do, too."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if type(node) is not dict:
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and type(value) is dict:
                stack += [(None if path is None else (*path, name), inner) for name, inner in value.items()]
            elif keyword in _ONE:
                stack.append((None, value))
            elif keyword in _MANY and type(value) is list:
                stack += [(None, inner) for inner in value]
            elif keyword in _NAMES and type(value) is dict:
                stack += [(None, inner) for inner in value.values()]


def _at(arguments: Any, path: Sequence[str]) -> Any:
    for key in path:
        arguments = arguments.get(key) if type(arguments) is dict else None
    return arguments


def _written(value: Any) -> str | None:
    """A value as a client writes it into a field; None: it writes none."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and value.bit_length() > 1_300:  # Python writes no longer ones, nor do clients
        return None
    return str(value) if type(value) in (str, int, float) else None


def _same(kind: str, value: Any, written: str, text: str) -> bool:
    whole = _WHOLE.fullmatch(text) if kind == "integer" and type(value) in (int, float) else None
    if whole is not None and (type(value) is int or value.is_integer()):
        return int(whole[1]) == int(value)
    return text == written
