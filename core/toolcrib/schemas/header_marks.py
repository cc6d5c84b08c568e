"""Arguments that a tool's input schema marks with `x-mcp-header`.

They are repeated in header fields, so that a proxy can route by them. (MCP 2026-07-28, Streamable HTTP, Custom Headers.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MARK = "x-mcp-header"
"""In a property's schema: the field that repeats the argument."""
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
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
