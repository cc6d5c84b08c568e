"""Events for `kubectl describe`, written after the status, bounded, never in the way.

One a transition of Ready, of why it is not accepted, or of Questionable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib_operator.errors import OperatorError
from toolcrib_operator.kinds.statuses import BAD
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import ClusterWriter, Event
from toolcrib_operator.timers import wait

log = logging.getLogger(__name__)

MAX_QUEUED = 10_000
MAX_MESSAGE = 1_024


class Events:
    """A bounded queue of events; when it is full or the API server refuses one, it is dropped and counted."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.time) -> None:
        self.dropped = 0
        self._writer = writer
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED)

    def transition(self, ref: Ref, uid: str, condition: Mapping[str, Any]) -> None:
        """A written condition differs from the one before, and people are told (`statuses.announced`)."""
        good = condition["status"] == ("False" if condition["type"] in BAD else "True")
        event = Event(
            ref=ref,
            uid=uid,
            type="Normal" if good else "Warning",
            reason=condition["reason"],
            message=condition["message"][:MAX_MESSAGE],
            at=self._clock(),
        )
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self, stop: asyncio.Event) -> None:
        """Write queued events until `stop`, one at a time: statuses go first."""
        getter = None
        while not stop.is_set():
            if self._queue.empty():
                getter = asyncio.create_task(self._queue.get())
                stopped = asyncio.create_task(stop.wait())
                await asyncio.wait((getter, stopped), return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if not getter.done():
                    getter.cancel()
                    return
                event = getter.result()
            else:
                event = self._queue.get_nowait()
            try:
                await self._writer.write_event(event)
            except OperatorError as error:
                self.dropped += 1
                log.debug("an event was dropped: %s", error)
                await wait(stop, 0.2)
