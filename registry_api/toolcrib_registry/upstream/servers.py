"""What a server is to the client: where it is, how requests to it are signed, and how much of it is read."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.wire.imports import MOST_TOOLS
from toolcrib_registry.outbound.guard import Target
from toolcrib_registry.upstream.protocol import STATELESS


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is sent and read.

    Attributes:
        request_bytes: of one request.
        answer_bytes: of the body of one answer, whatever else comes before it on its stream.
        events: on the stream of one answer.
        notice_bytes: of one notice on a stream of notices.
        notice_burst: bytes of all notices within ten seconds.
        list_bytes: of all pages of a list.
        pages: of a list.
        tools: of a list of tools.
        entries: of a list of resources, templates or prompts.
    """

    request_bytes: int = 4 << 20
    answer_bytes: int = 8 << 20
    events: int = 10_000
    notice_bytes: int = 64 << 10
    notice_burst: int = 256 << 10
    list_bytes: int = 16 << 20
    pages: int = 100
    tools: int = MOST_TOOLS
    entries: int = 10_000


def unsigned(method: str, body: bytes | None) -> Mapping[str, str]:
    """No header fields: the server lets everybody in."""
    return {}


@dataclass(frozen=True, slots=True)
class Server:
    """One server, as it is asked now.

    Attributes:
        name: `namespace/name`.
        target: where it is; `path` is sent as it stands.
        credential: names the credential, or a digest of it; never the secret. A session that was begun with another is
            not used.
        owner: the namespace on whose behalf it is asked.
        caller: names the one caller whose own token it is asked with; empty: all callers share its session.
        seconds: for how long the credential is good; a session does not outlive it.
    """

    name: str
    target: Target
    credential: str = ""
    owner: str = ""
    caller: str = ""
    seconds: float = field(default=math.inf, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """What an era and a session are kept by."""
        return self.name, self.caller

    @property
    def route(self) -> tuple[Target, str]:
        """What an era and a session belong to."""
        return self.target, self.credential


@dataclass(frozen=True, slots=True)
class Asking:
    """On whose behalf a server is asked, and for how long.

    Attributes:
        seconds: until the whole answer is there, everything that precedes it included.
        sign: header fields that authenticate one request, by HTTP's method and the body as it is sent. Asked for each
            request again: an assertion is taken once.
        request_id: for the server's log, if there is one.
    """

    seconds: float = 30.0
    sign: Callable[[str, bytes | None], Mapping[str, str]] = field(default=unsigned, repr=False)
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One request of JSON-RPC.

    Attributes:
        method: its.
        params: without `_meta`.
        meta: what is said of the request, the protocol's own left out.
        capabilities: those of the client on whose behalf it is asked (stateless era).
        fields: header fields that repeat arguments (stateless era).
        progress: told each notice of progress; None: none is wanted.
        logged: told each log message; None: none is wanted.
        log_level: from which level on; empty: none is wanted (stateless era).
        at_most: bytes of the answer; None: `Bounds.answer_bytes`.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    meta: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    logged: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    log_level: str = ""
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says of itself.

    Attributes:
        version: the revision that it is asked in.
        info: its name and version, as it has them.
        capabilities: what it offers.
        instructions: how a model should use it.
        ttl_ms: for how long that may be kept; None: it does not say.
    """

    version: str
    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str = ""
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """How a server is spoken to: the revision, and in the handshake era the session, if the server has given one a name."""

    facts: Facts
    session: str | None = field(default=None, repr=False)

    @property
    def stateless(self) -> bool:
        """Whether each request stands alone."""
        return self.facts.version == STATELESS
