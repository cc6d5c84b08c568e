"""What nobody waits for, put off for a few milliseconds and done together.

Answers go out first, and one write takes many lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

T = TypeVar("T")

TOGETHER = 0.005
"""Seconds for which items are collected."""


class Batch(Generic[T]):
    """Collects items, and gives them to `take` in their order.

    On an event loop that is `TOGETHER` after the first of them, or at `flush`; elsewhere at once.

    Args:
        take: is given them.
        lock: held while it is called; whoever calls `add` or `flush` holds it, too. None: there is one thread.
    """

    def __init__(
        self, take: Callable[[list[T]], None], lock: AbstractContextManager[object] | None = None
    ) -> None:
        self._take, self._lock = take, lock or nullcontext()
        self._items: list[T] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which will flush it."""

    def add(self, item: T) -> None:
        """Take this one, too."""
        self._items.append(item)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if self._loop is not loop:  # one that has ended will not come back for it
            self._loop = loop
            loop.call_later(TOGETHER, self._due)

    def flush(self) -> None:
        """Give on what there is, now."""
        if self._items:
            items, self._items = self._items, []
            self._take(items)

    def _due(self) -> None:
        self._loop = None
        with self._lock:
            self.flush()
