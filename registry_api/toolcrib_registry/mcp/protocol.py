"""The revisions of MCP that are served, in two eras, and how a request is refused.

The handshake era (2025-03-26 to 2025-11-25) begins with `initialize`; nothing of it is kept here, so a request needs
none. In the stateless era (2026-07-28) each request says in `params._meta` what a handshake would have said.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolcrib.version import __version__

__all__ = [
    "ASSUMED",
    "HANDSHAKE",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LATEST_HANDSHAKE",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "SERVED",
    "SERVER_INFO",
    "SERVER_META",
    "STATELESS",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "RpcError",
    "is_stateless",
    "unsupported_version",
]

_NEVER_OVER_ONE_ROUTE = "2024-11-05"
"""Its transport has two routes and a session (HTTP with SSE)."""
HANDSHAKE: Final = tuple(v for v in HANDSHAKE_PROTOCOL_VERSIONS if v != _NEVER_OVER_ONE_ROUTE)
STATELESS: Final = tuple(MODERN_PROTOCOL_VERSIONS)
SERVED: Final = (*HANDSHAKE, *STATELESS)
ASSUMED: Final = HANDSHAKE[0]
"""What a request without the header speaks (2025-06-18, Transports, Protocol Version Header)."""
LATEST_HANDSHAKE: Final = HANDSHAKE[-1]
RESOURCE_NOT_FOUND: Final = -32002
"""Before 2026-07-28 (2025-11-25, Resources, Error Handling)."""
SERVER_INFO: Final = {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
SERVER_META: Final = {SERVER_INFO_META_KEY: SERVER_INFO}
_SHOWN = 64


class RpcError(Exception):
    """A JSON-RPC error instead of a result.

    Args:
        code: of JSON-RPC, or of MCP.
        message: one sentence.
        data: further facts, by the code.
        refused: the request itself is not acceptable: HTTP says so too. Otherwise it was answered, with this.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, refused: bool = False) -> None:
        self.code, self.message, self.data, self.refused = code, message, data, refused
        super().__init__(message)


def is_stateless(version: str) -> bool:
    """Whether `version` is of the stateless era."""
    return version in STATELESS


def unsupported_version(asked: str) -> RpcError:
    """Refuse a revision that is not served; says which are."""
    return RpcError(
        UNSUPPORTED_PROTOCOL_VERSION,
        "Unsupported protocol version.",
        {"supported": list(SERVED), "requested": asked[:_SHOWN]},
        refused=True,
    )
