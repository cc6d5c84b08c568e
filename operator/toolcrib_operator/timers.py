"""Waiting for an event or a time, and how long to wait after failures."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def wait(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds` (None: for ever). Returns whether it is set."""
    if event.is_set():
        return True
    if seconds is not None and seconds <= 0:
        return False
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_any(events: Iterable[asyncio.Event], seconds: float | None = None) -> None:
    """Wait for one of `events`, at most `seconds` (None: for ever)."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def passed_on(first: asyncio.Event, *others: asyncio.Event) -> None:
    """Set the others once the first is: who waits for one of them need not wait for both."""
    await first.wait()
    for each in others:
        each.set()


async def paced(items: Sequence[T], *, most: int = 100, seconds: float = 0.02) -> AsyncIterator[Sequence[T]]:
    """`items` in parts, with a turn for others on the loop after each: renewals and heartbeats go on meanwhile.

    The parts grow to `most` items, and shrink where working on one took longer than `seconds`: a tool may be large.
    """
    start, size = 0, 10
    while start < len(items):
        began = time.thread_time()
        yield items[start : start + size]
        start += size
        took = time.thread_time() - began
        if took > seconds:
            size = max(1, int(size * seconds / took))
        elif took < seconds / 4:
            size = min(most, 2 * size)
        await asyncio.sleep(0)


class Backoff:
    """Doubling waits with jitter: between half of the nominal wait and all of it, so that crowds spread out."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high
        self.failures = 0

    def reset(self) -> None:
        """The last attempt went well."""
        self.failures = 0

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        return pause(self._low, self._high, self.failures - 1)


def pause(low: float, high: float, failures: int) -> float:
    """How long to wait after one more failure than so many; see `Backoff`."""
    nominal: float = min(high, low * 2 ** min(failures, 20))
    return nominal * (0.5 + random.random() / 2)  # noqa: S311
