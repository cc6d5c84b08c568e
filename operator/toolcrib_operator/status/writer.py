"""Carrying plans out: a queue of objects by time, a few writes at once, compare-and-swap, retries.

Before every write the leadership is asked for again. A conflict means that the World is behind: its news or a
retry settles it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.telemetry import logs, tracing
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone
from toolcrib_operator.kinds.kind import Governed
from toolcrib_operator.kinds.reachability import BACKEND_REACHABLE
from toolcrib_operator.kinds.records import Records
from toolcrib_operator.kinds.statuses import BAD, difference, transitions
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import ClusterWriter
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.status.events import Events
from toolcrib_operator.status.planner import Plan, StatusPlanner
from toolcrib_operator.timers import Backoff, passed_on, pause, wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)


_AT_ONCE = 0.005
"""Seconds of processor time for plans, until others on the loop have a turn: the writes that were planned take longer."""
QUIET = frozenset({BACKEND_REACHABLE})
"""Conditions that many objects change together; a line of their own tells of the cause."""


@dataclass
class WriteCounts:
    """What was written so far, for metrics and tests."""

    statuses: int = 0
    finalizers: int = 0
    conflicts: int = 0
    failures: int = 0


class StatusWriter:
    """Writes statuses and finalizers when they are due."""

    def __init__(
        self,
        world: World,
        kinds: Mapping[str, Governed],
        records: Records,
        planner: StatusPlanner,
        writer: ClusterWriter,
        events: Events,
        settings: LoopSettings,
        *,
        clock: Callable[[], float] = time.time,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.counts = WriteCounts()
        self.problem: str | None = None
        self._world, self._kinds, self._records = world, kinds, records
        self._planner, self._writer, self._events = planner, writer, events
        self._concurrency = settings.concurrency
        self._clock, self._may_act = clock, may_act
        self._heap: list[tuple[float, Ref]] = []
        self._busy: set[Ref] = set()
        self._away = Backoff(0.5, 15.0)
        self._trouble = logs.Trouble(log)
        self._wake = asyncio.Event()

    def due(self, ref: Ref, at: float) -> None:
        """Look at an object at `at`, or earlier if it is due earlier already. Nothing is written about one that is gone."""
        record = self._records.get(ref)
        if record is None or (record.due is not None and record.due <= at):
            return
        record.due = at
        heapq.heappush(self._heap, (at, ref))
        self._wake.set()

    @property
    def backlog(self) -> int:
        """Objects that are due or being written."""
        now = self._clock()
        return len(self._busy) + sum(at <= now for at, _ in self._scheduled())

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest object has been due and is not done; 0 if there is none."""
        now = self._clock()
        times = [at for at, _ in self._scheduled()]
        begun = [*(ref for _, ref in self._scheduled()), *self._busy]
        times += [r.since for ref in begun if (r := self._records.get(ref)) and r.since is not None]
        return max(0.0, now - min(times, default=now))

    def _scheduled(self) -> Iterator[tuple[float, Ref]]:
        """What is to be looked at, and when. The heap also holds times that an earlier one has replaced."""
        return (
            (at, ref) for at, ref in self._heap if (r := self._records.get(ref)) is not None and r.due == at
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Write until `stop`."""
        slots = asyncio.Semaphore(self._concurrency)
        async with asyncio.TaskGroup() as group:
            group.create_task(passed_on(stop, self._wake))
            began = time.thread_time()
            while not stop.is_set():
                self._wake.clear()
                ref, pause = self._next()
                if ref is None:
                    await wait(self._wake, pause)
                    continue
                plan = self._plan(ref)
                if time.thread_time() - began > _AT_ONCE:
                    await asyncio.sleep(0)
                    began = time.thread_time()
                if plan is None:
                    continue
                await slots.acquire()
                self._busy.add(ref)
                task = group.create_task(self._write(ref))
                task.add_done_callback(lambda _: slots.release())

    def _next(self) -> tuple[Ref | None, float | None]:
        now = self._clock()
        while self._heap:
            at, ref = self._heap[0]
            record = self._records.get(ref)
            if record is None or record.due != at:
                heapq.heappop(self._heap)
                continue
            if at > now:
                # a wall clock may jump: never sleep long on its word
                return None, min(at - now, 5.0)
            heapq.heappop(self._heap)
            record.due = None
            if ref in self._busy:
                self.due(ref, now + 0.05)
                continue
            if record.since is None:
                record.since = at
            return ref, None
        return None, None

    def _plan(self, ref: Ref) -> Plan | None:
        plan = self._planner.plan(ref, self._clock())
        if plan.again is not None:
            self.due(ref, plan.again)
        if plan.status is None and plan.finalizers is None:
            self._done(ref)
            return None
        return plan

    async def _write(self, ref: Ref) -> None:
        try:
            await self._carry_out(ref)
            self._done(ref)
            self._away.reset()
            self.problem = None
            self._trouble.over("writing to the API server works again")
        except Conflict:
            self.counts.conflicts += 1
            if (record := self._records.get(ref)) is not None:
                self.due(ref, self._clock() + pause(0.1, 5.0, record.failures))
                record.failures += 1
        except Gone:
            self._done(ref)
        except ClusterUnavailable as error:
            self.counts.failures += 1
            self._trouble.failed(
                "cannot write to the API server: %s", error, extra=logs.about_object(ref.kind, ref.key)
            )
            self.problem = str(error)
            self.due(ref, self._clock() + self._away.next())
        finally:
            self._busy.discard(ref)

    def _done(self, ref: Ref) -> None:
        if (record := self._records.get(ref)) is not None:
            record.failures, record.since = 0, None

    async def _carry_out(self, ref: Ref) -> None:
        # planned again: the object may have changed while this waited for its turn
        plan = self._planner.plan(ref, self._clock())
        if plan.again is not None:
            self.due(ref, plan.again)
        if plan.finalizers is not None:
            entry = self._world.get(ref)
            if entry is None or not self._may_act():
                return
            written = await self._writer.write_finalizers(
                ref, resource_version=entry.resource_version, finalizers=plan.finalizers
            )
            self.counts.finalizers += 1
            version = written.resource_version
            self._world.wrote(ref, entry.uid, version, finalizers=written.finalizers)
        entry = self._world.get(ref)
        if plan.status is None or entry is None or not self._may_act():
            return
        patch = difference(entry.status, plan.status)
        if not patch:
            return
        about = {"k8s.namespace.name": ref.namespace, "toolcrib.kind": ref.kind, "toolcrib.name": ref.name}
        with tracing.span("status write", about):
            answer = await self._writer.write_status(
                ref, resource_version=entry.resource_version, status=patch
            )
        self.counts.statuses += 1
        self._world.wrote(ref, entry.uid, answer.resource_version, status=answer.status)
        self._planner.wrote(ref, entry.status, plan.status, self._clock())
        for condition in transitions(entry.status, plan.status):
            _say(ref, entry.generation, condition)
        for condition in self._kinds[ref.kind].announced(entry.status, plan.status):
            self._events.transition(ref, entry.uid, condition)


def _say(ref: Ref, generation: int, condition: Mapping[str, Any]) -> None:
    """A condition that is not as people want it is worth a line; the others are told at debug."""
    good = condition["status"] == ("False" if condition["type"] in BAD else "True")
    log.log(
        logging.DEBUG if good or condition["type"] in QUIET else logging.INFO, "%s=%s", condition["type"], condition["status"],
        extra=logs.about_object(
            ref.kind, ref.key, generation=generation, reason=condition["reason"],
            told=condition["message"][:300],
        ),
    )  # fmt: skip
