"""The HTTP headers that repeat parts of a message: MCP-Protocol-Version, Mcp-Method, Mcp-Name and Mcp-Param-*."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib_cli.bridge.messages import Message

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"[ -~]*")
_SENTINEL = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

ParameterHeaders = Mapping[tuple[str, ...], str]
"""Which argument a tool wants repeated in which header: the argument's path, and what follows `Mcp-Param-`."""


def of_message(message: Message, negotiated: str | None, parameters: ParameterHeaders = {}) -> dict[str, str]:  # noqa: B006
    """The headers of one message.

    Args:
        negotiated: the version of the answer to `initialize`, for messages that name none themselves.
        parameters: of the tool that the message calls.
    """
    if message.method == "initialize":
        return {}  # the negotiation itself names no version
    if message.version is None:
        return {"MCP-Protocol-Version": field_value(negotiated)} if negotiated else {}
    found = {
        "MCP-Protocol-Version": field_value(message.version),
        "Mcp-Method": field_value(message.method),
    }
    name = message.params.get(_NAMED_BY.get(message.method, ""))
    if isinstance(name, str):
        found["Mcp-Name"] = field_value(name)
    if message.method == "tools/call":
        found.update(_of_arguments(parameters, message.params.get("arguments")))
    return found


def field_value(text: str) -> str:
    """`text` as a header can carry it: as it is, or in base64 between marks where it would not arrive unchanged."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _SENTINEL.fullmatch(text):
        return text
    encoded = base64.b64encode(text.encode(errors="surrogatepass")).decode()
    return f"=?base64?{encoded}?="


def of_schema(schema: object) -> ParameterHeaders:
    """The arguments that an input schema marks with `x-mcp-header`; marks that break the rules are left out."""
    found: dict[tuple[str, ...], str] = {}
    for path, marked in _properties(schema, ()):
        header = marked.get("x-mcp-header")
        if isinstance(header, str) and _TOKEN.fullmatch(header):
            found[path] = header
    return found


def _properties(schema: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    pending = [(path, schema)]
    while pending:
        path, node = pending.pop()
        below = node.get("properties") if isinstance(node, dict) else None
        for name, inner in below.items() if isinstance(below, dict) else ():
            if isinstance(inner, dict):
                yield (*path, name), inner
                pending.append(((*path, name), inner))


def _of_arguments(parameters: ParameterHeaders, arguments: object) -> dict[str, str]:
    found = {}
    for path, header in parameters.items():
        value = arguments
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            found[f"Mcp-Param-{header}"] = field_value(str(value))
    return found
