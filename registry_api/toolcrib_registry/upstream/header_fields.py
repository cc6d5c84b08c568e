"""Header fields of the stateless era that repeat what stands in a request's body, so that a proxy can route by them: their
names, which arguments have one, and how values are written.

Values that a field cannot carry stand there as `=?base64?…?=`. (MCP 2026-07-28, Streamable HTTP, Request Headers and Custom
Headers.)
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

VERSION, METHOD, NAME, PARAM = "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-"
"""Names of fields, in lower case; the last is a prefix."""
SESSION = "mcp-session-id"
"""Of the handshake era."""
MARK = "x-mcp-header"
"""In a property's schema: the field that repeats the argument."""
NAMED: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""By method: the parameter that `NAME` repeats."""
WRAPPED = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
_TYPES = ("string", "integer", "boolean")
_ONE = ("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties",
        "not", "if", "then", "else", "contentSchema")  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMES = ("patternProperties", "dependentSchemas", "$defs", "definitions")

Mirror = tuple[tuple[str, ...], str, str]
"""Where an argument stands, the field that repeats it, and its type."""


def marks(schema: Mapping[str, Any]) -> tuple[Mirror, ...] | None:
    """The arguments that have a field; None where one of the marks is not as the specification has it."""
    found: list[Mirror] = []
    for path, node in _positions(schema):
        if MARK not in node:
            continue
        name, kind = node[MARK], node.get("type")
        if not path or type(name) is not str or _TOKEN.fullmatch(name) is None or kind not in _TYPES:
            return None
        found.append((path, name, kind))
    names = [name.lower() for _, name, _ in found]
    return tuple(found) if len(set(names)) == len(names) else None


def fields_of(mirrors: Sequence[Mirror], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The fields that repeat arguments; of one that is absent there is none."""
    found = {PARAM + name.lower(): written(at(arguments, path)) for path, name, _ in mirrors}
    return {name: wrapped(text) for name, text in found.items() if text is not None}


def wrapped(text: str) -> str:
    """A text as the value of a field."""
    if not text or (_PLAIN.fullmatch(text) is not None and WRAPPED.fullmatch(text) is None):
        return text
    return f"=?base64?{base64.b64encode(text.encode(errors='replace')).decode()}?="


def written(value: Any) -> str | None:
    """A value as a client writes it into a field; None: it writes none."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and value.bit_length() > 1_300:  # Python writes no longer ones, nor do clients
        return None
    return str(value) if type(value) in (str, int, float) else None


def at(arguments: Any, path: Sequence[str]) -> Any:
    """The argument at a path of properties; None where there is none."""
    for key in path:
        arguments = arguments.get(key) if type(arguments) is dict else None
    return arguments


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
