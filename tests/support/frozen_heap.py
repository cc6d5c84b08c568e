"""How many objects a piece of work freezes (`toolcrib.process.heap`), automatic collections aside."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

from toolcrib import process


async def frozen_by(work: Callable[[], Awaitable[Any]]) -> int:
    """Wait for `work` as a process that serves would: the objects that it froze."""
    try:
        with process.heap.settled():
            gc.disable()  # a long collection freezes too
            try:
                before = gc.get_freeze_count()
                await work()
                return max(0, gc.get_freeze_count() - before)
            finally:
                gc.enable()
    finally:
        gc.freeze()  # as the suite's `conftest` did: the end of a block thaws everything
