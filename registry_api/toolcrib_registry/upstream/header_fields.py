"""Header fields of the stateless era that repeat what stands in a request's body, so that a proxy can route by them.

Their names, which arguments have one, and how values are written.

Values that a field cannot carry stand there as `=?base64?…?=`. (MCP 2026-07-28, Streamable HTTP, Request Headers and Custom
Headers.)
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.schemas.header_marks import Mirror

VERSION, METHOD, NAME, PARAM = "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-"
"""Names of fields, in lower case; the last is a prefix."""
SESSION = "mcp-session-id"
"""Of the handshake era."""
NAMED: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""By method: the parameter that `NAME` repeats."""
WRAPPED = re.compile(r"=\?base64\?(.*)\?=")
_PLAIN = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")


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
