"""Whether backends can be reached: what the operator asks one replica, and what that replica answers.

A backend is named by what a Tool says of it: the origin of its URL, or its Service. Only the replica knows where a
Service is dialled that `backends` moves.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.model import Wire

MOST_BACKENDS = 2_000
"""Backends of one report."""


class ProbeOutcome(StrEnum):
    """What became of one attempt to connect."""

    CONNECTED = "connected"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    NAME_NOT_FOUND = "name_not_found"
    TLS_FAILED = "tls_failed"
    UNREACHABLE = "unreachable"
    EGRESS_REFUSED = "egress_refused"
    NO_ADDRESS = "no_address"

    @property
    def dialled(self) -> bool:
        """Whether the network decided it; else it follows from the registry's own settings."""
        return self not in (ProbeOutcome.EGRESS_REFUSED, ProbeOutcome.NO_ADDRESS)


class BackendProbe(Wire):
    """The last probe of one backend; no `outcome`: it was not probed yet, or, if that is `settled`, it will not be."""

    backend: str = Field(description="`scheme://host:port` of the Tools' URLs, or `namespace/service`")
    place: str = Field(default="", description="`host:port` that is dialled")
    tools: int = Field(default=0, description="active tools that call it")
    outcome: ProbeOutcome | None = None
    settled: bool = Field(
        default=False, description="the same twice in a row, or decided by the registry's settings alone"
    )
    probed_at: float | None = Field(default=None, description="seconds since the epoch")
    seconds: float | None = Field(default=None, description="how long the connection took")


class BackendReport(Wire):
    """What a replica knows of the backends that it probes."""

    probing: bool = Field(default=False, description="whether this replica probes at present")
    looked: bool = Field(default=False, description="whether it has looked at its tools since it began")
    backends: tuple[BackendProbe, ...] = Field(default=(), max_length=MOST_BACKENDS)
    left_out: int = Field(default=0, description="backends that are not probed, for there are too many")


class ProbeRequest(Wire):
    """Probe backends for the next seconds, and say what is known. Another request prolongs it."""

    epoch: int = Field(ge=0, lt=1 << 63)
    every: float = Field(default=60.0, ge=1, le=3600, description="seconds between two probes of a place")
    seconds: float = Field(
        default=45.0, ge=1, le=600, description="how long to continue without another request"
    )


def place_key(backend: PublishedBackend | None) -> str | None:
    """What tools share that cannot be reached together: a Service and its port, or the origin of a URL."""
    if backend is not None and backend.service is not None:
        return f"{backend.service}:{backend.service_port}"
    return backend_key(backend)


def backend_key(backend: PublishedBackend | None) -> str | None:
    """The name of a backend in reports; None where a tool has none."""
    if backend is None:
        return None
    if backend.url is None:
        return backend.service
    scheme, _, rest = backend.url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].lower()}"
