"""What every kind of backend does alike.

Where a call goes, what authenticates it, when it is tried again, how its answer is judged.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import orjson

from toolcrib.identity import Identity
from toolcrib.resources import credential_hosts
from toolcrib.resources.backends import ASSERTION_HEADER, AuthType
from toolcrib.wire.backends import PublishedAuth, PublishedBackend
from toolcrib.wire.publish import Credential
from toolcrib_registry.calls.backends.remedies import Remedies
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import (
    CallError,
    CredentialPending,
    Refused,
    ServicePending,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from toolcrib_registry.calls.oauth.grants import Grant
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.outbound.errors import (
    Disconnected,
    EgressRefused,
    HostNotAllowed,
    NoAddress,
    OutboundError,
    ProtocolViolation,
    TimedOut,
    TooLarge,
)
from toolcrib_registry.outbound.guard import EgressPolicy, Target, target

_LARGE = 256 << 10
"""Bytes of an answer above which it is judged in a thread, one at a time: parsing and searching megabytes would hold the loop."""
_TELLING = 8
"""Characters from which on a password by itself is looked for in answers; a shorter one may stand there by chance."""

_T = TypeVar("_T")


class Asserts(Protocol):
    """Signs for one try of a call, so that its backend knows who sent it (`assertions.signing`)."""

    def made(
        self,
        tool_id: str,
        caller: Identity,
        method: str,
        target: str,
        body: bytes | None,
        fields: Mapping[str, str | None] | None = None,
    ) -> str:
        """A new assertion."""
        ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """What authenticates a call: header fields, and the forms by which an answer that repeats it is recognised.

    `grant` is what an access token was obtained by; None: it is no access token.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    grant: Grant | None = None

    @property
    def digest(self) -> str:
        """Tells credentials apart; empty where there is none. Another access token of one grant is the same credential."""
        if self.grant is not None:
            return self.grant.digest
        if not self.headers:
            return ""
        return hashlib.sha256(orjson.dumps(dict(self.headers))).hexdigest()


NONE = Authentication()


def place(backend: PublishedBackend, namespace: str, policy: EgressPolicy, remedies: Remedies) -> Target:
    """Where calls of a tool of `namespace` go.

    Raises:
        ServicePending: no address of its Service is known.
        Refused: the guard says no.
    """
    try:
        return target(backend, namespace=namespace, policy=policy)
    except EgressRefused as refused:
        raise refused_place(refused, remedies) from refused


def refused_place(refused: EgressRefused, remedies: Remedies) -> Refused | ServicePending:
    """What callers are told of a place that the guard refuses."""
    if isinstance(refused, NoAddress):
        remedy = remedies.service(refused.namespace, refused.name)
        return ServicePending(f"no address of the tool's Service is known. {remedy}", retry_after=5)
    if isinstance(refused, HostNotAllowed):
        return Refused(f"{refused.reason}. {remedies.host(refused.host, refused.port)}")
    return Refused(refused.reason)


def credential_of(auth: PublishedAuth, credentials: CredentialStore, to: Target) -> Credential:
    """The secret of a backend's credential, if it may be used for this backend.

    Raises:
        CredentialPending: this replica has none.
        Refused: it may not go there, nor may what is obtained with it.
    """
    credential = credentials.get(auth.secret)
    if credential is None:
        raise CredentialPending(
            "the backend's credential has not reached this replica yet. See the Tool's Ready condition",
            retry_after=5,
        )
    if to.names.isdisjoint(credential_hosts.entries(credential.hosts)):
        raise Refused(
            "the credential's annotation toolcrib.dev/hosts does not list the backend's host. Add "
            "it; a host without a port means https on port 443"
        )
    return credential


def authentication(auth: PublishedAuth | None, credentials: CredentialStore, to: Target) -> Authentication:
    """The credential of a backend, as it is sent; of one that takes access tokens see `authenticating`.

    Raises:
        CredentialPending: this replica has none, or none that a header can carry.
        Refused: it may not go there.
    """
    if auth is None:
        return NONE
    credential = credential_of(auth, credentials, to)
    value = credential.value.strip("\r\n")  # Secrets made from files end in a newline
    if not value or not value.isprintable() or (auth.type is not AuthType.BASIC and not value.isascii()):
        raise CredentialPending("the backend's credential holds characters that a header cannot carry")
    if auth.type is AuthType.BASIC:
        encoded = base64.b64encode(value.encode()).decode()
        password = value.partition(":")[2]
        secrets = (value, encoded, password) if len(password) >= _TELLING else (value, encoded)
        return Authentication({"authorization": f"Basic {encoded}"}, secrets)
    if auth.type is AuthType.BEARER:
        return Authentication({"authorization": f"Bearer {value}"}, (value,))
    assert auth.header is not None
    if auth.header.lower() == ASSERTION_HEADER:  # of an API server without this version's rule
        raise Refused("the backend's auth.header is reserved for the registry; choose another")
    return Authentication({auth.header.lower(): value}, (value,))


def translated(error: OutboundError) -> CallError:
    """What went wrong on the way, as callers are told."""
    match error:
        case EgressRefused():
            return Refused(error.reason)
        case TimedOut():
            return UpstreamTimeout(str(error))
        case TooLarge():
            return UpstreamTooLarge(str(error))
        case ProtocolViolation():
            return UpstreamProtocol(str(error))
    return UpstreamUnreachable(str(error))


async def tried(
    once: Callable[[float], Awaitable[_T]], seconds: float, clock: Callable[[], float], *, again: bool
) -> _T:
    """One try of at most `seconds`; with `again`, a second in what is left where the connection died before any answer.

    Raises:
        OutboundError: of the last try.
    """
    started = clock()
    try:
        return await once(seconds)
    except Disconnected:
        left = seconds - (clock() - started)
        if not again or left <= 0:
            raise
        return await once(left)


async def judged_in_turn(judge: Callable[[], _T], size: int, caller: Identity, large: LargeRequests) -> _T:
    """What `judge` makes of an answer of `size` bytes; a large one is judged in a thread, in the caller's turn."""
    if size <= _LARGE:
        return judge()
    async with large.turn(f"{caller.issuer} {caller.subject}"):
        return await asyncio.to_thread(judge)
