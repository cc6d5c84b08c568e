"""The outbox on the admin channel: registrations and access requests that a replica wants created, and what became of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolcrib.wire.model import Wire
from toolcrib.wire.publish import PublishedSubject, PublishedTool


class OutboxEntry(Wire):
    """One runtime registration that waits for the operator to create its Tool."""

    id: str
    tool: PublishedTool
    seconds: float = Field(ge=0, description="how long its caller still waits; later it must not be begun")
    request_id: str = Field(default="", description="of the caller's request, for the logs")


class AccessEntry(Wire):
    """One access request that waits for the operator to create its AccessRequest."""

    id: str
    tool_id: str
    subject: PublishedSubject = Field(description="as the caller's token says")
    account_uid: str | None = Field(default=None, description="of a ServiceAccount")
    why: str = Field(default="", description="the caller's own words")
    seconds: float = Field(ge=0, description="how long its caller still waits; later it must not be begun")
    request_id: str = Field(default="", description="of the caller's request, for the logs")


class Outbox(Wire):
    """What a replica wants created; it stands there until it is acknowledged or its caller has gone."""

    entries: tuple[OutboxEntry, ...] = ()
    access: tuple[AccessEntry, ...] = Field(default=(), description="an older operator does not read them")


class OutboxAck(Wire):
    """What became of one entry. refused: never as it is; failed: not now. Of both nothing is left.

    Of access requests alone: absent: no such tool may be asked for; full: too many are open.
    """

    id: str
    outcome: Literal["created", "exists", "refused", "failed", "absent", "full"]
    detail: str = Field(
        default="",
        description="for the caller: nothing of the cluster's inside. Of an access request that exists its name",
    )


class OutboxAcks(Wire):
    """The operator's answers to what it took from the outbox."""

    epoch: int = Field(ge=0, lt=1 << 63)
    acks: tuple[OutboxAck, ...] = Field(default=(), max_length=1_000)
