"""What kube-proxy does for a Service, on loopback: new connections go to a replica that is ready, old ones stay."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import httpx

from isolated import pipe

LOOK_SECONDS = 0.05


class ServiceProxy:
    """Forwards TCP connections to `targets`; `counts` says how many each one got."""

    def __init__(self, targets: Sequence[tuple[int, str]], lag: float) -> None:
        self.port = 0
        self.counts = {port: 0 for port, _ in targets}
        self._targets = targets
        self._lag = lag
        self._ready = {port for port, _ in targets}
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        looks = [asyncio.create_task(self._look(port, url)) for port, url in self._targets]
        started.set()
        await stop.wait()
        server.close()
        for task in (*looks, *self._tasks):
            task.cancel()
        await asyncio.gather(*looks, *self._tasks, return_exceptions=True)

    async def _look(self, port: int, url: str) -> None:
        # this loop shares its process with the threads that send requests: a probe may take seconds, and one that is given
        # up says nothing of a drain
        async with httpx.AsyncClient(timeout=5, verify=False) as client:
            while True:
                try:
                    ready = (await client.get(url, headers={"connection": "close"})).status_code == 200
                except httpx.TimeoutException:
                    continue  # a busy machine: one missed probe makes no replica unready
                except httpx.HTTPError:
                    ready = False
                if not ready and port in self._ready:
                    # a cluster takes its time to tell every node
                    await asyncio.sleep(self._lag)
                    self._ready.discard(port)
                elif ready:
                    self._ready.add(port)
                await asyncio.sleep(LOOK_SECONDS)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = sorted(self._ready)
        if not ready:
            writer.close()
            return
        port = ready[next(self._turn) % len(ready)]
        self.counts[port] += 1
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        for work in (pipe(reader, other_writer), pipe(other_reader, writer)):
            self._start(work)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.contextmanager
def service(targets: Sequence[tuple[int, str]], *, lag: float = 0.3) -> Iterator[ServiceProxy]:
    """A proxy over replicas (port, URL of its readiness); one that is not ready gets no new connection after `lag`
    seconds."""
    proxy = ServiceProxy(targets, lag)
    loop, started = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.run(started, stop)), daemon=True)
    thread.start()
    try:
        assert started.wait(10)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


Work = Callable[[], None]


@contextlib.contextmanager
def load(*workers: Work) -> Iterator[list[str]]:
    """Run each of `workers` again and again in a thread of its own until the block ends; yields what failed."""
    failures: list[str] = []
    over = threading.Event()

    def run(work: Work) -> None:
        while not over.is_set():
            try:
                work()
            except Exception as error:
                failures.append(f"{work.__name__}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in workers]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
