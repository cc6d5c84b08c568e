"""Waiting in an event loop until something holds. In a thread: `realparts.processes.wait_until`."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def until(
    holds: Callable[[], Any], seconds: float = 60.0, what: str = "", *, interval: float = 0.01
) -> Any:
    """Poll until `holds()`, or what it returns to be awaited, is true, and return it; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    over = False
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert not over, what or "did not come true"
        await asyncio.sleep(interval)
        over = time.monotonic() > deadline  # looked at once more: this process may have got no time
