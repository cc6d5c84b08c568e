"""Counters in the memory of one replica: they start at zero with it, and two replicas count apart."""

from __future__ import annotations

import logging
import math
import secrets
from array import array
from bisect import bisect_left
from collections.abc import Callable

from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.limits.counters import Charge, Demand, Groups, Limit, Shortage
from toolcrib_registry.limits.selection import select

log = logging.getLogger(__name__)
_SWEEP_SECONDS = 60.0
_CUT = 1024
"""Entries that are over before the rest is moved up."""


class MemoryCounters:
    """Implements `limits.counters.Counters`; always there. Used from one event loop only.

    Args:
        now: seconds that never jump.
        several: there are replicas that count apart from this one; said when a limit is first counted.
    """

    def __init__(self, now: Callable[[], float], *, several: bool = False) -> None:
        self._now = now
        self._to_say = several
        self._windows: dict[tuple[str, Limit], _Window] = {}
        self._slots: dict[str, dict[str, float]] = {}
        self._swept = now()

    async def charge(self, groups: Groups, *, lease: float) -> Charge | Shortage:
        """Count one call on one account of each group, on all or on none."""
        if self._to_say:
            self._to_say = False
            log.warning(
                "limits are counted per replica (counters.kind memory): N replicas admit N times the limit; counters.kind "
                "redis makes them count together"
            )
        now = self._now()
        self._sweep(now)
        chosen = select(groups, lambda demand: self._short(demand, now))
        if isinstance(chosen, Shortage):
            return chosen
        charged = {
            d.account: d.limits for d in (g[p] for g, p in zip(groups, chosen, strict=True)) if d.limits
        }
        slot = secrets.token_hex(8)
        for account, limits in charged.items():
            for limit, _, seconds in _windows_of(limits):
                self._windows.setdefault((account, limit), _Window(seconds)).times.append(now)
            if limits.concurrent is not None:
                self._slots.setdefault(account, {})[slot] = now + lease
        bounding = tuple(account for account, limits in charged.items() if limits.concurrent is not None)
        return Charge(chosen, bounding, slot)

    async def release(self, charge: Charge) -> None:
        """Free its slot."""
        for account in charge.accounts:
            held = self._slots.get(account, {})
            held.pop(charge.slot, None)
            if not held:
                self._slots.pop(account, None)

    async def healthy(self) -> None:
        """Memory is always there."""

    async def aclose(self) -> None:
        """Nothing is held."""

    def _short(self, demand: Demand, now: float) -> Shortage | None:
        limits = demand.limits
        assert limits is not None
        if limits.concurrent is not None:
            held = self._slots.get(demand.account, {})
            for slot in [s for s, until in held.items() if until <= now]:
                del held[slot]
            if len(held) >= limits.concurrent:
                return Shortage(Limit.CONCURRENT, 1)
        for limit, most, seconds in _windows_of(limits):
            window = self._windows.get((demand.account, limit))
            if window is not None and window.inside(now) >= most:
                return Shortage(limit, max(1, math.ceil(window.times[-most] + seconds - now)))
        return None

    def _sweep(self, now: float) -> None:
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        for key in [k for k, w in self._windows.items() if not w.inside(now)]:
            del self._windows[key]


class _Window:
    """When calls were counted, oldest first: eight bytes each."""

    __slots__ = ("over", "seconds", "times")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times = array("d")
        self.over = 0
        """How many at the front are out of the window."""

    def inside(self, now: float) -> int:
        """How many calls are in the window that ends at `now`."""
        self.over = bisect_left(self.times, now - self.seconds, self.over)
        if self.over >= _CUT and self.over * 2 >= len(self.times):
            del self.times[: self.over]
            self.over = 0
        return len(self.times) - self.over


def _windows_of(limits: PublishedLimits) -> list[tuple[Limit, int, float]]:
    """(limit, how many, seconds), the longer first: where both are full, it is that one that takes longer."""
    both = ((Limit.PER_DAY, limits.per_day, 86_400.0), (Limit.PER_MINUTE, limits.per_minute, 60.0))
    return [(limit, most, seconds) for limit, most, seconds in both if most is not None]
