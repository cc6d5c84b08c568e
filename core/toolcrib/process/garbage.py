"""Keeps garbage collections short in a process that holds much: what stays is frozen and not visited again.

A full collection of CPython visits every container, on the thread that answers: 80 ms and more with 2,651 tools.
Frozen objects are not visited. They are still freed when nothing refers to them any more, as almost all objects are;
only garbage in cycles needs a collection. So that such garbage does not pile up among the frozen objects, everything
is thawed, collected and frozen again (a pass) once their number has grown by `GROWTH`, in a quiet moment.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from toolcrib.telemetry import logs

log = logging.getLogger(__name__)

THRESHOLDS = (5_000, 20, 50)
"""New containers before the youngest are visited (Python: 700), and how often before older ones are (10 and 10)."""
LARGE = 100
"""Tools, bindings or entries of the index that make a step a growth."""
LONG = 0.001
"""Seconds: an automatic collection that takes longer has met what stays, and what is left after it is frozen.

That of the middle generation is the first to meet it, after 100,000 new containers; a full one, after 5,000,000, took a second."""
GROWTH = 0.5
"""Share by which frozen objects may grow before a pass: as much of them may be garbage, plus `FLOOR`."""
FLOOR = 100_000
"""Objects that may be frozen in any case: about 10 MB."""
LOOK = 1.0
"""Seconds between two looks whether a pass is due."""
QUIET = 0.25
"""Share of a look that the loop's thread may have worked in a quiet moment."""
PATIENCE = 30.0
"""Seconds that a pass waits for a quiet moment."""


@dataclass(slots=True)
class Heap:
    """What is frozen in this process. Outside `kept_short` and `settled` nothing ever is."""

    active: bool = False
    kept: int = 0
    """Frozen objects after the last pass."""
    passes: int = 0
    pass_seconds: float = 0.0
    """All passes together; the process stands still meanwhile."""
    passing: bool = False
    """A pass is being made."""
    _counted: int = 0
    """Frozen objects when they were counted last: a million takes 30 ms, so that it is done seldom."""
    _added: int = 0
    """Objects frozen since then, those included that are gone again."""
    _started: float = 0.0

    @asynccontextmanager
    async def kept_short(self) -> AsyncIterator[None]:
        """`settled`, with the passes that growth makes due; on the loop that answers."""
        with self.settled():
            following = asyncio.create_task(self._follow(), name="garbage")
            try:
                yield
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Freeze everything there is, and what long collections leave, until the block ends. One block at a time."""
        before = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        self.make_pass()
        gc.callbacks.append(self._note)
        self.active = True
        try:
            yield
        finally:
            self.active = False
            gc.callbacks.remove(self._note)
            gc.set_threshold(*before)
            gc.unfreeze()

    def grown(self, count: int) -> None:
        """Freeze everything if `count` things that stay were made (at least `LARGE`); counts what is not frozen yet."""
        if self.active and count >= LARGE:
            self._freeze()

    def due(self) -> bool:
        """Whether so much may be frozen that a pass has to look for garbage in it."""
        return self._counted + self._added > self.kept * (1 + GROWTH) + FLOOR

    def make_pass(self) -> None:
        """Look for garbage in everything, and freeze what is left; only count where too few objects are there for that."""
        if self.active:
            self._counted, self._added = gc.get_freeze_count(), 0
            if not self.due():
                return
        began = time.perf_counter()
        self.passing = True
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self.passing = False
        seconds = time.perf_counter() - began
        self.passes += 1
        self.pass_seconds += seconds
        self.kept = self._counted = gc.get_freeze_count()
        self._added = 0
        fields = logs.about(gc_ms=round(seconds * 1000), objects=self.kept, garbage=found)
        log.debug("full garbage collection", extra=fields)

    async def _follow(self) -> None:
        while True:
            used = time.thread_time()
            await asyncio.sleep(LOOK)
            if not self.due():
                continue
            waited = 0.0
            while time.thread_time() - used > QUIET * LOOK and waited < PATIENCE:
                used = time.thread_time()
                await asyncio.sleep(LOOK)
                waited += LOOK
            self.make_pass()

    def _freeze(self) -> None:
        self._added += len(gc.get_objects())
        gc.freeze()

    def _note(self, phase: Literal["start", "stop"], info: Mapping[str, int]) -> None:
        """Of `gc.callbacks`. The youngest are left out: what is in the making would be frozen with its garbage."""
        if info["generation"] < 1:
            return
        if phase == "start":
            self._started = time.perf_counter()
        elif time.perf_counter() - self._started > LONG:
            self._freeze()


heap = Heap()
"""That of this process."""
