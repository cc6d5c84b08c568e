"""What the stdio bridge carries to an endpoint and back, in both eras."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bridge_client import client, handshake
from mcp_bridge import INITIALIZED, initialize, modern, plain
from mcp_stub import Wire, mcp_stub
from waiting import until

pytestmark = pytest.mark.anyio


async def test_the_version_that_was_agreed_on_stands_in_the_headers_of_what_follows() -> None:
    def answer(wire: Wire) -> None:
        handshake(wire) or wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            # without waiting for the first answer, as a script does
            await c.send(initialize(1), INITIALIZED, plain("tools/list", "two"))
            assert (await c.answer("two"))["result"] == {"tools": []}
            await until(lambda: [w for w in stub.asked if w.method == "GET"])

    first, *others = [
        (w.headers.get("mcp-protocol-version"), w.headers.get("mcp-session-id")) for w in stub.asked
    ]
    assert first == (None, None)
    assert set(others) == {("2025-11-25", "session-7")}
    assert {w.headers["authorization"] for w in stub.asked} == {"Bearer t.o.k"}
    assert "text/event-stream" in stub.asked[0].headers["accept"]


@pytest.mark.parametrize("second", [2, 1], ids=["another id", "the same id"])
async def test_what_waits_for_a_handshake_goes_on_when_another_one_began_meanwhile(second: int) -> None:
    go = threading.Event()

    def answer(wire: Wire) -> None:
        if wire.message["method"] == "initialize":
            go.wait(60)
        handshake(wire) or wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(initialize(1), plain("tools/list", 5))
            await until(lambda: stub.asked)
            await c.send(initialize(second))
            await until(lambda: len(stub.asked) == 2)
            go.set()
            assert (await c.answer(5))["result"] == {"tools": []}
            await c.answer(second)
    (listed,) = stub.of("tools/list")
    assert listed.headers["mcp-protocol-version"] == "2025-11-25"


async def test_what_waits_for_a_handshake_goes_on_when_that_is_cancelled_before_it_began() -> None:
    with mcp_stub(lambda wire: wire.result(tools=[])) as stub:
        async with client(stub.url) as c:
            notice = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            await c.send(initialize(1), {"jsonrpc": "2.0", **notice}, plain("tools/list", 5))
            assert (await c.answer(5))["result"] == {"tools": []}
    assert [w.message["id"] for w in stub.asked] == [5]


async def test_a_message_of_the_stateless_era_is_repeated_in_its_headers() -> None:
    with mcp_stub(lambda wire: wire.result(content=[])) as stub:
        async with client(stub.url) as c:
            await c.ask(modern("server/discover", 1))
            await c.ask(modern("tools/call", 2, name="grüße ", arguments={}))

    discover, call = (w.headers for w in stub.asked)
    assert discover["mcp-protocol-version"] == call["mcp-protocol-version"] == "2026-07-28"
    assert (discover["mcp-method"], call["mcp-method"]) == ("server/discover", "tools/call")
    assert "mcp-name" not in discover
    assert call["mcp-name"] == "=?base64?Z3LDvMOfZSA=?="
    assert stub.asked[1].message["params"]["name"] == "grüße "


def marked(wire: Wire) -> None:
    """An endpoint with one tool, of which a header repeats two arguments."""
    if wire.message["method"] == "tools/list":
        inner = {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}}
        region = {"type": "string", "x-mcp-header": "Region"}
        schema = {"type": "object", "properties": {"region": region, "more": inner}}
        wire.result(tools=[{"name": "deploy", "inputSchema": schema}])
    elif "mcp-param-region" in wire.headers:
        wire.result(content=[], headers=[wire.headers["mcp-param-region"], wire.headers["mcp-param-on"]])
    else:
        error = {"code": -32020, "message": "Mcp-Param-Region is missing"}
        wire.answer({"jsonrpc": "2.0", "id": wire.message["id"], "error": error}, 400)


@pytest.mark.parametrize("listed", [True, False], ids=["listed before", "never listed"])
async def test_arguments_that_a_schema_marks_are_repeated_in_headers(listed: bool) -> None:
    call = modern("tools/call", 2, name="deploy", arguments={"region": "eu-1", "more": {"on": True}})
    with mcp_stub(marked) as stub:
        async with client(stub.url) as c:
            if listed:
                await c.ask(modern("tools/list", 1))
            assert (await c.ask(call))["result"]["headers"] == ["eu-1", "true"]
            assert [m["id"] for m in c.received] == ([1, 2] if listed else [2])

    assert len(stub.of("tools/call")) == (1 if listed else 2)


async def test_marks_are_learned_from_all_pages_of_the_list() -> None:
    def answer(wire: Wire) -> None:
        if wire.message["method"] == "tools/list" and wire.message["params"].get("cursor") != "page 3":
            number = int(wire.message["params"].get("cursor", "page 1")[-1])
            wire.result(tools=[{"name": f"tool-{number}"}], nextCursor=f"page {number + 1}")
        else:
            marked(wire)

    call = modern("tools/call", 1, name="deploy", arguments={"region": "eu-1", "more": {"on": False}})
    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            assert (await c.ask(call))["result"]["headers"] == ["eu-1", "false"]
    pages = [w.message["params"].get("cursor") for w in stub.of("tools/list")]
    assert pages == [None, "page 2", "page 3"]


async def test_a_stream_that_answers_and_falls_silent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.session.CALL_SECONDS", 0.2)
    over = threading.Event()

    def answer(wire: Wire) -> None:
        wire.stream()
        over.wait(60)

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(plain("tools/list", 1))
            await until(lambda: c.lines, seconds=20)  # sooner than the time for the begin of an answer
            over.set()
    assert c.received[0]["error"]["data"]["code"] == "connection_lost"
    assert len(stub.asked) == 1


async def test_requests_run_side_by_side() -> None:
    second_answered = threading.Event()

    def answer(wire: Wire) -> None:
        if wire.message["params"]["name"] == "slow":
            second_answered.wait(30)
        wire.result(content=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(plain("tools/call", 1, name="slow"), plain("tools/call", 2, name="quick"))
            await c.answer(2)
            second_answered.set()
            await c.answer(1)
            assert [m["id"] for m in c.received] == [2, 1]


@pytest.mark.parametrize("era", [plain, modern])
async def test_a_cancelled_request_is_closed_upstream_and_never_answered(
    era: Callable[..., dict[str, Any]],
) -> None:
    closed = threading.Event()

    def answer(wire: Wire) -> None:
        if wire.message.get("method") == "tools/call" and wire.gone():
            closed.set()
        elif wire.message["method"] == "tools/list":
            wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(era("tools/call", 1, name="slow"))
            await until(lambda: stub.asked)
            # the text "1" is another id
            for number in ("1", 1):
                notice = {"method": "notifications/cancelled", "params": {"requestId": number}}
                await c.send({"jsonrpc": "2.0", **notice})
            await asyncio.to_thread(closed.wait, 30)
            await c.ask(era("tools/list", 2))
            assert [m["id"] for m in c.received] == [2]
    assert closed.is_set()
    assert stub.of("notifications/cancelled") == []


async def test_a_stream_that_answers_a_request_is_passed_on_message_by_message() -> None:
    progress = {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 1},
    }

    def answer(wire: Wire) -> None:
        wire.stream()
        wire.event(progress)
        wire.event({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.ask(plain("tools/call", 1, name="x"))
            assert c.received == [progress, {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]


async def test_a_stream_that_breaks_off_is_an_error_and_the_call_is_not_repeated() -> None:
    with mcp_stub(lambda wire: wire.stream()) as stub:
        async with client(stub.url, patience=5) as c:
            answer = await c.ask(plain("tools/call", 1, name="x"))
    assert answer["error"]["data"]["code"] == "connection_lost"
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (b"junk", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b'"text"', None, -32600),
        (b"[]", None, -32600),
        (b'{"jsonrpc": "1.0", "id": 3, "method": "ping"}', 3, -32600),
        (b'{"jsonrpc": "2.0", "id": 3}', 3, -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None, -32600),
        (b"[" * 100_000, None, -32700),
    ],
)
async def test_a_line_that_is_no_message_is_answered_and_goes_nowhere(
    line: bytes, number: Any, code: int
) -> None:
    with mcp_stub(lambda wire: wire.result()) as stub:
        async with client(stub.url) as c:
            await c.send(line, plain("ping", "after"))
            await c.answer("after")
            error = c.received[0]
    assert (error["id"], error["error"]["code"]) == (number, code)
    assert len(stub.asked) == 1


async def test_a_batch_is_carried_as_one() -> None:
    def answer(wire: Wire) -> None:
        body = [{"jsonrpc": "2.0", "id": m["id"], "result": {}} for m in wire.message]
        wire.answer(json.dumps(body).encode())

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(json.dumps([plain("ping", 1), plain("ping", 2)]).encode())
            await until(lambda: c.lines)
            assert [m["id"] for m in c.received[0]] == [1, 2]
    assert len(stub.asked) == 1


async def test_an_answer_becomes_one_line_and_nothing_else_of_it_changes() -> None:
    result = '{\n "jsonrpc": "2.0",\r\n "id": 1, "result": {"a": 1e400, "b": 12345678901234567890, "c": "\u2028\\n"}}\n'
    with mcp_stub(lambda wire: wire.answer(result.encode())) as stub:
        async with client(stub.url) as c:
            await c.ask(plain("ping", 1))
            assert b'"a": 1e400, "b": 12345678901234567890, "c": "\\u2028\\n"' in c.lines[0]


async def test_a_refusal_is_an_error_with_the_problems_detail_and_a_hint() -> None:
    problem = {"code": "rate_limited", "detail": "60 calls a minute are granted.", "status": 429}

    def answer(wire: Wire) -> None:
        wire.answer(problem, 429, content_type="application/problem+json", retry_after="7")

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            error = (await c.ask(plain("tools/list", 1)))["error"]
    assert error["code"] == -32000
    assert error["message"] == "rate_limited: 60 calls a minute are granted. Hint: retry in 7 s"
    assert error["data"] == {"status": 429, "code": "rate_limited", "hint": "retry in 7 s"}


@pytest.mark.parametrize("status", [400, 404])
async def test_an_error_of_the_protocol_arrives_as_it_is_whatever_its_status(status: int) -> None:
    error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"]}}

    def answer(wire: Wire) -> None:
        wire.answer({"jsonrpc": "2.0", "id": None, "error": error}, status)

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            assert await c.ask(modern("tools/list", 1)) == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"jsonrpc": "2.0", "id": 9, "result": {}}'])
async def test_what_answers_and_is_no_mcp_server_is_an_error(body: bytes) -> None:
    with mcp_stub(lambda wire: wire.answer(body)) as stub:
        async with client(stub.url) as c:
            error = (await c.ask(plain("tools/list", 1)))["error"]
    assert error["message"] == "the URL does not look like an MCP server. Hint: check --url"


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    with mcp_stub(lambda wire: wire.answer(b"", 307, location="http://127.0.0.1:9/")) as stub:
        async with client(stub.url) as c:
            assert (await c.ask(plain("tools/list", 1)))["error"]["data"]["status"] == 307
    assert len(stub.asked) == 1


# --------------------------------------------------------------------------------------------- away and back


async def test_an_id_that_is_used_again_belongs_to_the_later_request() -> None:
    closed = threading.Event()

    def answer(wire: Wire) -> None:
        if wire.message["method"] == "tools/call" and wire.gone():
            closed.set()
        else:
            wire.result(tools=[])

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(plain("tools/call", 1, name="slow"))
            await until(lambda: stub.asked)
            assert (await c.ask(plain("tools/list", 1)))["result"] == {"tools": []}
            assert await asyncio.to_thread(closed.wait, 30)
            assert len(c.lines) == 1


async def test_more_requests_at_once_than_any_client_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_cli.bridge.session._MOST", 2)
    go = threading.Event()

    def answer(wire: Wire) -> None:
        go.wait(30)
        wire.result()

    with mcp_stub(answer) as stub:
        async with client(stub.url) as c:
            await c.send(*(plain("ping", number) for number in range(3)))
            assert (await c.answer(2))["error"]["message"] == "more than 2 messages at once"
            go.set()
            assert "result" in await c.answer(0)
            assert "result" in await c.answer(1)


# ----------------------------------------------------------------------------------------------------- tokens
