"""Counters in the memory of one replica: they begin anew when it does, and two replicas count apart.

`limits` brings a storage for that, too, but its moving window walks through all keys at each call (74 ms of CPU with
1,000 accounts) and follows the wall clock wherever that is set; so the window is our own (docs/decisions/0030).
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable

from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.adapters.counters.windows import WindowCounters
from toolcrib_registry.limits.counters import Charge, Shortage

log = logging.getLogger(__name__)
_SWEEP_SECONDS = 60.0
_CUT = 1024
"""Entries that are over before the rest is moved up."""


class MemoryCounters(WindowCounters):
    """Implements `ports.Counters`; always there.

    Args:
        now: seconds that never jump.
        several: there are replicas that count apart from this one; said when a limit is first counted.
    """

    def __init__(self, now: Callable[[], float], *, several: bool = False) -> None:
        self._slots_held = MemorySlots(now)
        super().__init__(MovingWindowRateLimiter(MemoryWindows(now)), self._slots_held, now)
        self._to_say = several

    async def charge(self, account: str, limits: PublishedLimits, *, lease: float) -> Charge | Shortage:
        """Count one call, all of it or nothing."""
        if self._to_say:
            self._to_say = False
            log.warning(
                "each replica counts limits apart (counters.kind memory): together they admit as many times as much as "
                "there are replicas; counters.kind redis makes them count together"
            )
        return await super().charge(account, limits, lease=lease)

    async def healthy(self) -> None:
        """Memory is always there."""


class _Window:
    """When calls were counted, oldest first: eight bytes each."""

    __slots__ = ("expiry", "over", "times")

    def __init__(self, expiry: float) -> None:
        self.expiry = expiry
        self.times = array("d")
        self.over = 0
        """How many at the front are out of the window."""

    def inside(self, now: float) -> int:
        """How many calls are in the window that ends at `now`."""
        self.over = bisect_left(self.times, now - self.expiry, self.over)
        if self.over >= _CUT and self.over * 2 >= len(self.times):
            del self.times[: self.over]
            self.over = 0
        return len(self.times) - self.over


class MemoryWindows(MemoryStorage):
    """Moving windows for `limits`, exact and by a clock that is given."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._windows: dict[str, _Window] = {}
        self._swept = now()

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count `amount` more, if that makes at most `limit` in the window."""
        now = self._now()
        self._sweep(now)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(expiry)
        if window.inside(now) + amount > limit:
            return False
        window.times.extend([now] * amount)
        return True

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the call was counted that must leave for the next to have room, and how many are in the window."""
        now, window = self._now(), self._windows.get(key)
        if window is None or not (count := window.inside(now)):
            return now, 0
        return window.times[-min(limit, count)], min(limit, count)

    def _sweep(self, now: float) -> None:
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        for key in [k for k, w in self._windows.items() if not w.inside(now)]:
            del self._windows[key]


class MemorySlots:
    """The semaphore in memory. All callers are of this process, so a lease ends only where a call outlives it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._held: dict[str, dict[str, float]] = {}

    async def take(self, account: str, slot: str, most: int, lease: float) -> bool:
        """Whether `slot` is taken."""
        if not await self.free(account, most):
            return False
        self._held.setdefault(account, {})[slot] = self._now() + lease
        return True

    async def free(self, account: str, most: int) -> bool:
        """Whether one of `most` slots is free."""
        held, now = self._held.get(account, {}), self._now()
        for slot in [s for s, until in held.items() if until <= now]:
            del held[slot]
        return len(held) < most

    async def give_back(self, account: str, slot: str) -> None:
        """Free it, taken or not."""
        held = self._held.get(account)
        if held is not None:
            held.pop(slot, None)
            if not held:
                del self._held[account]
