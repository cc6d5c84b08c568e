"""Which era a server is of is asked once, remembered, and asked again where the server says otherwise."""

import asyncio
from dataclasses import replace

import pytest

from mcp_upstream import (
    HANDSHAKE,
    OWN,
    STATELESS,
    McpUpstream,
    Sessions,
    Wire,
    called,
    handshake,
    serving,
    stateless,
)
from toolcrib_registry.outbound.errors import OutboundError, TimedOut
from toolcrib_registry.upstream import client as client_module
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import (
    AnswerBroken,
    LoginRequired,
    McpFailure,
    RefusedByRpc,
    RefusedByStatus,
    TransportUnsupported,
)
from toolcrib_registry.upstream.servers import Asking, Question

pytestmark = pytest.mark.anyio
CALL = Question("tools/call", {"name": "read", "arguments": {"path": "a"}})


async def test_a_stateless_server_is_discovered_once_and_told_all_in_each_request(client: McpClient) -> None:
    async with serving(stateless()) as up:
        for _ in range(2):
            result = await client.ask(up.server(), Asking(), CALL)
            assert result.fields["structuredContent"] == {"path": "a"}

    assert up.methods() == ["server/discover", "tools/call", "tools/call"]
    call = up.of("tools/call")[0]
    assert call.request.headers["mcp-protocol-version"] == STATELESS
    assert call.request.headers["mcp-method"] == "tools/call"
    assert call.request.headers["mcp-name"] == "read"
    meta = call.message["params"]["_meta"]
    assert meta[f"{OWN}protocolVersion"] == STATELESS
    assert meta[f"{OWN}clientCapabilities"] == {}
    assert meta[f"{OWN}clientInfo"]["name"] == "toolcrib"


async def test_a_server_of_the_handshake_era_gets_one_session_for_many_calls(client: McpClient) -> None:
    async with serving(handshake()) as up:
        await asyncio.gather(*(client.ask(up.server(), Asking(), CALL) for _ in range(5)))

        assert up.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]
        assert up.methods()[3:] == ["tools/call"] * 5
        for call in up.of("tools/call"):
            assert call.request.headers["mcp-session-id"] == "session-1"
            assert call.request.headers["mcp-protocol-version"] == HANDSHAKE
            assert "mcp-method" not in call.request.headers
            assert "_meta" not in call.message["params"]


async def test_a_session_ends_with_the_token_of_the_caller_that_it_was_begun_for(client: McpClient) -> None:
    async with serving(handshake()) as up:
        asking = Asking(sign=lambda method, body: {})
        await client.ask(up.server(), asking, CALL)
        await client.ask(replace(up.server(), caller="a", seconds=0.2), asking, CALL)
        await up.arrived("DELETE")

        assert [w.request.headers["mcp-session-id"] for w in up.of("DELETE")] == ["session-2"]
        await client.ask(up.server(), asking, CALL)
        assert len(up.of("initialize")) == 2


async def test_sessions_with_the_servers_that_were_asked_last_are_kept(
    client: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MOST_SERVERS", 2)
    async with serving(handshake()) as up:
        asking = Asking(sign=lambda method, body: {})
        for name in ("a", "b", "a", "c"):
            await client.ask(replace(up.server(), name=f"heist/{name}"), asking, CALL)
        await up.arrived("DELETE")

        assert [w.request.headers["mcp-session-id"] for w in up.of("DELETE")] == ["session-2"]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_revision_of_the_handshake_era_is_spoken(client: McpClient, version: str) -> None:
    async with serving(handshake(Sessions(version, named=False))) as up:
        result = await client.ask(up.server(), Asking(), CALL)

    assert result.fields["structuredContent"] == {"path": "a"}
    assert up.of("tools/call")[0].request.headers["mcp-protocol-version"] == version


@pytest.mark.parametrize(("status", "kind"), [(401, LoginRequired), (403, RefusedByStatus), (429, RefusedByStatus),
                                              (500, RefusedByStatus), (503, RefusedByStatus)])  # fmt: skip
async def test_a_refusal_or_failure_decides_nothing_and_is_not_remembered(
    client: McpClient, status: int, kind: type[McpFailure]
) -> None:
    up = stateless()
    works = up.on["server/discover"]

    async def fails(wire: Wire) -> None:
        await wire.status(status)

    up.on["server/discover"] = fails
    async with serving(up):
        with pytest.raises(kind):
            await client.ask(up.server(), Asking(), CALL)
        up.on["server/discover"] = works
        await client.ask(up.server(), Asking(), CALL)

    assert up.methods() == ["server/discover", "server/discover", "tools/call"]


async def test_a_silent_server_decides_nothing(client: McpClient) -> None:
    up = stateless()
    works = up.on["server/discover"]

    async def hangs(_: Wire) -> None:
        await asyncio.Event().wait()

    up.on["server/discover"] = hangs
    async with serving(up):
        with pytest.raises(TimedOut):
            await client.ask(up.server(), Asking(0.3), CALL)
        up.on["server/discover"] = works
        await client.ask(up.server(), Asking(), CALL)

    assert up.methods()[-2:] == ["server/discover", "tools/call"]


async def test_a_login_is_told_with_its_metadata(client: McpClient) -> None:
    async def login(wire: Wire) -> None:
        await wire.status(401, 'WWW-Authenticate: Bearer resource_metadata="https://a.example/.well-known/x"')

    async with serving(McpUpstream(on={"server/discover": login})) as up:
        with pytest.raises(LoginRequired) as told:
            await client.ask(up.server(), Asking(), CALL)

    assert told.value.metadata_url == "https://a.example/.well-known/x"


async def test_discovery_without_the_revision_leads_to_the_handshake(client: McpClient) -> None:
    up = handshake()

    async def discover(wire: Wire) -> None:
        await wire.result(supportedVersions=["2025-11-25"], capabilities={})

    up.on["server/discover"] = discover
    async with serving(up):
        await client.ask(up.server(), Asking(), CALL)

    assert up.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/call"]


async def test_an_empty_answer_to_discovery_leads_to_the_handshake(client: McpClient) -> None:
    up = handshake()

    async def nothing(wire: Wire) -> None:
        await wire.result()

    up.on["server/discover"] = nothing
    async with serving(up):
        await client.ask(up.server(), Asking(), CALL)

    assert up.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/call"]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_server_that_refuses_the_revision_and_supports_it_is_asked_once_more(
    client: McpClient, times: int
) -> None:
    up, modern = handshake(), stateless()
    left = times

    async def discover(wire: Wire) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await modern.on["server/discover"](wire)
        else:
            await wire.error(-32022, "Unsupported protocol version", 400, {"supported": ["2026-07-28"]})

    up.on["server/discover"] = discover
    async with serving(up):
        if times == 1:
            up.on["tools/call"] = called
        await client.ask(up.server(), Asking(), CALL)

    further = ["tools/call"] if times == 1 else ["initialize", "notifications/initialized", "tools/call"]
    assert up.methods() == ["server/discover", "server/discover", *further]


