"""Tools of MCP servers, called through a registry: over `/v1/call`, `/tools/{name}`, `/mcp` and `/mcp/direct`."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import STATELESS, fields_of, message
from mcp_requests import VERSIONS, ask, call, call_of
from mcp_upstream import OWN, McpUpstream, Wire, handshake, running, stateless
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from scripted_backend import called, events, result
from toolcrib.wire.backends import PublishedBackend, PublishedMcp

BLOCKS = [
    {"type": "text", "text": "größe", "annotations": {"audience": ["user"]}, "_meta": {"example.org/a": 1}},
    {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
    {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    {
        "type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "description": "d", "mimeType": "text/plain",
        "size": 7, "icons": [{"src": "https://a.example/i.png"}],
    },
    {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "b", "_meta": {"c": 2}}},
    {"type": "resource", "resource": {"uri": "file:///c", "blob": "Ynl0ZXM="}},
]  # fmt: skip
STRUCTURED = {"n": 2**70, "x": [1.5, None, "ü"]}
ERAS = {"2026": stateless, "2025": handshake}


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry([tool("ask")], [binding("bot", ("ask:use",))]) as found:
        yield found


@pytest.fixture(params=ERAS.values(), ids=ERAS)
def up(request: pytest.FixtureRequest, registry: RunningRegistry) -> Iterator[McpUpstream]:
    """A server of either era; `ask` is its tool `ask it`."""
    with running(request.param()) as server:
        publish(registry, server)
        yield server


def publish(registry: RunningRegistry, up: McpUpstream, **fields: Any) -> None:
    mcp = PublishedMcp(server="team/files", tool="ask it")
    registry.publish([tool("ask", backend=PublishedBackend(url=up.url, mcp=mcp), **fields)])
    registry.heartbeat()


def answers(up: McpUpstream, **fields: Any) -> None:
    async def answer(wire: Wire) -> None:
        await wire.result(**fields)

    up.on["tools/call"] = answer


def plain(registry: RunningRegistry, arguments: dict[str, Any] | None = None) -> Any:
    answer = registry.http.post(
        f"{registry.url}/v1/call",
        headers=registry.auth("team", "bot"),
        json={"tool": "ask", "arguments": arguments or {}},
    )
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json())


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_a_server_answers_arrives_over_mcp(
    registry: RunningRegistry, up: McpUpstream, path: str, version: str
) -> None:
    answers(
        up,
        content=BLOCKS,
        structuredContent=STRUCTURED,
        _meta={"example.org/cost": 3, f"{OWN}serverInfo": {}},
    )

    found = call(registry, path, "ask", {"q": 1}, version=version)

    assert (found["content"], found["structuredContent"]) == (BLOCKS, STRUCTURED)
    assert "isError" not in found
    assert found["_meta"]["example.org/cost"] == 3
    assert up.of("tools/call")[-1].message["params"]["name"] == "ask it"
    assert up.of("tools/call")[-1].message["params"]["arguments"] == {"q": 1}


def test_all_that_a_server_answers_arrives_over_plain_http(
    registry: RunningRegistry, up: McpUpstream
) -> None:
    def by_name() -> Any:
        return registry.http.post(f"{registry.url}/tools/ask", headers=registry.auth("team", "bot"), json={})

    answers(up, content=BLOCKS, structuredContent=STRUCTURED)
    assert (plain(registry)["result"], plain(registry)["content"]) == (STRUCTURED, BLOCKS)
    assert by_name().json() == STRUCTURED
    answers(up, content=BLOCKS)
    assert (plain(registry)["result"], plain(registry)["content_type"]) == (BLOCKS, "application/json")
    assert by_name().json() == BLOCKS
    answers(up, content=BLOCKS[:1])
    assert (plain(registry)["result"], plain(registry)["content_type"]) == ("größe", "text/plain")
    assert by_name().text == "größe"
    answers(up, content=BLOCKS[1:2])
    assert (plain(registry)["result"], plain(registry)["content_type"]) == ("iVBORw==", "image/png")
    assert by_name().content == b"\x89PNG"
    answers(up, content=[])
    assert plain(registry)["result"] == ""


def test_a_tool_that_fails_says_so_on_every_path(registry: RunningRegistry, up: McpUpstream) -> None:
    answers(up, content=BLOCKS[:1], isError=True)

    found = call(registry, "/mcp/direct", "ask")
    status, problem = plain(registry)

    assert (found["isError"], found["content"]) == (True, BLOCKS[:1])
    assert (status, problem["code"], problem["upstream"]) == (422, "tool_error", "größe")


@pytest.mark.parametrize(
    ("code", "status", "means"),
    [(-32602, 422, "tool_error"), (-32603, 502, "upstream_error"), (-32601, 502, "upstream_protocol"), (-1, 422, "tool_error")],
)  # fmt: skip
def test_an_error_of_json_rpc_is_a_typed_failure_that_says_what_the_server_said(
    registry: RunningRegistry, up: McpUpstream, code: int, status: int, means: str
) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.error(code, "no such page", data={"page": 7})

    up.on["tools/call"] = refuses

    found = call(registry, "/mcp/direct", "ask")
    assert found["isError"] is True
    assert found["_meta"]["toolcrib.dev/code"] == means
    assert "no such page" in found["content"][0]["text"]
    got, problem = plain(registry)
    assert (got, problem["code"]) == (status, means)
    assert problem["upstream"] == {"code": code, "message": "no such page", "data": {"page": 7}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
def test_a_capability_that_the_server_misses_is_named_to_a_client_that_could_declare_it(
    registry: RunningRegistry, up: McpUpstream, path: str, version: str
) -> None:
    required = {"requiredCapabilities": {"elicitation": {"form": {}}}}

    async def refuses(wire: Wire) -> None:
        await wire.error(-32021, "I need a form", status=400, data=required)

    up.on["tools/call"] = refuses
    answer = ask(
        registry,
        path,
        "tools/call",
        call_of(path, "ask" if path == "/mcp/direct" else "team/ask"),
        version=version,
    )

    if version == STATELESS:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32021)
        assert answer.json()["error"]["data"] == required
    else:
        assert answer.json()["result"]["isError"] is True
        assert "elicitation" in answer.json()["result"]["content"][0]["text"]
    got, problem = plain(registry)
    assert (got, problem["code"], problem["upstream"]["data"]) == (422, "tool_error", required)


@pytest.mark.parametrize(
    "data",
    [None, {}, {"requiredCapabilities": {}}, {"requiredCapabilities": {"root access": {}}},
     {"requiredCapabilities": {"sampling": "x" * 2_000}}],
    ids=["nothing", "no member", "none", "one that is none", "too many words"],
)  # fmt: skip
def test_a_server_that_names_no_capability_is_told_as_any_refusal(
    registry: RunningRegistry, up: McpUpstream, data: Any
) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.error(-32021, "no", data=data)

    up.on["tools/call"] = refuses

    assert call(registry, "/mcp/direct", "ask")["isError"] is True


def test_the_callers_token_goes_to_no_server(registry: RunningRegistry, up: McpUpstream) -> None:
    answers(up, content=[])
    token = registry.auth("team", "bot")["Authorization"].removeprefix("Bearer ")

    result(called(registry))

    for wire in up.wires:
        assert "authorization" not in wire.request.headers
        assert token not in str(wire.request)


def test_a_server_behind_a_service_learns_who_calls(registry: RunningRegistry, up: McpUpstream) -> None:
    answers(up, content=[])
    mcp = PublishedMcp(server="team/files", tool="ask it")
    registry.publish([tool("ask", backend=PublishedBackend(url=up.url, mcp=mcp, assertion=True))])

    result(called(registry))

    assertions = [w.request.headers["toolcrib-assertion"] for w in up.wires if w.request.method == "POST"]
    assert len(set(assertions)) == len(assertions) >= 2, "each request has one of its own"


def test_what_a_tool_asks_is_relayed_and_answered(registry: RunningRegistry) -> None:
    asks = {"who": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}}
    given = {"who": {"action": "accept", "content": {"name": "Ada"}}}

    async def tool_that_asks(wire: Wire) -> None:
        if "inputResponses" in wire.message["params"]:
            await wire.result(resultType="complete", content=[{"type": "text", "text": "Ada"}])
        else:
            await wire.result(resultType="input_required", inputRequests=asks, requestState="step 1")

    with running(stateless(tools_call=tool_that_asks)) as up:
        publish(registry, up)
        asked = result(called(registry, capabilities={"elicitation": {}}))
        assert (asked["resultType"], asked["inputRequests"]) == ("input_required", asks)
        assert "step 1" not in asked["requestState"], "sealed"
        done = result(
            called(
                registry,
                capabilities={"elicitation": {}},
                inputResponses=given,
                requestState=asked["requestState"],
            )
        )
        first, second = (wire.message["params"] for wire in up.of("tools/call"))
        status, problem = plain(registry)

    assert done["content"] == [{"type": "text", "text": "Ada"}]
    assert first["_meta"][f"{OWN}clientCapabilities"] == {"elicitation": {}}
    assert (second["requestState"], second["inputResponses"]) == ("step 1", given)
    assert (status, problem["code"]) == (422, "input_required")


def test_progress_reaches_a_client_that_asks(registry: RunningRegistry, up: McpUpstream) -> None:
    async def progresses(wire: Wire) -> None:
        token = wire.message["params"]["_meta"]["progressToken"]
        await wire.stream()
        params = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        await wire.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await wire.answer(content=[])

    up.on["tools/call"] = progresses

    first, last = events(called(registry, meta={"progressToken": "mine"}))

    assert first["params"] == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}
    assert last["result"]["content"] == []


def test_a_client_that_goes_away_ends_the_call_at_its_server(
    registry: RunningRegistry, up: McpUpstream
) -> None:
    async def hangs(_: Wire) -> None:
        await asyncio.Event().wait()

    up.on["tools/call"] = hangs
    body = message("tools/call", {"name": "ask", "arguments": {}}, STATELESS)
    headers = {**registry.auth("team", "bot"), **fields_of(body, STATELESS)}
    with pytest.raises(Exception, match="timed out"):
        registry.http.post(f"{registry.url}/mcp/direct", headers=headers, json=body, timeout=1.5)

    wait_until(up.closed.is_set, 10)
    if up.of("initialize"):
        wait_until(lambda: bool(up.of("notifications/cancelled")), 10)


def test_marked_arguments_stand_in_header_fields(registry: RunningRegistry) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    with running(stateless()) as up:
        publish(registry, up, input_schema=schema)
        plain(registry, {"region": "eu-1"})

        assert up.of("tools/call")[0].request.headers["mcp-param-region"] == "eu-1"


def test_a_server_of_two_routes_and_one_that_wants_a_login_have_codes(registry: RunningRegistry) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.status(405)

    async def endpoint(wire: Wire) -> None:
        await wire.stream()
        await wire.raw(b"event: endpoint\ndata: /messages\n\n")

    async def login(wire: Wire) -> None:
        await wire.status(401, 'WWW-Authenticate: Bearer resource_metadata="https://a.example/m"')

    on = {"server/discover": refuses, "initialize": refuses, "GET": endpoint}
    with running(McpUpstream(on=on)) as up:
        publish(registry, up)
        status, problem = plain(registry)
        assert (status, problem["code"]) == (502, "transport_unsupported")
    with running(McpUpstream(on={"server/discover": login})) as up:
        publish(registry, up)
        status, problem = plain(registry)
        assert (status, problem["code"], problem["resource_metadata"]) == (
            502, "login_required", "https://a.example/m",
        )  # fmt: skip


BROKEN: list[dict[str, Any]] = [
    {"content": "text"}, {"content": [7]}, {"content": [{"type": "text"}]}, {"content": [{"type": "tool_use"}]},
    {"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}, {"content": [{"type": "image", "data": "AA=="}]},
    {"content": [{"type": "resource"}]}, {"resultType": "task", "content": []}, {"resultType": "input_required"},
    {"resultType": "input_required", "inputRequests": {"a": 7}},
    {"resultType": "input_required", "inputRequests": {"toolcrib.dev/confirm": {"method": "elicitation/create", "params": {}}}},
    {"resultType": "input_required", "requestState": "s", "inputRequests": {
        "a": {"method": "roots/list"}, "toolcrib.dev/x": {"method": "roots/list"}}},
]  # fmt: skip


@pytest.mark.parametrize("fields", BROKEN, ids=json.dumps)
def test_what_is_no_answer_of_a_tool_is_a_typed_failure(
    registry: RunningRegistry, fields: dict[str, Any]
) -> None:
    with running(stateless()) as up:
        publish(registry, up)
        answers(up, **fields)
        status, problem = plain(registry)

    assert (status, problem["code"]) == (502, "upstream_protocol")


def test_a_server_that_fails_again_and_again_is_left_alone_and_others_are_called(
    registry: RunningRegistry,
) -> None:
    async def fails(wire: Wire) -> None:
        await wire.status(503)

    with running(stateless(tools_call=fails)) as bad, running(stateless()) as good:
        registry.publish([
            tool("ask", backend=PublishedBackend(url=bad.url, mcp=PublishedMcp(server="team/bad", tool="ask it"))),
        ])  # fmt: skip
        assert [plain(registry)[0] for _ in range(5)] == [502] * 5
        answer = registry.http.post(
            f"{registry.url}/v1/call", headers=registry.auth("team", "bot"), json={"tool": "ask"}
        )
        assert (answer.status_code, answer.json()["code"]) == (503, "backend_unavailable")
        assert 0 < int(answer.headers["retry-after"]) <= 10
        assert len(bad.of("tools/call")) == 5
        assert "toolcrib_backend_breakers_open 1.0" in registry.metrics()
        publish(registry, good)
        assert plain(registry, {"q": 1})["result"] == {"q": 1}


def test_the_sizes_of_requests_and_answers_are_those_of_the_settings() -> None:
    limits = {"mcp_request_bytes": 64 << 10, "mcp_answer_bytes": 64 << 10}
    with (
        running_registry([tool("ask")], [binding("bot", ("ask:use",))], limits=limits) as registry,
        running(stateless()) as up,
    ):
        publish(registry, up)
        status, problem = plain(registry, {"q": "x" * (65 << 10)})
        assert (status, problem["code"]) == (400, "invalid_arguments")
        assert up.of("tools/call") == []
        answers(up, content=[{"type": "text", "text": "x" * (65 << 10)}])
        assert (plain(registry)[0], plain(registry)[1]["code"]) == (502, "upstream_too_large")


@pytest.mark.parametrize(
    ("hints", "asked"),
    [({}, 1), ({"idempotentHint": False}, 1), ({"idempotentHint": True}, 2), ({"readOnlyHint": True}, 2)],
    ids=json.dumps,
)
def test_a_call_whose_connection_dies_is_made_again_only_if_the_tool_says_that_it_may_be(
    registry: RunningRegistry, up: McpUpstream, hints: dict[str, bool], asked: int
) -> None:
    async def dies(wire: Wire) -> None:
        wire.writer.close()

    up.on["tools/call"] = dies
    # a server of its own: the circuit breaker of another test's is not this one's
    mcp = PublishedMcp(server=f"team/dies-{up.port}", tool="ask it")
    registry.publish([tool("ask", backend=PublishedBackend(url=up.url, mcp=mcp), annotations=hints)])
    status, problem = plain(registry)
    assert (status, problem["code"]) == (502, "upstream_unreachable")
    assert len(up.of("tools/call")) == asked
