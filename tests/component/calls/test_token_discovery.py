"""An MCP server says by its metadata where its tokens are given; what it says is believed only as far as the guard and the
Secret let it. On real ports."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from evil_upstream import Request, Upstream, response, upstream
from mcp_upstream import Behave, McpUpstream, Wire, handshake, serving, stateless
from published import bot, tool
from token_endpoint import SECRET, auth, basic, credentials, form
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.mcp.backend import McpBackend
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, Progress, ToolAnswer
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import BackendAuthFailed, CallError, Refused
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.guard import EgressPolicy, ReplaceablePolicy
from toolcrib_registry.upstream.client import McpClient

pytestmark = pytest.mark.anyio
POLICY = EgressPolicy(loopback=True)
METADATA = "/.well-known/oauth-protected-resource"


@dataclass
class World:
    """An MCP server that wants tokens, its authorization server, and a replica that calls it."""

    server: McpUpstream
    idp: Upstream
    caller: McpBackend
    credentials: CredentialStore
    policy: ReplaceablePolicy
    resource: dict[str, Any] = field(default_factory=dict)
    issuer: dict[str, Any] = field(default_factory=dict)
    good: list[str] = field(default_factory=list)
    challenge: str = ""
    """Of the server's 401."""

    async def call(self, exchange: Exchange = NO_EXCHANGE, **oauth: Any) -> ToolAnswer:
        place = PublishedBackend(
            url=self.server.url, auth=auth(**oauth), timeout=5, mcp=PublishedMcp(server="heist/s", tool="t")
        )
        arguments = CheckedArguments({"a": 1}, b'{"a":1}')
        return await self.caller.call(tool("heist/reader", backend=place), arguments, "r-1", bot(), exchange)

    @property
    def asked(self) -> list[str]:
        """What the authorization server was asked."""
        return [request.target for request in self.idp.requests]


@pytest.fixture(params=[stateless, handshake], ids=["2026", "2025"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made: World

    def guarded(behave: Behave) -> Behave:
        async def answer(wire: Wire) -> None:
            if wire.request.headers.get("authorization", "").removeprefix("Bearer ") in made.good:
                await behave(wire)
            else:
                await wire.status(401, f"WWW-Authenticate: Bearer {made.challenge}")

        return answer

    async def metadata(wire: Wire) -> None:
        if wire.request.target == f"{METADATA}/mcp":
            await wire.json(made.resource)
        else:
            await wire.status(404)

    def idp(asked: Request) -> bytes:
        if asked.target == "/realm/token":
            made.good.append(f"token-{len(made.good) + 1}")
            value = {"access_token": made.good[-1], "token_type": "Bearer", "expires_in": 3600}
            return response(json.dumps(value).encode())
        if asked.target == "/realm/.well-known/openid-configuration":  # as Dex and Keycloak have it
            return response(json.dumps(made.issuer).encode())
        if asked.target == METADATA:
            return response(json.dumps(made.resource).encode())
        return response(b"", status=404)

    server = request.param()
    server.on = {method: guarded(behave) for method, behave in server.on.items()}
    server.on |= {"GET": metadata, "ping": guarded(server.on["tools/call"])}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(server))
        up = await stack.enter_async_context(upstream(idp))
        policy = ReplaceablePolicy(POLICY)
        outbound = await stack.enter_async_context(OutboundHttp(policy))
        held = CredentialStore()
        origin = f"http://127.0.0.1:{server.port}"
        held.replace(credentials(f"{up.url}/realm/token", origin))
        tokens, client = Tokens(outbound, policy, held), McpClient(outbound)
        stack.push_async_callback(client.close)
        stack.push_async_callback(tokens.close)
        made = World(server, up, McpBackend(client, held, policy, tokens=tokens), held, policy)
        made.resource = {"resource": f"{origin}/mcp", "authorization_servers": [f"{up.url}/realm"]}
        made.issuer = {"issuer": f"{up.url}/realm", "token_endpoint": f"{up.url}/realm/token"}
        yield made


async def failure(world: World, kind: type[CallError] = BackendAuthFailed, **oauth: Any) -> str:
    with pytest.raises(kind) as told:
        await world.call(**oauth)
    assert "/realm/token" not in world.asked
    assert SECRET not in str(world.idp.requests)
    return told.value.detail


@pytest.mark.parametrize("pointed", [True, False])
async def test_a_token_is_obtained_where_the_servers_metadata_leads(world: World, pointed: bool) -> None:
    if pointed:
        world.challenge = f'resource_metadata="{world.idp.url}{METADATA}"'

    answer = await world.call(scope="use")

    assert answer.structured == {"a": 1}
    asked = world.idp.requests[-1]
    assert form(asked) == {
        "grant_type": "client_credentials", "scope": "use", "resource": f"http://127.0.0.1:{world.server.port}/mcp",
    }  # fmt: skip
    assert basic(asked)[1] == SECRET
    assert (METADATA in world.asked) is pointed


async def test_a_token_that_the_server_no_longer_accepts_is_replaced_and_the_call_made_once(
    world: World,
) -> None:
    await world.call()
    world.good[0] = "revoked"

    await world.call()

    calls = [w for w in world.server.of("tools/call") if "authorization" in w.request.headers]
    assert [w.request.headers["authorization"] for w in calls][-1] == "Bearer token-2"
    assert world.asked.count("/realm/token") == 2


async def test_progress_that_repeats_the_token_is_told_without_its_message(world: World) -> None:
    told = []

    async def tell(progress: Progress) -> None:
        told.append((progress.progress, progress.message))

    plain = world.server.on["tools/call"]

    async def progresses(wire: Wire) -> None:
        if "authorization" not in wire.request.headers:
            await plain(wire)
            return
        params = {"progressToken": wire.message["params"]["_meta"]["progressToken"]}
        await wire.stream()
        for done, message in enumerate((wire.request.headers["authorization"], "half")):
            params |= {"progress": done, "message": message}
            await wire.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await wire.answer(content=[])

    world.server.on["tools/call"] = progresses
    await world.call(Exchange(progress=tell))

    assert told == [(0, None), (1, "half")]


async def test_a_server_that_refuses_every_token_is_a_typed_failure(world: World) -> None:
    await world.call()
    world.good[:] = ["revoked"] * 3

    async def refuses(wire: Wire) -> None:
        await wire.status(401)

    world.server.on = dict.fromkeys(world.server.on, refuses) | {"GET": world.server.on["GET"]}
    with pytest.raises(BackendAuthFailed, match="refuses the access token"):
        await world.call()


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ({"resource": "https://other.example/mcp"}, "another resource"),
        ({"resource": "urn:other"}, "another resource"),
        ({"resource": None}, "another resource"),
        ({"authorization_servers": []}, "names no authorization server"),
        ({"authorization_servers": [7]}, "names no authorization server"),
        ({"authorization_servers": None}, "names no authorization server"),
    ],
)
async def test_metadata_of_something_else_is_not_used(
    world: World, resource: dict[str, Any], says: str
) -> None:
    world.resource |= resource

    assert says in await failure(world)


