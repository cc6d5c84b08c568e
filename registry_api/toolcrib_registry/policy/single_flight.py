"""Work of many milliseconds, off the event loop: one piece at a time, and once for all who want the same.

One at a time, since threads share the processor with the loop: with several of them it would get its turn too seldom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class SingleFlight:
    """Used from one event loop only."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def once(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives, or whatever is under way under `key`; who gives up waiting ends it for nobody."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._in_turn(work))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    def has(self, key: Hashable) -> bool:
        """Whether something is under way, or waits, under `key`."""
        return key in self._running

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            return await work()
