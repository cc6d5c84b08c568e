"""Waiting for an event or a time, and how long to wait after failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable


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


async def wait_any(events: Iterable[asyncio.Event], seconds: float) -> None:
    """Wait for one of `events`, at most `seconds`."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


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
        nominal: float = min(self._high, self._low * 2 ** min(self.failures, 20))
        self.failures += 1
        return nominal * (0.5 + random.random() / 2)  # noqa: S311
