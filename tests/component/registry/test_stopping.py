"""What happens to requests that take longer than a stop waits for them."""

import asyncio
import time
from collections.abc import Sequence

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from toolcrib_registry.http import serving

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
