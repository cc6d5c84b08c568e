"""What goes out and what comes back, as plain values, and the port that carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from toolcrib.wire.probes import ProbeOutcome
from toolcrib_registry.outbound.guard import Target


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One request. `path` is complete (with query) and already percent-encoded; it is sent as it stands.

    Attributes:
        timeout: seconds for everything, from resolving the name to the last byte.
        max_bytes: bound of the answer's body, after decoding.
        ca_file: a CA bundle to trust instead of the system's.
        owner: the namespace on whose behalf it is sent; empty: the registry's own.
    """

    target: Target
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    timeout: float = 10.0
    max_bytes: int = 4 << 20
    ca_file: str | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """A whole answer; header names in lower case, of repeated ones the first."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The media type alone, lower case; empty where none was sent."""
        return self.headers.get("content-type", "").split(";", 1)[0].strip().lower()


class Toucher(Protocol):
    """Opens connections to where the guard lets it, and closes them."""

    async def touch(self, target: Target, *, seconds: float, owner: str = "") -> ProbeOutcome:
        """What became of it, within `seconds`; `owner` as of a request."""
        ...


class Outbound(Protocol):
    """Sends requests to where the guard lets them."""

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """The answer, whatever its status; redirects are answers too.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
