"""What the stdio bridge does where the registry is away, breaks off, or refuses its token."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from bridge_client import client
from mcp_bridge import VERSION_KEY, initialize, modern, plain
from mcp_stub import Wire, mcp_stub
from toolcrib_cli.bridge.identity import Minted
from waiting import until

pytestmark = pytest.mark.anyio


async def test_a_registry_that_comes_back_in_time_answers() -> None:
    told: list[str] = []
    with mcp_stub(lambda wire: wire.result(tools=[])) as stub:
        port = int(stub.url.rpartition(":")[2])
    async with client(stub.url, patience=30, tell=told.append) as c:
        await c.send(plain("tools/list", 1), plain("tools/call", 2, name="x"))
        await until(lambda: told)
        with mcp_stub(lambda wire: wire.result(tools=[]), port) as again:
            await c.answer(1)
            await c.answer(2)
    assert len(again.asked) == 2
    assert told == [told[0], "the registry answers again"]
    assert "cannot reach a registry at" in told[0]


async def test_a_registry_that_stays_away_is_an_error_for_each_request() -> None:
    with mcp_stub(lambda wire: wire.result()) as stub:
        pass
    async with client(stub.url) as c:
        for number in (1, 2):
            error = (await c.ask(plain("tools/list", number)))["error"]
            assert error["data"]["code"] == "unreachable"
            assert "toolcrib up" in error["message"]


async def test_a_call_whose_connection_breaks_is_not_sent_again_and_a_list_is() -> None:
    def answer(wire: Wire) -> None:
        if wire.message["method"] == "tools/call" or len(stub.of("tools/list")) == 1:
            wire.cut()
        else:
            wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url, patience=30) as c:
            error = (await c.ask(plain("tools/call", 1, name="x")))["error"]
            assert "may have been executed" in error["message"]
            assert (await c.ask(plain("tools/list", 2)))["result"] == {"tools": []}
    assert len(stub.of("tools/call")) == 1
    assert len(stub.of("tools/list")) == 2


async def test_a_gateway_without_a_registry_behind_it_is_waited_for_unless_a_tool_is_called() -> None:
    def answer(wire: Wire) -> None:
        if len(stub.asked) < 3:
            wire.answer(b"no backend", 503)
        else:
            wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url, patience=30) as c:
            error = (await c.ask(plain("tools/call", 1, name="x")))["error"]
            assert error["data"]["status"] == 503
            assert (await c.ask(plain("tools/list", 2)))["result"] == {"tools": []}
    assert [w.message["id"] for w in stub.asked] == [1, 2, 2]


def accepts(token: str) -> Callable[[Wire], None]:
    def answer(wire: Wire) -> None:
        if wire.headers["authorization"] == f"Bearer {token}":
            wire.result(content=[])
        else:
            wire.answer({"code": "invalid_token", "detail": "The token has expired."}, 401)

    return answer


async def test_a_token_that_is_refused_is_replaced_and_the_call_sent_once_more() -> None:
    made = iter(["first", "second"])
    with mcp_stub(accepts("second")) as stub:
        async with client(stub.url, Minted(lambda ttl: next(made))) as c:
            assert "result" in await c.ask(plain("tools/call", 1, name="x"))
    assert len(stub.asked) == 2


async def test_a_refused_token_without_another_one_is_the_registrys_answer() -> None:
    with mcp_stub(accepts("other")) as stub:
        async with client(stub.url) as c:
            error = (await c.ask(plain("tools/call", 1, name="x")))["error"]
    assert (
        error["message"]
        == "invalid_token: The token has expired. Hint: get a new token; in the local mode: `toolcrib token NAME`"
    )
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("message", "header"),
    [
        (
            modern("tools/list", 1) | {"params": {"_meta": {VERSION_KEY: "x" * 1_000_000}}},
            "MCP-Protocol-Version",
        ),
        (modern("tools/call", 1, name="ü" * 20_000), "Mcp-Name"),
        (modern("x" * 60_000, 1), "Mcp-Method"),
    ],
)
async def test_what_no_registry_would_read_in_a_header_is_answered_at_once(
    message: dict[str, Any], header: str
) -> None:
    with mcp_stub(lambda wire: wire.result()) as stub:
        async with client(stub.url, patience=30) as c:
            error = (await c.ask(message))["error"]
    assert error["code"] == -32602
    assert error["message"].endswith(f"headers have more than 49152 bytes, most of them {header}")
    assert stub.asked == []


async def test_a_large_message_at_which_the_registry_hangs_up_is_not_sent_again() -> None:
    """A registry says 413 and reads no further: the rest cannot be sent, and what it said is often lost."""

    def answer(wire: Wire) -> None:
        wire.cut() if len(stub.asked) == 1 else wire.result()

    with mcp_stub(answer) as stub:
        async with client(stub.url, patience=30) as c:
            error = (await c.ask(initialize(1, "x" * 1_048_576)))["error"]
            assert "result" in await c.ask(initialize(2, "x" * 1_000_000))
    assert "broke while a message of 10487" in error["message"]
    assert "Hint: shorten the message: a registry takes 1048576 bytes unless" in error["message"]
    assert "cannot reach" not in error["message"]
    assert [w.message["id"] for w in stub.asked] == [1, 2]


async def test_no_proxy_of_the_environment_sees_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with mcp_stub(lambda wire: wire.result()) as stub, mcp_stub(lambda wire: wire.result()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with client(stub.url) as c:
            assert "result" in await c.ask(plain("ping", 1))
    assert (len(stub.asked), proxy.asked) == (1, [])


async def test_an_answer_that_is_larger_than_any_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.upstream._LARGEST", 100_000)

    def answer(wire: Wire) -> None:
        wire.result(text="x" * (100_000 if wire.message["id"] == 1 else 90_000))

    with mcp_stub(answer) as stub:
        async with client(stub.url, patience=30) as c:
            error = (await c.ask(plain("tools/list", 1)))["error"]
            assert "result" in await c.ask(plain("tools/list", 2))
    assert (error["data"]["code"], len(stub.asked)) == ("answer_too_large", 2)


@pytest.mark.parametrize("end", [b"", b"\n\n"], ids=["without an end", "with one"])
async def test_an_event_that_is_larger_than_any_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.upstream._LARGEST", 100_000)
    over = threading.Event()

    def answer(wire: Wire) -> None:
        wire.stream()
        for _ in range(20):  # small ones count each by itself
            wire.event(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"text": "x" * 10_000}}
            )
        wire.write(b"data: " + b"x" * 200_000 + end)
        over.wait(60)

    with mcp_stub(answer) as stub:
        async with client(stub.url, patience=30) as c:
            await c.send(plain("tools/list", 1))
            await until(lambda: any("error" in m for m in c.received), seconds=20)
            over.set()
    *passed_on, last = c.received
    assert (len(passed_on), last["error"]["data"]["code"]) == (20, "answer_too_large")
