"""Asking for a tool: who asks, and the port to what passes it on to people. Nothing here says which tools there are.

AccessError
├── AccessAbsent    no such tool may be asked for
├── AccessFull      the caller, its tenant, or the namespace, has too many open requests; the message says which
├── AccessRefused   no binding can name this caller
└── AccessFailed    nobody took the request in time; the message says whether it may still come
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from toolcrib.identity import Identity
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.outbox import OutboxAck
from toolcrib.wire.publish import PublishedSubject


class AccessError(Exception):
    """A request that nobody will see."""


class AccessAbsent(AccessError):
    """No such tool may be asked for."""


class AccessFull(AccessError):
    """Too many requests are open."""


class AccessRefused(AccessError):
    """It would be refused each time."""


class AccessFailed(AccessError):
    """Nobody took it in time."""


@dataclass(frozen=True, slots=True)
class AccessAsked:
    """One request: by whom, for which tool, and the caller's words."""

    tool_id: str
    subject: PublishedSubject
    account_uid: str | None
    why: str


class AccessDesk(Protocol):
    """Passes requests on to the people who decide."""

    async def ask(self, asked: AccessAsked) -> str:
        """The request's `namespace/name`, once it is written; of one that is open already the same. Raises AccessError."""
        ...


def subject_of(identity: Identity) -> PublishedSubject | None:
    """By what a binding can name a caller alone: its account, else its user, else its client. None: by nothing."""
    if (account := identity.service_account) is not None:
        namespace, name = account
        return PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=namespace, name=name)
    if identity.cluster:
        return None
    if identity.user:
        return PublishedSubject(kind=SubjectKind.USER, issuer=identity.issuer, name=identity.user)
    if identity.client:
        return PublishedSubject(
            kind=SubjectKind.OAUTH_CLIENT, issuer=identity.issuer, client_id=identity.client
        )
    return None


_PROBLEMS = {"absent": AccessAbsent, "full": AccessFull, "refused": AccessRefused, "failed": AccessFailed}


def answered(ack: OutboxAck) -> str:
    """The request's name, as the operator's answer has it. Raises AccessError."""
    if (problem := _PROBLEMS.get(ack.outcome)) is not None:
        raise problem(ack.detail)
    return ack.detail
