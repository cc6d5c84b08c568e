"""The clock that decisions are taken by: real in the product, moved by hand in tests."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts a suspended machine's time too: the policy of a laptop that slept is old."""

LOOK_SECONDS = 2.0
"""A wall clock that is set forward is noticed within this time."""


class Clock(Protocol):
    """The time that decisions are taken by."""

    def now(self) -> float:
        """Seconds since the epoch; may jump, also back. For dates that others wrote: tokens' and grants'."""
        ...

    def elapsed(self) -> float:
        """Seconds since some moment; never jumps. For ages."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Return at `moment` or later; infinity never comes."""
        ...


def whole_milliseconds(moment: float) -> float:
    """`moment` as records have it. What is decided at such a moment can be decided again from its record."""
    return math.floor(moment * 1000) / 1000


class SystemClock:
    """The machine's clock."""

    # each call asks ten times: a function of the interpreter's own needs no frame
    now = staticmethod(time.time)

    def elapsed(self) -> float:
        """Seconds since some moment, time asleep included; no change of the wall clock moves it."""
        return time.clock_gettime(_SINCE_BOOT)

    async def sleep_until(self, moment: float) -> None:
        """Return at `moment` or later; never, for infinity. The clock may be set meanwhile."""
        while (left := moment - self.now()) > 0:  # noqa: ASYNC110 - it is time that is waited for
            await asyncio.sleep(min(left, LOOK_SECONDS))
