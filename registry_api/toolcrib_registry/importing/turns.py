"""Turns for work that few may do at once: work that takes long gives way to waiting work, and starts again later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
GIVES_WAY = 5.0
"""Seconds of a turn while somebody waits: a list of 16 MiB comes in 3 at 45 Mbit/s."""


class Turns:
    """At most `at_once` turns at the same time, given in the order in which they were asked for."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._begun: dict[asyncio.Timeout, float] = {}
        self._waiting = 0

    async def take(self, work: Callable[[float], Awaitable[T]], seconds: float) -> T:
        """What `work` gives, which is told how many of the `seconds` are left that its turns may take together.

        Where others wait it is cancelled after `GIVES_WAY` and called again in its next turn.
        """
        clock, spent = asyncio.get_running_loop().time, 0.0
        while True:
            await self._turn()
            began = clock()
            try:
                async with asyncio.timeout(None) as turn:
                    self._begun[turn] = began
                    self._bound()
                    try:
                        return await work(max(0.0, seconds - spent))
                    finally:
                        del self._begun[turn]
            except TimeoutError:
                if not turn.expired():
                    raise
            finally:
                self._free.release()
            spent += clock() - began

    async def _turn(self) -> None:
        self._waiting += 1
        self._bound()
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
            self._bound()

    def _bound(self) -> None:
        """Turns end in time if somebody waits, and else when their work does."""
        for turn, began in self._begun.items():
            if not turn.expired():
                turn.reschedule(began + GIVES_WAY if self._waiting else None)
