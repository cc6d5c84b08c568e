"""Runtime registrations on the admin channel: what a replica wants created, and what became of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolcrib.wire.model import Wire
from toolcrib.wire.publish import PublishedTool


class OutboxEntry(Wire):
    """One runtime registration that waits for the operator to create its Tool."""

    id: str
    tool: PublishedTool
    seconds: float = Field(ge=0, description="how long its caller still waits; later it must not be begun")
    request_id: str = Field(default="", description="of the caller's request, for the logs")


class Outbox(Wire):
    """What a replica wants created; it stands there until it is acknowledged or its caller has gone."""

    entries: tuple[OutboxEntry, ...] = ()


class OutboxAck(Wire):
    """What became of one entry. refused: never as it is; failed: not now. Of both nothing is left."""

    id: str
    outcome: Literal["created", "exists", "refused", "failed"]
    detail: str = Field(default="", description="for the caller: nothing of the cluster's inside")


class OutboxAcks(Wire):
    """The operator's answers to what it took from the outbox."""

    epoch: int = Field(ge=0, lt=1 << 63)
    acks: tuple[OutboxAck, ...] = Field(default=(), max_length=1_000)
