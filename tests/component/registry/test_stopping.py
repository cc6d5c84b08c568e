"""What happens to requests that take longer than a stop waits for them."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib_registry.http import connections, serving

pytestmark = pytest.mark.anyio


async def test_requests_cut_off_are_told_so_and_all_listeners_share_the_time_to_finish(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        asked.put_nowait(None)
        await asyncio.Event().wait()

    ports: list[int] = []
    up, stop = asyncio.Event(), asyncio.Event()

    def ready(found: Sequence[int]) -> None:
        ports.extend(found)
        up.set()

    stopped = serving.serve(
        [serving.Listener(endless, "127.0.0.1", 0) for _ in range(2)],
        stopping=lambda: None,
        ready=ready,
        stop=stop,
        signals=False,
        finish_seconds=4,
    )
    async with asyncio.timeout(60), httpx.AsyncClient(timeout=60) as client, asyncio.TaskGroup() as group:
        served = group.create_task(stopped)
        await up.wait()
        read = group.create_task(client.get(f"http://127.0.0.1:{ports[0]}/"))
        call = group.create_task(client.post(f"http://127.0.0.1:{ports[1]}/tools/x", json={}))
        await asked.get()
        await asked.get()
        began = time.monotonic()
        stop.set()
        await served
        took = time.monotonic() - began
        answers = [await read, await call]

    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "shutting_down"
    assert [a.headers.get("retry-after") for a in answers] == ["1", None], "a call may have been made"
    assert "Traceback" not in caplog.text
    # the second listener has a second for its good-byes
    assert took < 7.8, "two listeners, each with four seconds of its own, would take eight"


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = [(b"content-length", b"2")]


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp,
    stop: asyncio.Event,
    drain_seconds: float,
    draining: Callable[[], None] = lambda: None,
) -> AsyncIterator[int]:
    """A listener on its port until the block ends; `stop` asks it to stop earlier."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(
            serving.serve(
                [serving.Listener(app, "127.0.0.1", 0)],
                stopping=lambda: None,
                draining=draining,
                ready=lambda ports: found.set_result(ports[0]),
                stop=stop,
                signals=False,
                drain_seconds=drain_seconds,
            )
        )
        yield await found
        stop.set()


async def test_a_connection_whose_answer_had_begun_before_the_drain_serves_one_more_request_and_then_says_close() -> (
    None
):
    begun, finish, stop, draining = (asyncio.Event() for _ in range(4))

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": ANSWER})
        begun.set()
        await finish.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    async with served(slow, stop, drain_seconds=2, draining=draining.set) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await begun.wait()
        first = await reader.readuntil(b"\r\n\r\n")
        stop.set()
        await draining.wait()
        finish.set()
        assert await reader.readexactly(2) == b"ok"
        writer.write(REQUEST)
        second = await reader.read()
        writer.close()

    assert b"connection: close" not in first
    assert second.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in second
    assert second.endswith(b"ok")


def received(client: socket.socket) -> bytes:
    """One answer, or what came of it before the connection ended."""
    found = b""
    while not found.endswith(b"ok") and (piece := client.recv(4096)):
        found += piece
    return found


async def test_a_request_that_arrives_when_the_connections_are_closed_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server sees it only after it has decided to close the idle connection."""

    async def quick(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": ANSWER})
        await send({"type": "http.response.body", "body": b"ok"})

    stop = asyncio.Event()
    async with served(quick, stop, drain_seconds=0) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            loop = asyncio.get_running_loop()
            client.sendall(REQUEST)
            assert (await loop.run_in_executor(None, received, client)).endswith(b"ok")
            closed = connections.Acceptor.close

            def close(self: connections.Acceptor) -> None:
                client.sendall(REQUEST)  # this thread is the server's: it reads nothing before it goes on
                closed(self)

            monkeypatch.setattr(connections.Acceptor, "close", close)
            stop.set()
            answer = await loop.run_in_executor(None, received, client)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
