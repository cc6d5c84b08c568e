"""Serves a registry's listeners on loopback ports of its own, on a loop that runs elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from toolcrib_registry.compose import Registry
from toolcrib_registry.http import serving


@contextlib.contextmanager
def served(apps: Sequence[Any], registry: Registry, loop: asyncio.AbstractEventLoop) -> Iterator[list[str]]:
    """The URLs, until the block ends."""
    started = threading.Event()
    ports: list[int] = []
    stop = asyncio.Event()

    def ready(found: Sequence[int]) -> None:
        ports.extend(found)
        started.set()

    done = asyncio.run_coroutine_threadsafe(
        serving.serve(
            [
                serving.Listener(app, "127.0.0.1", 0, door=registry.door(name))
                for app, name in zip(apps, ("agents", "metrics", "admin"), strict=False)
            ],
            stopping=registry.deps.state.close,
            ready=ready,
            stop=stop,
            signals=False,
        ),
        loop,
    )
    if not started.wait(timeout=60):
        done.result(timeout=1)
        raise TimeoutError("the registry did not start")
    try:
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        loop.call_soon_threadsafe(stop.set)
        done.result(timeout=60)
