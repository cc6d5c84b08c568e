"""What goes out and what comes back, as plain values, and the port that carries them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Protocol

from toolcrib.wire.probes import ProbeOutcome
from toolcrib_registry.outbound.guard import Target


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One request. `path` is complete (with query) and already percent-encoded; it is sent as it stands.

    Attributes:
        timeout: seconds for everything, from resolving the name to the last byte; `NO_END` for a stream of notices.
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
        return media_type(self.headers)


def media_type(headers: Mapping[str, str]) -> str:
    """That of an answer, without parameters, lower case; empty where none was sent."""
    return headers.get("content-type", "").split(";", 1)[0].strip().lower()


def retry_after(headers: Mapping[str, str], now: float | None = None) -> int | None:
    """Seconds that an answer asks its sender to wait, an hour at most; None: it does not say (RFC 9110, 10.2.3).

    `now`: seconds since the epoch, for answers that name a date.
    """
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit() and len(text) < 10:
        return min(int(text), MOST_RETRY_SECONDS)
    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0, math.ceil(until - (time.time() if now is None else now))), MOST_RETRY_SECONDS)


MOST_RETRY_SECONDS = 3_600
NO_END = math.inf
"""The timeout of a stream that lasts for as long as both sides want it."""
UNBOUNDED = 1 << 62
"""The bound of its bytes."""


class OutboundStream(Protocol):
    """An answer whose body is read as it comes; header names in lower case, of repeated ones the first."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content_type(self) -> str:
        """The media type alone, lower case; empty where none was sent."""
        ...

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        ...


class Toucher(Protocol):
    """Opens connections to where the guard lets it, and closes them."""

    async def touch(self, target: Target, *, seconds: float, owner: str = "") -> ProbeOutcome:
        """What became of it, within `seconds`; `owner` as of a request."""
        ...


class Sender(Protocol):
    """Sends requests to where the guard lets them."""

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """The answer, whatever its status; redirects are answers too.

        Raises:
            OutboundError: see `outbound.errors`.
        """
        ...


class Outbound(Sender, Protocol):
    """Reads answers as they come, too; to be closed at the end."""

    def open(self, request: OutboundRequest) -> AbstractAsyncContextManager[OutboundStream]:
        """The answer to `request`, to be read within the context.

        What is not read when it ends is not read any more, and its connection is closed.

        Raises:
            OutboundError: see `outbound.errors`; the deadline ends what is awaited inside.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
