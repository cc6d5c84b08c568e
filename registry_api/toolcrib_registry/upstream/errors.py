"""What an MCP server can answer besides a result.

McpFailure
├── TransportUnsupported   it speaks HTTP+SSE, the transport of 2024-11-05, alone
├── LoginRequired          it wants a token that a login gives
├── RefusedByStatus        HTTP says no: any other status than a success
├── RefusedByRpc           JSON-RPC says no: an error instead of a result
├── AnswerBroken           what came is no answer to what was asked
├── NoticesTooFast         it tells of changes more often than can be followed
└── RequestTooLarge        what was to be sent exceeds its bound

On the way to it: `outbound.errors`.
"""

from __future__ import annotations

from typing import Any


class McpFailure(Exception):
    """The root; messages name facts of the protocol, never content."""


class TransportUnsupported(McpFailure):
    """The server speaks HTTP+SSE alone."""

    def __init__(self) -> None:
        super().__init__("the server speaks HTTP+SSE (MCP 2024-11-05), which is not supported")


class LoginRequired(McpFailure):
    """The server wants a token that a login gives.

    Args:
        metadata_url: where the server says how to get one (RFC 9728); None: it does not say.
    """

    def __init__(self, metadata_url: str | None) -> None:
        self.metadata_url = metadata_url
        super().__init__("the server does not accept the credential, or wants one")


class RefusedByStatus(McpFailure):
    """An HTTP status that is no success.

    Args:
        status: it.
        retry_after: seconds after which another try makes sense, if the server says so.
    """

    def __init__(self, status: int, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(f"the server answered with status {status}")


class RefusedByRpc(McpFailure):
    """An error of JSON-RPC. `message` and `data` are the server's: show them to nobody unchecked.

    Args:
        code: of JSON-RPC, or of MCP.
        message, data: as the server has them.
        status: of HTTP.
    """

    def __init__(self, code: int, message: str, data: Any = None, status: int = 200) -> None:
        self.code, self.message, self.data, self.status = code, message, data, status
        super().__init__(f"the server answered with error {code}")


class AnswerBroken(McpFailure):
    """No JSON, no message of JSON-RPC, an answer to something else, too many events, or an end without an answer."""


class NoticesTooFast(McpFailure):
    """The stream of notices was closed."""

    def __init__(self) -> None:
        super().__init__("the server sends notices faster than they are read")


class RequestTooLarge(McpFailure):
    """The request was not sent."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request is larger than {limit} bytes")
