"""A backend that holds calls until it is told to answer them, and an agent that makes very many calls at one time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

HELD = "/slow"
PER_PEER = 200
"""Calls from one address of loopback."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BODY = b'{"ok":true}'
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY
)


class HoldingBackend:
    """Answers `HELD` when told to, everything else at once. `came` counts requests by path, `held` those that wait."""

    def __init__(self) -> None:
        self.port = 0
        self.came: Counter[str] = Counter()
        self.waiting: list[asyncio.Transport] = []
        self.open: set[asyncio.Transport] = set()
        self.loop: _Loop | None = None

    @property
    def held(self) -> int:
        """Requests that wait for their answer."""
        return sum(not transport.is_closing() for transport in self.waiting)

    def answer(self, newest: int | None = None) -> None:
        """Answer all that wait, or the newest so many."""
        assert self.loop is not None
        self.loop.call(lambda: self._answer(newest))

    def _answer(self, newest: int | None) -> None:
        at = 0 if newest is None else -newest
        for transport in self.waiting[at:]:
            if not transport.is_closing():
                transport.write(_ANSWER)
        del self.waiting[at:]


class _Connection(asyncio.Protocol):
    def __init__(self, backend: HoldingBackend) -> None:
        self._backend, self._data = backend, b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._backend.open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._backend.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(self._data, 0, end + 2)
        if len(self._data) < end + 4 + (int(found[1]) if found else 0):
            return
        path = self._data.split(b" ", 2)[1].decode()
        self._data = b""
        self._backend.came[path] += 1
        if path == HELD:
            self._backend.waiting.append(self._transport)
        else:
            self._transport.write(_ANSWER)


@contextlib.contextmanager
def holding_backend() -> Iterator[HoldingBackend]:
    """A backend on loopback, in a thread of its own."""
    backend = HoldingBackend()

    async def serve() -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(backend), "127.0.0.1", 0, backlog=2048
        )
        backend.port = server.sockets[0].getsockname()[1]
        return server

    with _Loop() as loop:
        server, backend.loop = loop.run(serve()), loop
        try:
            yield backend
        finally:
            backend.answer()
            loop.run(_closed(server, backend))


async def _closed(server: asyncio.Server, backend: HoldingBackend) -> None:
    server.close()
    for transport in backend.open:
        transport.close()
    while backend.open:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class Crowd:
    """Calls of one agent, made at one time; `statuses` counts the answers, `bodies` has the first of each status."""

    def __init__(self, port: int, token: str, tool: str, number: int) -> None:
        body = b"{}"
        head = f"POST /tools/{tool} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._port, self._request, self.number = port, head.encode() + body, number
        self.statuses: Counter[int] = Counter()
        self.bodies: dict[int, dict[str, Any]] = {}
        self.headers: dict[int, str] = {}

    async def call_all(self) -> None:
        """Make all calls, and wait for their answers."""
        await asyncio.gather(*(self._call(f"127.0.1.{1 + n // PER_PEER}") for n in range(self.number)))

    async def _call(self, peer: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(peer, 0))
        try:
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status = int(head.split(" ", 2)[1])
            self.statuses[status] += 1
            found = _LENGTH.search(head.encode())
            body = await reader.readexactly(int(found[1]) if found else 0)
            if status not in self.bodies:
                self.bodies[status], self.headers[status] = json.loads(body), head.lower()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.contextmanager
def crowd(port: int, token: str, tool: str, number: int) -> Iterator[Crowd]:
    """A crowd whose calls are being made while the block runs, and have been answered after it."""
    _allow_files(4 * number)
    made = Crowd(port, token, tool, number)
    with _Loop() as loop:
        calls = loop.begin(made.call_all())
        yield made
        calls.result(120)


def _allow_files(number: int) -> None:
    """Let this process, and those that it starts from here on, open so many files, if the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Loop:
    """An event loop in a thread."""

    def __enter__(self) -> _Loop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Its result, to be waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Its result."""
        return self.begin(work).result(60)

    def call(self, what: Any) -> None:
        """Call it in the loop's thread, and wait until it has returned."""

        async def calling() -> None:
            what()

        self.run(calling())
