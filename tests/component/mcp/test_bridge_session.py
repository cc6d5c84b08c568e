"""What the stdio bridge carries to an endpoint and back, in both eras, whatever the endpoint does."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_bridge import INITIALIZED, initialize, modern, plain
from mcp_stub import McpStub, Wire, mcp_stub
from toolcrib_cli.bridge.identity import Minted, Read, Tokens
from toolcrib_cli.bridge.session import Session
from toolcrib_cli.bridge.upstream import Upstream
from waiting import until

pytestmark = pytest.mark.anyio
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Client:
    """The client's side of a session."""

    def __init__(self, session: Session, lines: list[bytes]) -> None:
        self._session = session
        self.lines = lines

    @property
    def received(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    async def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        for message in messages:
            await self._session.take(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def answer(self, number: object) -> Any:
        def found() -> list[Any]:
            return [m for m in self.received if m.get("id") == number and "method" not in m]

        return (await until(found, what=f"no answer to {number!r}"))[0]

    async def ask(self, message: Mapping[str, Any]) -> Any:
        await self.send(message)
        return await self.answer(message["id"])


@asynccontextmanager
async def client(
    url: str,
    tokens: Tokens | None = None,
    *,
    patience: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Client]:
    lines: list[bytes] = []

    async def write(line: bytes) -> None:
        assert b"\n" not in line
        lines.append(line)

    upstream = Upstream(lambda: f"{url}/mcp", tokens or Read(lambda: "t.o.k"), patience=patience, tell=tell)
    session = Session(upstream, write, tell)
    try:
        yield Client(session, lines)
    finally:
        await session.close()
        await upstream.close()


def handshake(wire: Wire) -> bool:
    """Answers what every client of 2025 begins with."""
    if wire.method == "GET":
        wire.answer(b"", 405)
    elif wire.message.get("method") == "initialize":
        answer = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "serverInfo": {"name": "x", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": wire.message["id"], "result": answer}
        wire.answer(body, mcp_session_id="session-7")
    elif "id" not in wire.message:
        wire.answer(b"", 202)
    else:
        return False
    return True


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
    assert error["message"] == "rate_limited: 60 calls a minute are granted. Hint: try again in 7 s"
    assert error["data"] == {"status": 429, "code": "rate_limited", "hint": "try again in 7 s"}


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
    assert error["message"] == "invalid_token: The token has expired. Hint: get another token"
    assert len(stub.asked) == 1


# ---------------------------------------------------------------------------------------------------- changes


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
        method = "notifications/subscriptions/acknowledged"
        wire.event({"jsonrpc": "2.0", "method": method, "params": granted})
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
    assert methods == ["notifications/subscriptions/acknowledged", CHANGED["method"]]
    assert len(stub.asked) == 2


async def test_a_cancelled_subscription_ends() -> None:
    closed = threading.Event()

    def answer(wire: Wire) -> None:
        wire.stream()
        wire.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}})
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
