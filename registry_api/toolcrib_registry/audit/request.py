"""What the records of a request say of it: its id, its token, its session, and who asked though nobody was let in."""

from __future__ import annotations

from contextvars import ContextVar

from toolcrib.authorizer import Reason
from toolcrib.identity import Identity
from toolcrib.telemetry import logs
from toolcrib_registry.audit.folding import Record

LONGEST = 512
"""Characters of any text that a caller chose."""

GONE: ContextVar[Identity | None] = ContextVar("gone", default=None)
"""Whose token the request carries where its ServiceAccount is gone: answered as nobody, and recorded by name."""
TOKEN: ContextVar[str | None] = ContextVar("token", default=None)
"""The `jti` of the verified token that the request carries; never the token."""
SESSION: ContextVar[str | None] = ContextVar("session", default=None)
"""What the request says of its session and turn, `<id>/<turn>`: the caller's claim, which nothing checks."""


def known(identity: Identity | None, reason: str) -> tuple[Identity | None, str]:
    """Who asked, and why not, as the log has it."""
    if identity is None and (gone := GONE.get()) is not None:
        return gone, Reason.ACCOUNT_GONE.value
    return identity, reason


def stamped(record: Record) -> Record:
    """With the ids of the request that is worked on and of its token; a sum has no request."""
    if token := TOKEN.get():
        record = record | {"jti": token[:LONGEST]}
    if (session := SESSION.get()) and record.get("subject"):  # of nobody it would be anybody's word
        record = record | {"session": session}
    current = logs.request_id.get()
    return record | {"request_id": current} if current else record


def reason_of(code: str) -> str:
    """The reason in a record of what the edge refused with this code."""
    return Reason.NO_IDENTITY.value if code == "unauthenticated" else code
