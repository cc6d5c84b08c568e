"""Work that is put off for a few milliseconds and done together.

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
        lock: held while `take` is called. Callers of `add` and `flush` must hold it. None: there is one thread.
    """

    def __init__(
        self, take: Callable[[list[T]], None], lock: AbstractContextManager[object] | None = None
    ) -> None:
        self._take, self._lock = take, lock or nullcontext()
        self._items: list[T] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that has a timer for the next flush."""

    def add(self, item: T) -> None:
        """Collect an item."""
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
        """Give all collected items to `take` now."""
        if self._items:
            items, self._items = self._items, []
            self._take(items)

    def _due(self) -> None:
        self._loop = None
        with self._lock:
            self.flush()
