"""Counters by the library `limits` and a semaphore of leases; where both keep their numbers is the caller's choice.

Windows move: never more than the limit in any 60 seconds (24 hours). A slot is taken first and given back if a window
is full; the day's window is looked at before the minute's is charged, so that what is refused is not counted. (Two
replicas that take a day's last call at once may count the loser on the minute, when the day is full anyway.)
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from limits import RateLimitItem, RateLimitItemPerDay, RateLimitItemPerMinute
from limits.aio.strategies import MovingWindowRateLimiter

from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.limits.counters import Charge, CountersUnavailable, Limit, Shortage

CONCURRENT_SECONDS = 1
"""When to ask again for a slot: nobody knows when a call ends."""
_RETURN_TRIES = 30
_RETURN_SECONDS = 1.0
"""A slot that is in doubt is given back beside the calls, again and again; at last its lease ends by itself."""


class Slots(Protocol):
    """A semaphore whose permits are leases: one that nobody gives back ends by itself."""

    async def take(self, account: str, slot: str, most: int, lease: float) -> bool:
        """Whether `slot` is taken, for `lease` seconds at most. Repeating it changes nothing."""
        ...

    async def free(self, account: str, most: int) -> bool:
        """Whether one of `most` slots is free."""
        ...

    async def give_back(self, account: str, slot: str) -> None:
        """Free it, taken or not."""
        ...


class _Minute(RateLimitItemPerMinute):
    """The key is without the amount: an edited limit goes on with what was counted."""

    def key_for(self, *identifiers: bytes | str | int | float) -> str:
        return f"{identifiers[0]!s}/minute"


class _Day(RateLimitItemPerDay):
    def key_for(self, *identifiers: bytes | str | int | float) -> str:
        return f"{identifiers[0]!s}/day"


class WindowCounters:
    """Implements `ports.Counters`.

    Args:
        windows: limits' moving window on some storage.
        slots: the semaphore.
        now: the clock of that storage, in seconds.
    """

    def __init__(self, windows: MovingWindowRateLimiter, slots: Slots, now: Callable[[], float]) -> None:
        self._windows = windows
        self._slots = slots
        self._now = now
        self._returning: set[asyncio.Task[None]] = set()
        self._later: set[asyncio.Task[None]] = set()

    async def charge(self, account: str, limits: PublishedLimits, *, lease: float) -> Charge | Shortage:
        """Count one call, all of it or nothing."""
        slot = None
        if limits.concurrent is not None:
            slot = secrets.token_hex(8)
            try:
                if not await self._slots.take(account, slot, limits.concurrent, lease):
                    return _FULL
            except BaseException:
                # it may have been taken, even after this: a connection that broke can be read to its end later
                _kept(self._later, self._try_again(account, slot))
                raise
        try:
            short = await self._hit(account, limits)
        except BaseException:
            if slot is not None:
                self._give_back(account, slot)
            raise
        if short is None:
            return Charge(account, slot)
        if slot is not None:
            await asyncio.shield(self._give_back(account, slot))
        return short

    async def room(self, account: str, limits: PublishedLimits) -> Shortage | None:
        """None if one call more would be counted now."""
        if limits.concurrent is not None and not await self._slots.free(account, limits.concurrent):
            return _FULL
        for limit, item in _items(limits):
            if (short := await self._shortage(limit, item, account)) is not None:
                return short
        return None

    async def release(self, charges: Sequence[Charge]) -> None:
        """Free their slots; goes on by itself if the caller is cancelled meanwhile, never raises else."""
        tasks = [self._give_back(c.account, c.slot) for c in charges if c.slot is not None]
        if tasks:
            await asyncio.shield(asyncio.gather(*tasks))

    async def aclose(self) -> None:
        """Wait for slots that are being given back."""
        while self._returning:
            await asyncio.wait(self._returning)
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)

    async def _hit(self, account: str, limits: PublishedLimits) -> Shortage | None:
        items = _items(limits)
        if len(items) > 1:
            limit, item = items[-1]
            if (short := await self._shortage(limit, item, account)) is not None:
                return short
        for limit, item in items:
            if not await self._windows.hit(item, account):
                # the window may have moved on meanwhile
                return await self._shortage(limit, item, account) or Shortage(limit, 1)
        return None

    async def _shortage(self, limit: Limit, item: RateLimitItem, account: str) -> Shortage | None:
        """None where the window has room for one call more."""
        room_at, room = await self._windows.get_window_stats(item, account)
        if room >= 1:
            return None
        wait = math.ceil(room_at - self._now())
        # a clock that was set back must not send anybody away for hours
        return Shortage(limit, min(max(1, wait), item.get_expiry() + 1))

    def _give_back(self, account: str, slot: str) -> asyncio.Task[None]:
        return _kept(self._returning, self._returned(account, slot))

    async def _returned(self, account: str, slot: str) -> None:
        try:
            await self._slots.give_back(account, slot)
        except CountersUnavailable:
            _kept(self._later, self._try_again(account, slot))

    async def _try_again(self, account: str, slot: str) -> None:
        for _ in range(_RETURN_TRIES):
            await asyncio.sleep(_RETURN_SECONDS)
            with contextlib.suppress(CountersUnavailable):
                await self._slots.give_back(account, slot)
                return


_FULL = Shortage(Limit.CONCURRENT, CONCURRENT_SECONDS)


def _kept(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _items(limits: PublishedLimits) -> list[tuple[Limit, RateLimitItem]]:
    """The windows to be charged, the shorter first."""
    found: list[tuple[Limit, RateLimitItem]] = []
    if limits.per_minute is not None:
        found.append((Limit.PER_MINUTE, _Minute(limits.per_minute)))
    if limits.per_day is not None:
        found.append((Limit.PER_DAY, _Day(limits.per_day)))
    return found
