"""Probes backends while the operator asks for it: a connection is opened and closed, nothing is sent.

    asked ──► backends of the snapshot ──► places, each due once in `every` ──► at most 16 connections at once
      ▲                                                                                │
      └────────── report: the last result of each, and whether it came twice ◄─────────┘

New places are spread over at most one interval, and each later probe waits a little longer than the interval, so that
places drift apart. A place that several backends share is dialled once.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from toolcrib.snapshot import Snapshot
from toolcrib.wire.probes import BackendProbe, BackendReport, ProbeOutcome, ProbeRequest
from toolcrib_registry.clock import Clock
from toolcrib_registry.outbound.messages import Toucher
from toolcrib_registry.probing.places import Backend, Place, Where, backends

log = logging.getLogger(__name__)

AT_ONCE = 16
SECONDS = 5.0
"""How long a connection may take, its name's lookup and the TLS handshake included."""
SPREAD = 0.05
"""Seconds between the first probes of places that become known together."""
JITTER = 0.1
"""Share of the interval by which a probe may be late."""
LOOK = 1.0
"""Seconds between looks at the snapshot."""


@dataclass(slots=True, eq=False)
class _Probed:
    """What is known of one place. `due` is of the monotonic clock, `at` seconds since the epoch."""

    place: Place
    backend: Backend
    due: float
    outcome: ProbeOutcome | None = None
    settled: bool = False
    reached: bool | None = None
    """What the last settled result said."""
    at: float | None = None
    seconds: float | None = None
    freed: bool = False
    """The guard refused it until now: its first result counts."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def took(self, outcome: ProbeOutcome, at: float, seconds: float) -> None:
        """One more result. It is settled if it came twice in a row, or if it, or the one before, was the guard's.

        Two failures in a row settle that a place cannot be reached, whichever they are; then only the same one twice
        changes what is said of it.
        """
        before = self.outcome
        guards = self.freed if before is None else not before.dialled
        failed = ProbeOutcome.CONNECTED not in (outcome, before) and before is not None
        self.settled = outcome is before or not outcome.dialled or guards or (failed and self.reached is True)
        if self.settled:
            self.reached = outcome is ProbeOutcome.CONNECTED
        self.outcome, self.at, self.seconds = outcome, at, seconds


class Prober:
    """Probes from `asked` on, for as long as that says.

    Args:
        snapshot: what is published now.
        where: where calls of a backend go, by the guard.
        rules: what `where` goes by, another object after each change.
        toucher: opens and closes connections, through the guard.
        clock: of the registry.
        observe: told each outcome and the seconds that it took.
        dice: from 0 to 1.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        where: Where,
        toucher: Toucher,
        clock: Clock,
        *,
        rules: Callable[[], object] = lambda: None,
        observe: Callable[[ProbeOutcome, float], None] = lambda outcome, seconds: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._snapshot, self._where, self._toucher = snapshot, where, toucher
        self._clock, self._rules, self._observe, self._dice = clock, rules, observe, dice
        self._until, self._every = 0.0, 60.0
        self._wake = asyncio.Event()
        self._clear()

    def _clear(self) -> None:
        self._seen: tuple[Snapshot, object] | None = None
        self._look_due = 0.0
        self._backends: dict[str, Backend] = {}
        self._left_out = 0
        self._places: dict[Place, _Probed] = {}
        self._heap: list[tuple[float, Place]] = []
        self._running = 0

    @property
    def probing(self) -> bool:
        """Whether the operator has asked for it, and its time is not over."""
        return self._clock.elapsed() < self._until

    def asked(self, request: ProbeRequest) -> BackendReport:
        """Go on for the time that is asked for; what is known."""
        now = self._clock.elapsed()
        self._until = now + request.seconds
        if request.every < self._every:
            for probed in self._places.values():
                probed.due = min(probed.due, now + request.every)
                heapq.heappush(self._heap, (probed.due, probed.place))
        self._every = request.every
        self._wake.set()
        return self.report()

    def report(self) -> BackendReport:
        """What is known, of this moment's backends."""
        rows = tuple(self._row(backend) for _, backend in sorted(self._backends.items()))
        looked = self._seen is not None
        return BackendReport(probing=self.probing, looked=looked, backends=rows, left_out=self._left_out)

    def counts(self) -> Counter[ProbeOutcome]:
        """Backends by their last outcome; none while this replica does not probe. May be asked from any thread."""
        found: Counter[ProbeOutcome] = Counter()
        for backend in list(self._backends.values()):
            known = None if (place := backend.place) is None else self._places.get(place)
            outcome = backend.verdict if known is None else known.outcome
            if outcome is not None:
                found[outcome] += 1
        return found

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                self._wake.clear()
                if not self.probing:
                    await self._forget()
                    await self._wake.wait()
                    continue
                pause = LOOK
                try:
                    await self._look()
                    pause = self._begin()
                except Exception:
                    log.exception("backends cannot be probed")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK, pause)):
                        await self._wake.wait()
        finally:
            await self._forget()

    async def _look(self) -> None:
        """Take up what is published and let through now, and let go of what is not any more."""
        snapshot, rules, now = self._snapshot(), self._rules(), self._clock.elapsed()
        seen = self._seen
        if now < self._look_due or (seen is not None and seen[0] is snapshot and seen[1] is rules):
            return
        self._look_due = now + LOOK
        tools = snapshot.tools
        # thousands of tools: off the event loop
        found, left_out = await asyncio.to_thread(lambda: backends(list(tools.values()), self._where))
        refused = {key for key, backend in self._backends.items() if backend.target is None}
        self._seen, self._backends, self._left_out = (snapshot, rules), found, left_out
        wanted = {place: backend for backend in found.values() if (place := backend.place) is not None}
        await _cancelled([self._places.pop(place) for place in self._places.keys() - wanted.keys()])
        new = sorted(wanted.keys() - self._places.keys())
        spread = min(self._every, SPREAD * len(new))
        for place in new:
            backend = wanted[place]
            due = now + spread * self._dice()
            self._places[place] = _Probed(place, backend, due, freed=backend.key in refused)
            heapq.heappush(self._heap, (due, place))

    def _begin(self) -> float:
        """Start what is due and has room; seconds until the next is due."""
        now = self._clock.elapsed()
        while self._heap:
            due, place = self._heap[0]
            probed = self._places.get(place)
            if probed is None or probed.due != due or probed.task is not None:
                heapq.heappop(self._heap)
                continue
            if due > now:
                return due - now
            if self._running >= AT_ONCE:
                break  # the end of a probe wakes this up
            heapq.heappop(self._heap)
            self._running += 1
            probed.task = asyncio.create_task(self._probe(probed))
        return LOOK

    async def _probe(self, probed: _Probed) -> None:
        began, backend = self._clock.elapsed(), probed.backend
        probed.due = began + self._every * (1 + JITTER * self._dice())
        assert backend.target is not None
        outcome = ProbeOutcome.UNREACHABLE
        try:
            outcome = await self._toucher.touch(backend.target, seconds=SECONDS, owner=backend.owner)
        except Exception:
            log.exception("a probe failed")
        finally:
            self._running -= 1
            probed.task = None
        seconds = self._clock.elapsed() - began
        probed.took(outcome, self._clock.now(), seconds)
        self._observe(outcome, seconds)
        heapq.heappush(self._heap, (probed.due, probed.place))
        self._wake.set()

    async def _forget(self) -> None:
        """Another replica probes from now on, or none: nothing of what was found is told any more."""
        await _cancelled(self._places.values())
        self._clear()

    def _row(self, backend: Backend) -> BackendProbe:
        place = backend.place
        if place is None:
            named = backend.key.partition("://")[2]
            return BackendProbe(
                backend=backend.key, place=named, tools=backend.tools, outcome=backend.verdict, settled=True
            )
        host, port = place[:2]
        known = self._places.get(place)
        return BackendProbe(
            backend=backend.key,
            place=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            tools=backend.tools,
            outcome=known and known.outcome,
            settled=known is not None and known.settled,
            probed_at=known and known.at,
            seconds=known and known.seconds,
        )


async def _cancelled(probes: Iterable[_Probed]) -> None:
    tasks = [one.task for one in probes if one.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
