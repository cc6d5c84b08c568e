"""Finds what holds an event loop: measures it, samples the stack meanwhile, logs one line, counts.

Held means: a timer of the loop comes more than `LAG` late, and the loop's thread used at least `BUSY` of processor
time meanwhile. While a loop is held, its process answers nobody. A machine that stands still, a throttled container or
another thread that has the interpreter use no time of the loop's thread, so they are no finding.

Names of functions are all that is kept of a stack: no arguments, no values.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal

from toolcrib.process.garbage import heap
from toolcrib.telemetry import logs

log = logging.getLogger(__name__)

LAG = 0.100
"""Seconds that a timer may be late."""
BUSY = 0.080
"""Seconds of the thread's processor time that make a late timer a held loop."""
BEAT = 0.020
"""Seconds between two timers: so much of the measured time may lie before the lag."""
SUSPECT = BEAT + LAG / 2
"""Seconds without a timer after which the stack is sampled."""
SAMPLE = 0.020
"""Seconds between two samples of a stack."""
STILL = 1.0
"""Seconds after which a loop that is still held is logged, and again after ten times as many."""
PLACES = 32
"""How many places are counted by name; the rest as `OTHER`."""
DEPTH = 12
"""How many functions of a stack a line shows: the innermost."""
GC, UNKNOWN, OTHER = "gc", "unknown", "other"
"""Places that are no function: an automatic garbage collection; too short to be sampled; beyond `PLACES`."""
PASS = "toolcrib.process.garbage.Heap.make_pass"
"""A collection over everything: nothing is sampled while it lasts."""


@dataclass(frozen=True, slots=True)
class Held:
    """How often a place has held a loop, and for how many seconds in sum."""

    count: int = 0
    seconds: float = 0.0


class HeldLoops:
    """What held the loops of this process, by place; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, Held] = {}

    def count(self, place: str, seconds: float) -> None:
        """One more."""
        with self._lock:
            if place not in self._places and len(self._places) >= PLACES:
                place = OTHER
            before = self._places.get(place, Held())
            self._places[place] = Held(before.count + 1, before.seconds + seconds)

    def places(self) -> Mapping[str, Held]:
        """Place → how often, how long."""
        with self._lock:
            return dict(self._places)


held_loops = HeldLoops()
"""Those of this process: what `/metrics` shows."""


@contextmanager
def watching(name: str = "main", counts: HeldLoops = held_loops) -> Iterator[None]:
    """Watch the running loop, called `name` in log lines, until the block ends. Enter and leave it on that loop."""
    watch = _Watch(asyncio.get_running_loop(), name, counts)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


@dataclass(slots=True)
class _Watch:
    """One loop: a timer on it, and a thread that samples its stack while the timer is late."""

    loop: asyncio.AbstractEventLoop
    name: str
    counts: HeldLoops
    _ident: int = field(default_factory=threading.get_ident)
    _beaten: float = field(default_factory=time.monotonic)
    _used: float = field(default_factory=time.thread_time)
    _collecting: float = 0.0
    _collected: float = 0.0
    _passed: float = 0.0
    _stacks: list[tuple[str, ...]] = field(default_factory=list)
    _timer: asyncio.TimerHandle | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._timer = self.loop.call_later(BEAT, self._beat)
        gc.callbacks.append(self._note_collection)
        self._thread = threading.Thread(
            target=self._sample, name=f"toolcrib-watchdog-{self.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._note_collection)
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        """On the loop: how late is this, and what did the thread do meanwhile?"""
        now, used = time.monotonic(), time.thread_time()
        lag = now - self._beaten - BEAT
        busy = min(used - self._used, lag)
        stacks, collected = self._stacks, self._collected
        if lag > LAG and busy >= BUSY:
            self._tell(lag, busy, collected, stacks)
            now, used = time.monotonic(), time.thread_time()
        self._stacks, self._collected, self._passed = [], 0.0, 0.0
        self._beaten, self._used = now, used
        self._timer = self.loop.call_later(BEAT, self._beat)

    def _tell(self, lag: float, busy: float, collected: float, stacks: list[tuple[str, ...]]) -> None:
        collection = PASS if self._passed > collected / 2 else GC
        place, stack = (collection, ()) if collected > lag / 2 else _most(stacks)
        self.counts.count(place, lag)
        log.warning(
            "the %s event loop was held for %d ms by %s",
            self.name,
            lag * 1000,
            place,
            extra=logs.about(
                held_ms=round(lag * 1000),
                cpu_ms=round(busy * 1000),
                gc_ms=round(collected * 1000),
                loop=self.name,
                place=place,
                stack=list(stack),
                samples=len(stacks),
            ),
        )

    def _note_collection(self, phase: Literal["start", "stop"], info: Mapping[str, int]) -> None:
        if threading.get_ident() != self._ident:
            return
        if phase == "start":
            self._collecting = time.monotonic()
        else:
            seconds = time.monotonic() - self._collecting
            self._collected += seconds
            self._passed += seconds * heap.passing

    def _sample(self) -> None:
        """On the watchdog's thread."""
        still = STILL
        while True:
            late = time.monotonic() - self._beaten
            if self._stopped.wait(SAMPLE if late >= SUSPECT else SUSPECT - late):
                return
            beaten, late = self._beaten, time.monotonic() - self._beaten
            if late < SUSPECT:
                still = STILL
                continue
            frame = sys._current_frames().get(self._ident)
            if frame is None or beaten != self._beaten:
                continue
            stack = _names(frame)
            del frame  # else it would live on, and all of its variables
            if len(self._stacks) < 1000:
                self._stacks.append(stack)
            if late >= still:
                still *= 10
                self._still(late, stack)

    def _still(self, late: float, stack: tuple[str, ...]) -> None:
        """It may never end: then this is the only line. Not counted: it is when it ends."""
        used = time.clock_gettime(time.pthread_getcpuclockid(self._ident)) - self._used
        if used >= BUSY:
            log.warning(
                "the %s event loop has been held for %.1f s and still is",
                self.name,
                late,
                extra=logs.about(cpu_ms=round(used * 1000), loop=self.name, stack=list(stack)),
            )


def _names(innermost: FrameType) -> tuple[str, ...]:
    """`module.function` of a stack, the innermost first."""
    found: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(found) < 200:
        found.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(found)


def _most(stacks: list[tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    """Where most samples were, and one of their stacks: the innermost function of ours, else a library's name."""
    if not stacks:
        return UNKNOWN, ()
    places = [_place(stack) for stack in stacks]
    place = Counter(places).most_common(1)[0][0]
    stack = stacks[places.index(place)]
    # from a function of another's to the innermost of ours, and on: what ran, and who asked for it
    ours = [name for name in stack if name.startswith("toolcrib")]
    return place, tuple([*([stack[0]] if stack[0] not in ours else []), *ours][:DEPTH])


def _place(stack: tuple[str, ...]) -> str:
    for name in stack:
        if name.startswith("toolcrib"):
            return name
    return stack[0].partition(".")[0]
