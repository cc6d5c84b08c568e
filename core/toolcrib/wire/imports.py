"""Which tools MCP servers have: what the operator asks one replica, and what that replica answers.

The replica connects, lists and listens; the operator assesses and writes. A server is named by its ToolServer. Only the
replica knows where a Service is dialled that `backends` moves, and only it holds credentials.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.model import Wire

MOST_SERVERS = 1_000
"""Servers of one request."""
MOST_TOOLS = 2_000
"""Tools of one server."""
LONGEST_WAIT = 25.0
"""Seconds that a replica keeps a request waiting for a change."""


class ServerOutcome(StrEnum):
    """What became of the last look at a server."""

    PENDING = "Pending"
    LISTED = "Listed"
    UNREACHABLE = "Unreachable"
    SERVER_ERROR = "ServerError"
    RATE_LIMITED = "RateLimited"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    LOGIN_REQUIRED = "LoginRequired"
    TRANSPORT_UNSUPPORTED = "TransportUnsupported"
    PROTOCOL_ERROR = "ProtocolError"
    TOO_LARGE = "TooLarge"
    EGRESS_REFUSED = "EgressRefused"
    NO_ADDRESS = "NoAddress"
    CREDENTIAL_PENDING = "CredentialPending"
    CREDENTIAL_REFUSED = "CredentialRefused"

    @property
    def asked(self) -> bool:
        """Whether the server decided it; else it follows from what the registry has or lacks."""
        return self not in (
            ServerOutcome.PENDING,
            ServerOutcome.EGRESS_REFUSED,
            ServerOutcome.NO_ADDRESS,
            ServerOutcome.CREDENTIAL_PENDING,
            ServerOutcome.CREDENTIAL_REFUSED,
        )


class ServerWanted(Wire):
    """A server whose tools are wanted."""

    server: str = Field(
        pattern="^[^/]+/[^/]+$", max_length=320, description="namespace/name of the ToolServer"
    )
    backend: PublishedBackend = Field(
        description="where it is, how to authenticate and how long one look may take; `mcp` and `method` do not matter"
    )
    every: float = Field(
        default=300.0,
        ge=1,
        le=86_400,
        description="seconds between two looks where the server tells of no changes",
    )
    listen: bool = Field(default=True, description="whether to ask the server to tell of changes")

    @property
    def namespace(self) -> str:
        """The namespace of the ToolServer."""
        return self.server.partition("/")[0]


class ServersRequest(Wire):
    """Watch exactly these servers for the next seconds, and report. Another request prolongs it.

    The answer comes at once if the report's counter is not `after`, else with the next change, at the latest after `wait`.
    """

    epoch: int = Field(ge=0, lt=1 << 63)
    seconds: float = Field(
        default=60.0, ge=1, le=600, description="how long to continue without another request"
    )
    servers: tuple[ServerWanted, ...] = Field(
        default=(), max_length=MOST_SERVERS, description="all; what is known of another one is forgotten"
    )
    wait: float = Field(default=0.0, ge=0, le=LONGEST_WAIT, description="seconds to wait for a change")
    after: int = Field(default=0, ge=0, lt=1 << 63, description="the counter of the last report")


class ServerSeen(Wire):
    """What is known of one server. A failure keeps what the last whole list said: `set_digest`, `tools`, `read_at`."""

    server: str = Field(description="namespace/name of the ToolServer")
    outcome: ServerOutcome = ServerOutcome.PENDING
    detail: str = Field(
        default="", max_length=300, description="why, without secrets and without the server's words"
    )
    metadata_url: str | None = Field(
        default=None, max_length=2_048, description="where the server says how to log in (RFC 9728)"
    )
    server_name: str | None = Field(
        default=None, max_length=256, description="the name that the server gives itself"
    )
    server_version: str | None = Field(
        default=None, max_length=128, description="the version that it gives itself"
    )
    protocol_version: str | None = Field(
        default=None, max_length=32, description="the version of MCP that it speaks"
    )
    listening: bool = Field(default=False, description="whether it tells of changes at present")
    set_digest: str | None = Field(default=None, description="of the last whole list, `sha256:…`")
    tools: int | None = Field(default=None, ge=0, description="tools in that list")
    read_at: float | None = Field(
        default=None, description="when that list was read; seconds since the epoch"
    )
    tried_at: float | None = Field(
        default=None, description="when it was last asked; seconds since the epoch"
    )


class ServersReport(Wire):
    """What a replica knows of the servers that it watches."""

    counter: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="another number after each change; begins elsewhere at each start",
    )
    servers: tuple[ServerSeen, ...] = Field(default=(), max_length=MOST_SERVERS)


class ListRequest(Wire):
    """One list, as a report named it."""

    server: str = Field(max_length=320)
    set_digest: str = Field(max_length=80)


class ListedTool(Wire):
    """A tool as the server describes it; fields that MCP does not define are left out."""

    name: str
    title: str | None = None
    description: str = ""
    input_schema: dict[str, Any] = Field(alias="inputSchema")
    output_schema: dict[str, Any] | None = Field(default=None, alias="outputSchema")
    annotations: dict[str, Any] | None = None
    icons: tuple[dict[str, Any], ...] | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")

    model_config = ConfigDict(
        frozen=True, extra="ignore", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class UnusableTool(Wire):
    """An entry of a list that is not a tool by MCP's own rules."""

    name: str = Field(default="", max_length=128, description="if it has one")
    reason: str = Field(max_length=300)


class ServerList(Wire):
    """All tools of a server, in its order; several may have the same name."""

    server: str
    set_digest: str
    instructions: str = ""
    tools: tuple[ListedTool, ...] = Field(default=(), max_length=MOST_TOOLS)
    unusable: tuple[UnusableTool, ...] = Field(default=(), max_length=MOST_TOOLS)
