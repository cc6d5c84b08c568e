"""Sessions, streams, progress, requests of servers, and calls that are given up."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_upstream import OWN, Sessions, Wire, handshake, serving, stateless
from toolcrib.schemas import header_marks
from toolcrib_registry.outbound.errors import TimedOut
from toolcrib_registry.upstream import header_fields
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import RefusedByRpc, RefusedByStatus
from toolcrib_registry.upstream.servers import Asking, Question

pytestmark = pytest.mark.anyio
CALL = Question("tools/call", {"name": "read", "arguments": {"path": "a"}})


async def test_a_lost_session_is_begun_again_once_for_all_calls_that_lost_it(client: McpClient) -> None:
    sessions = Sessions()
    async with serving(handshake(sessions)) as up:
        await client.ask(up.server(), Asking(), CALL)
        sessions.live.clear()
        await asyncio.gather(*(client.ask(up.server(), Asking(), CALL) for _ in range(4)))

    assert sessions.made == 2
    assert len(up.of("server/discover")) == 1, "the era is known"


async def test_a_session_that_is_never_known_costs_one_retry(client: McpClient) -> None:
    sessions = Sessions()

    async def forgets(wire: Wire) -> None:
        await wire.error(-32600, "Session not found", 404)

    up = handshake(sessions)
    up.on["tools/call"] = forgets
    async with serving(up):
        with pytest.raises(RefusedByRpc):
            await client.ask(up.server(), Asking(), CALL)

    assert (sessions.made, len(up.of("tools/call"))) == (2, 2)


async def test_without_sessions_a_404_is_not_a_lost_one(client: McpClient) -> None:
    async def gone(wire: Wire) -> None:
        await wire.status(404)

    async with serving(handshake(Sessions(named=False), tools_call=gone)) as up:
        with pytest.raises(RefusedByStatus):
            await client.ask(up.server(), Asking(), CALL)

    assert len(up.of("tools/call")) == 2, "asked again which era it is of"


async def test_the_session_ends_with_the_client(client: McpClient) -> None:
    async with serving(handshake()) as up:
        await client.ask(up.server(), Asking(), CALL)
        await client.close()

        assert [w.request.headers["mcp-session-id"] for w in up.of("DELETE")] == ["session-1"]


async def test_a_stream_is_read_up_to_its_answer(client: McpClient) -> None:
    heard: list[Mapping[str, Any]] = []

    async def streams(wire: Wire) -> None:
        token = wire.message["params"]["_meta"]["progressToken"]
        await wire.stream()
        await wire.raw(b": a comment\n\nid: 7\nretry: 10\ndata:\n\n")
        for progress in (1, 2):
            params = {"progressToken": token, "progress": progress, "total": 2}
            await wire.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        params = {"progressToken": "another's", "progress": 9}
        await wire.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await wire.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
        await wire.answer(content=[])
        await asyncio.Event().wait()

    async def hear(params: Mapping[str, Any]) -> None:
        heard.append(params)

    question = Question("tools/call", {"name": "read"}, progress=hear)
    for up in (stateless(tools_call=streams), handshake(tools_call=streams)):
        heard.clear()
        async with serving(up):
            result = await client.ask(up.server(), Asking(), question)

            assert result.fields == {"content": []}
            assert [params["progress"] for params in heard] == [1, 2]


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "made/up"])
async def test_what_a_server_asks_of_us_is_unsupported_and_the_call_goes_on(
    client: McpClient, method: str
) -> None:
    up = handshake()

    async def asks(wire: Wire) -> None:
        await wire.stream()
        await wire.event({"jsonrpc": "2.0", "id": "q-1", "method": method, "params": {}})
        await up.arrived("response")
        await wire.event({"jsonrpc": "2.0", "id": 9, "method": "ping"})
        await up.arrived("response", 2)
        await wire.answer(content=[{"type": "text", "text": "went on"}])

    up.on["tools/call"] = asks
    async with serving(up):
        result = await client.ask(up.server(), Asking(), CALL)

    assert result.fields["content"] == [{"type": "text", "text": "went on"}]
    refused, pong = (wire.message for wire in up.of("response"))
    assert (refused["id"], refused["error"]["code"]) == ("q-1", -32601)
    assert "unsupported" in refused["error"]["message"]
    assert (pong["id"], pong["result"]) == (9, {})
    assert up.of("response")[0].request.headers["mcp-session-id"] == "session-1"


async def test_a_cancelled_call_is_cancelled_there(client: McpClient) -> None:
    async def hangs(_: Wire) -> None:
        await asyncio.Event().wait()

    for up in (stateless(tools_call=hangs), handshake(tools_call=hangs)):
        async with serving(up):
            call = asyncio.create_task(client.ask(up.server(), Asking(), CALL))
            await up.arrived("tools/call")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(10):
                await up.closed.wait()
            if up.of("initialize"):
                await up.arrived("notifications/cancelled")
                told = up.of("notifications/cancelled")[0].message["params"]
                assert told["requestId"] == up.of("tools/call")[0].message["id"]


async def test_a_call_that_is_too_slow_is_cancelled_there_too(client: McpClient) -> None:
    async def hangs(_: Wire) -> None:
        await asyncio.Event().wait()

    async with serving(handshake(tools_call=hangs)) as up:
        with pytest.raises(TimedOut):
            await client.ask(up.server(), Asking(0.5), CALL)
        await up.arrived("notifications/cancelled")


async def test_each_request_is_signed_by_itself(client: McpClient) -> None:
    signed: list[tuple[str, bytes | None]] = []

    def sign(method: str, body: bytes | None) -> Mapping[str, str]:
        signed.append((method, body))
        return {"authorization": f"Bearer {len(signed)}"}

    async with serving(handshake()) as up:
        await client.ask(up.server(), Asking(sign=sign, request_id="r-1"), CALL)
        await client.close()

    assert [w.request.headers["authorization"] for w in up.wires] == [f"Bearer {n}" for n in range(1, 6)]
    assert signed == [(w.request.method, w.request.body or None) for w in up.wires]
    assert up.of("tools/call")[0].request.headers["x-request-id"] == "r-1"


async def test_arguments_are_repeated_in_header_fields_in_the_stateless_era_alone(client: McpClient) -> None:
    schema = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    mirrors = header_marks.marks(schema)
    assert mirrors is not None
    arguments = {"region": "größe"}
    fields = header_fields.fields_of(mirrors, arguments)
    question = Question("tools/call", {"name": "lesen ", "arguments": arguments}, fields=fields)
    async with serving(stateless()) as up:
        await client.ask(up.server(), Asking(), question)

        headers = up.of("tools/call")[0].request.headers
        assert headers["mcp-param-region"] == "=?base64?Z3LDtsOfZQ==?="
        assert headers["mcp-name"] == "=?base64?bGVzZW4g?="
    async with serving(handshake()) as up:
        await client.ask(up.server(), Asking(), question)

        assert not [h for h in up.of("tools/call")[0].request.headers if h.startswith("mcp-param")]


async def test_the_callers_meta_and_capabilities_go_along(client: McpClient) -> None:
    question = Question(
        "tools/call", {"name": "read"}, {"traceparent": "00-1"}, capabilities={"elicitation": {}}
    )
    async with serving(stateless()) as up:
        await client.ask(up.server(), Asking(), question)

        meta = up.of("tools/call")[0].message["params"]["_meta"]
        assert (meta["traceparent"], meta[f"{OWN}clientCapabilities"]) == ("00-1", {"elicitation": {}})
    async with serving(handshake()) as up:
        await client.ask(up.server(), Asking(), question)

        assert up.of("tools/call")[0].message["params"]["_meta"] == {"traceparent": "00-1"}


@pytest.mark.parametrize("era", [stateless, handshake])
async def test_changes_of_the_list_are_heard(client: McpClient, era: Any) -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def notifies(wire: Wire) -> None:
        await wire.stream()
        await wire.raw(b": keep-alive\n\n")
        await wire.event(changed)
        await wire.event(changed)

    up = era(subscriptions_listen=notifies, GET=notifies)
    async with serving(up), client.listen(up.server(), Asking(5)) as notices:
        heard = [notice.method async for notice in notices]

    assert heard == ["notifications/tools/list_changed"] * 2


async def test_a_server_without_notices_says_so(client: McpClient) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.status(405)

    async with serving(handshake(GET=refuses)) as up:
        with pytest.raises(RefusedByStatus) as told:
            async with client.listen(up.server(), Asking(5)):
                pass

    assert told.value.status == 405
