"""The revisions of MCP that servers are asked in, and what is said of us to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    ClientCapabilities,
)
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from toolcrib.resources.meta import GROUP
from toolcrib.version import __version__

__all__ = [
    "CAPABILITIES",
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO",
    "CLIENT_INFO_META_KEY",
    "HANDSHAKE",
    "HEADER_MISMATCH",
    "INVALID_REQUEST",
    "LATEST_HANDSHAKE",
    "LOG_LEVEL_META_KEY",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "OURS",
    "OWN",
    "PROGRESS_TOKEN",
    "PROTOCOL_VERSION_META_KEY",
    "SERVER_INFO_META_KEY",
    "STATELESS",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "foreign",
    "scrubbed",
    "text_of",
]

HANDSHAKE: Final = tuple(v for v in HANDSHAKE_PROTOCOL_VERSIONS if v != "2024-11-05")
"""2024-11-05 has another transport."""
LATEST_HANDSHAKE: Final = HANDSHAKE[-1]
STATELESS: Final = LATEST_MODERN_VERSION
CLIENT_INFO: Final = {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
CAPABILITIES: Final = frozenset(ClientCapabilities.model_fields)
"""What a client may declare."""
OWN: Final = "io.modelcontextprotocol/"
"""What keys of `_meta` begin with that are the protocol's own."""
OURS: Final = f"{GROUP}/"
"""Prefix of the keys of `_meta` and of questions that the registry alone sets: clients act on them."""
PROGRESS_TOKEN: Final = "progressToken"
_SHOWN = 64


def foreign(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a `_meta` that are neither the protocol's nor ours."""
    return {key: value for key, value in meta.items() if not key.startswith((OWN, OURS))}


def scrubbed(value: Any) -> Any:
    """Return a server's JSON, of bounded depth, with none of our keys in any `_meta` of it."""
    if type(value) is list:
        return [scrubbed(each) for each in value]
    if type(value) is not dict:
        return value
    kept = {key: scrubbed(each) for key, each in value.items()}
    if type(meta := kept.get("_meta")) is dict:
        kept["_meta"] = {key: each for key, each in meta.items() if not key.startswith(OURS)}
    return kept


def text_of(value: Any) -> str:
    """A value of a server's, to be shown: a short text of ASCII."""
    text = value if isinstance(value, str) else type(value).__name__
    return text[:_SHOWN].encode("ascii", "backslashreplace").decode()