async def test_a_server_that_changes_its_era_is_asked_again_and_the_call_goes_on(client: McpClient) -> None:
    up, later = stateless(), handshake()
    async with serving(up):
        await client.ask(up.server(), Asking(), CALL)
        up.on = later.on
        await client.ask(up.server(), Asking(), CALL)
        assert up.methods()[2:] == [
            "tools/call", "server/discover", "initialize", "notifications/initialized", "tools/call",
        ]  # fmt: skip
        up.on, already = stateless().on, len(up.wires)

        async def modern_only(wire: Wire) -> None:
            if "mcp-method" not in wire.request.headers:
                await wire.error(-32020, "Header mismatch", 400)
            else:
                await called(wire)

        up.on["tools/call"] = modern_only
        await client.ask(up.server(), Asking(), CALL)

        assert up.methods()[already:] == ["tools/call", "server/discover", "tools/call"]


async def test_a_server_that_lies_about_its_revision_is_asked_again_once(client: McpClient) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.error(-32022, "Unsupported protocol version", 400, {"supported": ["2031-01-01"]})

    async with serving(stateless(tools_call=refuses)) as up:
        with pytest.raises(RefusedByRpc) as told:
            await client.ask(up.server(), Asking(), CALL)

    assert told.value.code == -32022
    assert up.methods() == ["server/discover", "tools/call"] * 2


@pytest.mark.parametrize("version", ["2024-11-05", "2026-07-28", "2099-01-01", 7, None])
async def test_a_handshake_that_ends_in_no_known_revision_is_refused(client: McpClient, version: str) -> None:
    async with serving(handshake(Sessions(version))) as up:
        with pytest.raises(AnswerBroken, match="revision"):
            await client.ask(up.server(), Asking(), CALL)

    assert up.of("tools/call") == []


async def test_a_server_of_two_routes_is_told_apart(client: McpClient) -> None:
    async def endpoint(wire: Wire) -> None:
        await wire.stream()
        await wire.raw(b"event: endpoint\ndata: /messages?session=1\n\n")
        await asyncio.Event().wait()

    async def refuses(wire: Wire) -> None:
        await wire.status(405)

    on = {"GET": endpoint, "server/discover": refuses, "initialize": refuses}
    async with serving(McpUpstream(on=on)) as up:
        with pytest.raises(TransportUnsupported):
            await client.ask(up.server(), Asking(), CALL)

    assert up.methods() == ["server/discover", "initialize", "GET"]


async def test_another_route_or_credential_begins_again_and_the_former_session_ends(
    client: McpClient,
) -> None:
    async with serving(handshake()) as up:
        await client.ask(up.server(credential="one"), Asking(), CALL)
        await client.ask(up.server(credential="two"), Asking(), CALL)
        await up.arrived("DELETE")

        assert up.of("DELETE")[0].request.headers["mcp-session-id"] == "session-1"
        assert up.of("tools/call")[1].request.headers["mcp-session-id"] == "session-2"


async def test_what_a_server_says_of_itself_is_asked_each_time(client: McpClient) -> None:
    async with serving(stateless()) as up:
        for _ in range(2):
            facts = await client.facts(up.server(), Asking())
            assert (facts.version, facts.info["name"], facts.capabilities) == (
                STATELESS,
                "files",
                {"tools": {}},
            )

    assert up.methods() == ["server/discover"] * 2


async def test_nothing_listens_there(client: McpClient) -> None:
    async with serving(stateless()) as up:
        pass

    with pytest.raises(OutboundError):
        await client.ask(up.server(), Asking(), CALL)
