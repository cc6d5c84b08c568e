"""Change notices through the stdio bridge: streams that end are opened again, and a gap counts as a change."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from bridge_client import client, handshake
from mcp_bridge import INITIALIZED, initialize, modern
from mcp_stub import McpStub, Wire, mcp_stub
from waiting import until

pytestmark = pytest.mark.anyio
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def test_the_change_stream_is_opened_again_and_a_gap_is_a_change() -> None:
    def answer(wire: Wire) -> None:
        if wire.method != "GET":
            handshake(wire)
            return
        wire.stream()
        if len([w for w in stub.asked if w.method == "GET"]) == 1:
            wire.event({**CHANGED, "params": {"n": 1}})
        else:
            wire.gone()

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(initialize(1), INITIALIZED)
            await until(lambda: CHANGED in c.received)
            assert [m for m in c.received if "method" in m] == [{**CHANGED, "params": {"n": 1}}, CHANGED]


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["change stream", "subscription"])
async def test_a_stream_that_falls_silent_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.upstream.SILENCE", 0.2)
    over = threading.Event()

    def answer(wire: Wire) -> None:
        if method == "GET" and wire.method != "GET":
            handshake(wire)
            return
        wire.stream()
        if method == "POST":
            granted = {"notifications": {"toolsListChanged": True}}
            wire.event({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": granted})
        over.wait(60)

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            if method == "GET":
                await c.send(initialize(1), INITIALIZED)
            else:
                await c.send(modern("subscriptions/listen", "s", notifications={"toolsListChanged": True}))
            # sooner than any other limit of time would end it
            await until(lambda: [m for m in c.received if m.get("method") == CHANGED["method"]], seconds=20)
            over.set()
    assert len([w for w in stub.asked if w.method == method]) >= 2


async def test_no_change_stream_is_asked_for_twice_where_there_is_none() -> None:
    asked_for = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(wire: Wire) -> None:
        handshake(wire) or wire.result()
        if wire.method == "GET":
            loop.call_soon_threadsafe(asked_for.set)

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(initialize(1), INITIALIZED)
            await asked_for.wait()
            stream = c._session._changes._task
            assert stream is not None
            await asyncio.wait_for(stream, 30)
    assert len([w for w in stub.asked if w.method == "GET"]) == 1


def listening(stub_of: Callable[[], McpStub], ends: bool = False) -> Callable[[Wire], None]:
    """Acknowledges subscriptions; the first stream breaks, the second stays, or ends with its result."""

    def answer(wire: Wire) -> None:
        number = wire.message["id"]
        wire.stream()
        granted = {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION: number}}
        wire.event({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": granted})
        if len(stub_of().asked) == 1:
            return
        if ends:
            wire.event({"jsonrpc": "2.0", "id": number, "result": {"resultType": "complete"}})
        else:
            wire.gone()

    return answer


@pytest.mark.parametrize("ends", [True, False])
async def test_a_subscription_outlives_its_stream_and_a_gap_is_a_change(ends: bool) -> None:
    with mcp_stub(listening(lambda: stub, ends)) as stub:
        async with client(stub.url) as c:
            await c.send(modern("subscriptions/listen", "s", notifications={"toolsListChanged": True}))
            notice = {**CHANGED, "params": {"_meta": {SUBSCRIPTION: "s"}}}
            await until(lambda: notice in c.received)
            if ends:
                await c.answer("s")
            methods = [m["method"] for m in c.received if "method" in m]
    assert methods == [ACKNOWLEDGED, CHANGED["method"]]
    assert len(stub.asked) == 2


async def test_a_cancelled_subscription_ends() -> None:
    closed = threading.Event()

    def answer(wire: Wire) -> None:
        wire.stream()
        wire.event({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": {}})
        if wire.gone():
            closed.set()

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(modern("subscriptions/listen", "s", notifications={}))
            await until(lambda: c.lines)
            notice = {"method": "notifications/cancelled", "params": {"requestId": "s"}}
            await c.send({"jsonrpc": "2.0", **notice})
            assert await asyncio.to_thread(closed.wait, 30)
    assert len(stub.asked) == 1
