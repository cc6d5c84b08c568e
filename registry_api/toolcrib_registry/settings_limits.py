"""Settings of limits: what requests, calls and answers may take, and where calls are counted."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from toolcrib_registry.settings_sections import Section


class CounterStore(Section):
    """Where calls are counted for the limits of bindings."""

    kind: Literal["memory", "redis"] = Field(
        default="memory",
        description="memory: each replica counts its own calls; redis (or Valkey): all replicas count "
        "together.",
    )
    url: str | None = Field(
        default=None,
        description="redis: `redis://host:port/database`, or `rediss://` for TLS. Without a password.",
    )
    username: str | None = Field(
        default=None, min_length=1, description="redis: user, if not the default one."
    )
    password_file: str | None = Field(
        default=None, description="redis: file with the password; read at each connection."
    )
    ca_file: str | None = Field(
        default=None,
        description="redis: CA bundle to use instead of the system's; read at each connection.",
    )
    timeout: float = Field(
        default=0.25,
        gt=0,
        le=10,
        description="redis: seconds within which the server must answer, once a call's turn to be counted "
        "has come.",
    )
    several: bool = Field(
        default=False,
        description="Whether several replicas serve. With kind memory each of them admits a limit's calls; "
        "the log then warns of it.",
    )

    @model_validator(mode="after")
    def _whole(self) -> CounterStore:
        if self.kind == "memory":
            return self
        # the message must not show the address: a password may be in it
        wrong = "url must be redis://host:port/database or rediss://…, without a user or password"
        try:
            parts = urlsplit(self.url or "")
            known = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            raise ValueError(wrong) from None
        database = parts.path.strip("/") or "0"
        plain = not ("@" in parts.netloc or parts.query or parts.fragment)
        if not (known and plain and database.isascii() and database.isdigit()):
            raise ValueError(wrong)
        if self.ca_file is not None and parts.scheme != "rediss":
            raise ValueError("ca_file needs a rediss:// url")
        if self.username is not None and self.password_file is None:
            raise ValueError("username needs password_file")
        return self


class Limits(Section):
    """Bounds on what callers send and hold."""

    body_bytes: int = Field(default=1 << 20, ge=1024, description="Largest body of an agent's request.")
    admin_body_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="Largest publish: one body, or all chunks of a full snapshot.",
    )
    json_depth: int = Field(default=32, ge=4, le=128, description="Deepest nesting of a body.")
    header_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds for a client to connect (TLS included) and send a request's headers; then the "
        "connection is closed.",
    )
    body_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds for the body after that, plus one for each MiB received; then 408 "
        "`request_timeout`.",
    )
    send_seconds: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="Seconds in which a client must read at least 64 KiB of a waiting response; a slower "
        "reader's connection is closed.",
    )
    connections: int = Field(
        default=4096,
        ge=1,
        description="Open connections to the agents' listener, at most half of the files that the process "
        "may open. Further connections are closed at once. The other listeners accept at most 256 each; there a new "
        "connection replaces the oldest idle one.",
    )
    connections_per_peer: int = Field(
        default=512,
        ge=1,
        description="Open connections of one peer address (IPv6: of one /64) to the agents' listener, unless it is in "
        "trusted_proxies, and never more than are still free. At most 64 to each other listener.",
    )
    agent_calls: int = Field(
        default=256,
        ge=1,
        description="Calls of one agent (`iss` and `sub`) in progress at one time on each replica, unless a "
        "binding's maxConcurrent sets another bound.",
    )
    backend_calls: int = Field(
        default=256,
        ge=4,
        le=1024,
        description="Calls to one backend (Service and port, or host and port) in progress at one time on "
        "each replica. One binding may use half of them, one caller a quarter.",
    )
    breaker_failures: int = Field(
        default=5,
        ge=0,
        le=10_000,
        description="Failures of a backend in 30 s (no connection, timeout, 502 to 504) that open its circuit breaker on a replica, if "
        "they are at least half of its calls. 0: never.",
    )
    breaker_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds that an open circuit breaker refuses calls; then one call tries.",
    )
    mcp_request_bytes: int = Field(
        default=4 << 20, ge=64 << 10, le=64 << 20, description="Largest request to an MCP server."
    )
    mcp_answer_bytes: int = Field(
        default=8 << 20,
        ge=64 << 10,
        le=64 << 20,
        description="Largest answer of an MCP server to a call, everything included that precedes it on its stream.",
    )
    watch_streams: int = Field(default=1000, ge=1, description="Watch streams at one time.")
    watch_streams_per_subject: int = Field(
        default=20,
        ge=1,
        description="Watch streams of one subject (`iss` and `sub`) at one time; pods of one ServiceAccount "
        "share them.",
    )
    watch_send_seconds: float = Field(
        default=20.0,
        gt=0,
        description="Seconds for a watch stream's client to read an event; a slower one is cut off.",
    )
    validator_bytes: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Estimated bytes of compiled schemas that check arguments; those of the most recently "
        "called tools are kept.",
    )
    view_bytes: int = Field(
        default=128 << 20,
        ge=1 << 20,
        description="Estimated bytes of the views that are kept; the least recently used are dropped and "
        "made again when needed. Callers with the same view share one.",
    )
    list_bytes: int = Field(
        default=32 << 20,
        ge=1 << 10,
        description="Largest list of `GET /`, in bytes. A larger one is refused before it is made (413 "
        "`list_too_large`); pages and searches work.",
    )
    metric_agents: int = Field(default=1000, ge=1, description="Agents with series of their own.")
    registration_seconds: float = Field(
        default=10.0, gt=0, le=60, description="Seconds that a registration waits for the operator."
    )
    registrations: int = Field(default=100, ge=1, description="Registrations that wait at one time.")
    metric_tools: int = Field(default=5000, ge=1, description="Tools with series of their own.")
    metric_grants: int = Field(default=2000, ge=1, description="Bindings with series of their own.")
    metric_pairs: int = Field(
        default=10_000,
        ge=1,
        description="Pairs of agent and tool (or deciding binding) with series of their own.",
    )
