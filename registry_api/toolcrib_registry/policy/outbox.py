"""Registrations and access requests of a cluster: the registry writes nothing there, it queues them for the operator.

A caller waits here; the operator long-polls, creates the Tool, and acknowledges (DESIGN §6, Runtime registration).
Used from one event loop only.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from toolcrib.telemetry import logs
from toolcrib.wire.outbox import (
    AccessEntry,
    Outbox,
    OutboxAck,
    OutboxAcks,
    OutboxEntry,
)
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.policy.access_requests import (
    AccessAsked,
    AccessFailed,
    AccessFull,
    answered,
)
from toolcrib_registry.policy.registration import (
    AlreadyRegistered,
    RegistrationFailed,
    RegistrationForbidden,
    RegistrationRefused,
)
from toolcrib_registry.policy.state import PolicyState

BATCH = 50
"""Entries handed out at a time."""
ASKED_EACH = 3
"""Access requests of one caller that may wait at one time. Callers of one tenant have half of all places, and never more
than are still free."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """What one caller waits for, until `deadline` (monotonic seconds)."""

    asked: PublishedTool | AccessAsked
    allowed: Callable[[], bool]
    deadline: float
    request_id: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    handed_out: int = 0
    ack: OutboxAck | None = None

    @property
    def key(self) -> Hashable:
        """Of several with one key the eldest is handed out alone."""
        return (
            self.asked.tool_id
            if isinstance(self.asked, PublishedTool)
            else (self.asked.tool_id, self.asked.subject)
        )


class OutboxQueue:
    """A `Registrar` and an `AccessDesk` that have the operator create the objects."""

    def __init__(self, state: PolicyState, *, within: float = 10.0, capacity: int = 100) -> None:
        """
        Args:
            state: says when a tool is in effect here, and which epochs are over.
            within: seconds that a caller waits at most.
            capacity: callers that may wait at one time, for registrations and for access requests apart.
        """
        self._state = state
        self._within = within
        self._capacity = capacity
        self._waiting: dict[str, _Waiting] = {}
        self._moved = asyncio.Event()

    async def register(self, tool: PublishedTool, allowed: Callable[[], bool]) -> None:
        """Return when the operator has created `tool` and this replica's snapshot holds it.

        Nothing is handed to the operator once `allowed()` is false.

        Raises:
            RegistrationForbidden: it was, before the operator had taken it; nothing has changed.
            AlreadyRegistered: its name is taken.
            RegistrationRefused: it is no valid Tool; nothing has changed.
            RegistrationFailed: too many wait, or it was not in effect in time; the message says if it may still come.
        """
        if sum(isinstance(w.asked, PublishedTool) for w in self._waiting.values()) >= self._capacity:
            raise RegistrationFailed(
                "Too many registrations are waiting for the operator. Nothing has changed; retry later."
            )
        with self._queued(tool, allowed) as waiting:
            await self._registered(waiting, tool)

    async def ask(self, asked: AccessAsked) -> str:
        """As `AccessDesk`."""
        waits = [w.asked for w in self._waiting.values() if isinstance(w.asked, AccessAsked)]
        if sum(each.subject == asked.subject for each in waits) >= ASKED_EACH:
            raise AccessFull(
                f"{ASKED_EACH} of your access requests are waiting for the operator. Retry later."
            )
        free = self._capacity - len(waits)
        if free <= 0:
            raise AccessFailed("Too many access requests are waiting for the operator. Retry later.")
        mine = asked.subject.tenant
        if sum(each.subject.tenant == mine for each in waits) >= min(max(1, self._capacity // 2), free):
            raise AccessFull(
                "Too many access requests of your namespace, or issuer, are waiting for the operator. Retry later."
            )
        with self._queued(asked, lambda: True) as waiting:
            await self._until(lambda: waiting.ack is not None, waiting.deadline)
        ack = waiting.ack
        if ack is None and not waiting.handed_out:
            raise AccessFailed("No operator has taken the request. Nothing has changed; retry later.")
        if ack is None:
            raise AccessFailed(
                "The operator has taken the request but not confirmed it. Asking again does no harm."
            )
        return answered(ack)

    @contextmanager
    def _queued(self, asked: PublishedTool | AccessAsked, allowed: Callable[[], bool]) -> Iterator[_Waiting]:
        waiting = _Waiting(asked, allowed, time.monotonic() + self._within, logs.request_id.get())
        self._waiting[waiting.id] = waiting
        self._move()
        try:
            yield waiting
        finally:
            del self._waiting[waiting.id]
            self._move()

    async def entries(
        self, epoch: int, wait: float, *, gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Outbox:
        """What waits to be created, the eldest first; at the latest after `wait` seconds, then perhaps nothing.

        `gone` says whether the asker has hung up meanwhile: nothing is handed out then.

        Raises:
            EpochFenced: the asker no longer leads.
        """
        self._state.fence(epoch)
        await self._until(lambda: bool(self._open()), time.monotonic() + wait)
        if gone is not None and await gone():
            return Outbox()
        self._state.fence(epoch)  # another may have taken over meanwhile
        now, found = time.monotonic(), self._open()[:BATCH]
        for waiting in found:
            waiting.handed_out += 1
        entries, access = [], []
        for w in found:
            head: dict[str, Any] = {"id": w.id, "seconds": w.deadline - now, "request_id": w.request_id}
            if isinstance(w.asked, PublishedTool):
                entries.append(OutboxEntry(tool=w.asked, **head))
            else:
                asked = {each.name: getattr(w.asked, each.name) for each in fields(w.asked)}
                access.append(AccessEntry(**asked, **head))
        return Outbox(entries=tuple(entries), access=tuple(access))

    def acknowledge(self, acks: OutboxAcks) -> None:
        """Take the operator's answers; those to nobody are dropped.

        Raises:
            EpochFenced: the sender no longer leads.
        """
        self._state.fence(acks.epoch)
        for ack in acks.acks:
            if (waiting := self._waiting.get(ack.id)) is not None:
                waiting.ack = ack
        self._move()

    async def _registered(self, waiting: _Waiting, tool: PublishedTool) -> None:
        def forbidden() -> bool:
            return not waiting.handed_out and not waiting.allowed()

        await self._until(lambda: waiting.ack is not None or forbidden(), waiting.deadline)
        ack = waiting.ack
        if forbidden():
            raise RegistrationForbidden(tool.name)
        if ack is None and not waiting.handed_out:
            raise RegistrationFailed(
                "No operator has taken the registration. Nothing has changed; retry later."
            )
        if ack is None:
            raise RegistrationFailed(
                "The operator has taken the registration but not confirmed it. The tool may still appear."
            )
        if ack.outcome == "refused":
            raise RegistrationRefused(ack.detail)
        if ack.outcome == "failed":
            raise RegistrationFailed(ack.detail)
        # handed out twice: an answer was lost, and what exists may be what this very entry made
        if ack.outcome == "exists" and waiting.handed_out == 1:
            raise AlreadyRegistered(tool.name)
        await self._until(lambda: tool.tool_id in self._state.snapshot.tools, waiting.deadline)
        held = self._state.snapshot.tools.get(tool.tool_id)
        if ack.outcome == "exists" and (held is None or not _same(held, tool)):
            raise AlreadyRegistered(tool.name)
        if held is None:
            raise RegistrationFailed("The Tool was created but is not in effect on this replica yet.")

    def _open(self) -> list[_Waiting]:
        """What may be handed out; of several with one name only the eldest. The power may have gone while it waited."""
        now, first = time.monotonic(), {w.key: w for w in reversed(self._waiting.values())}
        return [
            w
            for w in self._waiting.values()
            if w.ack is None and w.deadline > now and first[w.key] is w and w.allowed()
        ]

    async def _until(self, holds: Callable[[], bool], deadline: float) -> None:
        """Return when `holds()`, at `deadline`, or when the service stops."""
        while not holds() and not self._state.closing and (left := deadline - time.monotonic()) > 0:
            waits = [asyncio.create_task(e.wait()) for e in (self._moved, self._state.changed)]
            try:
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def _same(held: PublishedTool, asked: PublishedTool) -> bool:
    return (held.digest, held.route_digest) == (asked.digest, asked.route_digest)