@pytest.mark.parametrize(
    ("issuer", "says"),
    [
        ({"issuer": "https://other.example"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"grant_types_supported": ["authorization_code"]}, "does not support the grant"),
        ({"token_endpoint": None}, "names no token endpoint"),
    ],
)
async def test_metadata_of_another_issuer_is_not_used(
    world: World, issuer: dict[str, Any], says: str
) -> None:
    world.issuer |= issuer

    assert says in await failure(world)


async def test_a_server_cannot_send_the_secret_to_a_place_that_its_secret_does_not_list(world: World) -> None:
    async with upstream(lambda _: response(b"", status=500)) as thief:
        world.issuer["token_endpoint"] = f"{thief.url}/realm/token"
        assert "does not list the token endpoint's host" in await failure(world, Refused)
        assert thief.accepts == 0


@pytest.mark.parametrize(
    "path",
    [
        "/evil/token",
        "/realm/token/",
        "/realm/Token",
        "/realm/token?to=evil",
        "/realm/../evil/token",
        "/realm/%74oken",
        "/",
        "",
    ],
)
async def test_a_server_cannot_have_the_secret_sent_to_another_path_of_a_listed_host(
    world: World, path: str
) -> None:
    origin = f"http://127.0.0.1:{world.server.port}"
    for hosts in ((world.idp.url,), (world.idp.url, f"{world.idp.url}/realm/token")):
        world.credentials.replace(credentials(*hosts, origin, secret=f"{SECRET} {len(hosts)}"))
        world.issuer["token_endpoint"] = f"{world.idp.url}{path}"
        with pytest.raises(Refused, match=r"add this URL, or set auth\.oauth\.tokenUrl"):
            await world.call()
    assert [r.target for r in world.idp.requests if r.method == "POST"] == []


async def test_a_host_alone_does_not_list_the_endpoint_that_metadata_names(world: World) -> None:
    world.credentials.replace(credentials(world.idp.url, f"http://127.0.0.1:{world.server.port}"))

    assert f"{world.idp.url}/realm/token, and" in await failure(world, Refused)


async def test_a_server_cannot_have_the_secret_sent_to_itself(world: World) -> None:
    world.issuer["token_endpoint"] = f"http://127.0.0.1:{world.server.port}/token"

    assert "names the server itself" in await failure(world)
    assert all(wire.request.target != "/token" for wire in world.server.wires)


@pytest.mark.parametrize("where", ["challenge", "server", "endpoint"])
@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest", "https://10.0.0.1/", "https://a.example/"]
)
async def test_a_server_cannot_lead_the_registry_to_a_place_that_the_guard_refuses(
    world: World, where: str, place: str
) -> None:
    match where:
        case "challenge":
            world.challenge = f'resource_metadata="{place}"'
        case "server":
            world.resource["authorization_servers"] = [place]
        case "endpoint":
            world.issuer["token_endpoint"] = place

    assert "egress.allow" in await failure(world, Refused)


async def test_a_place_that_was_refused_is_not_asked_for_again_until_the_guard_allows_another(
    world: World,
) -> None:
    world.issuer["token_endpoint"] = "https://idp.example/token"
    for _ in range(3):
        assert "egress.allow" in await failure(world, Refused)
    assert len(world.server.of("ping")) == 1

    world.policy.open(("elsewhere.example",), {})
    assert "egress.allow" in await failure(world, Refused)
    assert len(world.server.of("ping")) == 2


async def test_a_resource_of_another_name_can_be_meant_explicitly(world: World) -> None:
    world.resource["resource"] = "https://public.example/mcp"

    assert "auth.oauth.resource" in await failure(world)


async def test_the_resource_that_is_set_is_the_one_that_is_used(world: World) -> None:
    world.resource["resource"] = "https://public.example/mcp"

    await world.call(resource="https://public.example/mcp")

    assert form(world.idp.requests[-1])["resource"] == "https://public.example/mcp"
