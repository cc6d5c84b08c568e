"""Backends that take tokens of their callers: the caller's token is exchanged at the issuer that made it (RFC 8693), goes nowhere
else, and what was obtained for it goes with it. On real ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from evil_upstream import Request, Upstream, response, upstream
from mcp_upstream import handshake, serving
from published import CLUSTER, FAR, OAUTH, bot, tool
from token_endpoint import (
    CLIENT,
    SECRET,
    TokenEndpoint,
    auth,
    basic,
    credentials,
    form,
    store,
    token_endpoint,
)
from toolcrib.identity import Issuer
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import Credentials, PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.mcp.backend import McpBackend
from toolcrib_registry.calls.backends.port import Exchange, ToolAnswer
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import BackendAuthFailed, CallError, CredentialPending, Refused
from toolcrib_registry.calls.oauth.grants import ACCESS_TOKEN, EXCHANGE
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.upstream.client import McpClient

pytestmark = pytest.mark.anyio
NONE = CheckedArguments({}, b"{}")
POLICY = EgressPolicy(loopback=True)
TOKEN = "token-of-the-caller"


@dataclass
class World:
    """An issuer of callers, a backend, and a replica that calls it."""

    idp: TokenEndpoint
    up: Upstream
    caller: HttpBackend
    tokens: Tokens
    credentials: CredentialStore
    issuers: dict[str, Issuer]
    clock: list[float]

    def tool(self, **oauth: Any) -> PublishedTool:
        how = auth(**oauth).model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
        return tool("heist/reader", backend=PublishedBackend(url=f"{self.up.url}/x", auth=how, timeout=5))

    async def call(
        self, token: str = TOKEN, issuer: str = CLUSTER, ends: float = FAR, **oauth: Any
    ) -> ToolAnswer:
        caller = bot(issuer=issuer, expires_at=ends)
        return await self.caller.call(self.tool(**oauth), NONE, "r-1", caller, Exchange(token=token))

    @property
    def sent(self) -> list[str]:
        """What authenticated each call."""
        return [request.headers["authorization"] for request in self.up.requests]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    def answer(request: Request) -> bytes:
        return response(b'{"ok":true}' if idp.accepts(request) else b"{}")

    async with token_endpoint() as idp, upstream(answer) as up, OutboundHttp(POLICY) as outbound:
        held, clock = store(idp.up.url, up.url), [1000.0]
        issuers = {
            CLUSTER: Issuer(
                issuer=CLUSTER,
                audience=("toolcrib",),
                exchange_url=idp.url,
                exchange_parameters={"connector_id": "self", "grant_type": "x"},
            ),
            OAUTH: Issuer(issuer=OAUTH, audience=("toolcrib",)),
        }
        tokens = Tokens(outbound, POLICY, held, clock=lambda: clock[0], now=lambda: clock[0])
        caller = HttpBackend(outbound, held, POLICY, tokens=tokens, issuers=issuers)
        yield World(idp, up, caller, tokens, held, issuers, clock)
        await tokens.close()


async def failure(world: World, kind: type[CallError] = BackendAuthFailed, **fields: Any) -> str:
    with pytest.raises(kind) as told:
        await world.call(**fields)
    assert TOKEN not in told.value.detail
    return told.value.detail


async def test_the_callers_token_is_exchanged_at_its_issuer_and_the_backend_gets_another(
    world: World,
) -> None:
    answer = await world.call(scope="read", audience="reports", resource="https://reports.example/")

    (asked,) = world.idp.requests
    assert answer.structured == {"ok": True}
    assert form(asked) == {
        "grant_type": EXCHANGE, "subject_token": TOKEN, "subject_token_type": ACCESS_TOKEN, "scope": "read",
        "audience": "reports", "resource": "https://reports.example/", "connector_id": "self",
    }  # fmt: skip
    assert basic(asked) == (CLIENT, SECRET)
    assert world.sent == ["Bearer token-1"]
    assert TOKEN not in str(world.up.requests)


async def test_no_manifest_sends_a_callers_token_elsewhere(world: World) -> None:
    async with upstream(lambda _: response(b"{}")) as thief:
        world.credentials.replace(credentials(thief.url, world.idp.up.url, world.up.url))
        await world.call(token_url=f"{thief.url}/token")

        assert thief.accepts == 0
    assert form(world.idp.requests[0])["subject_token"] == TOKEN


@pytest.mark.parametrize("issuer", [OAUTH, "https://unknown.example"])
async def test_a_token_of_an_issuer_that_exchanges_none_is_sent_nowhere(world: World, issuer: str) -> None:
    detail = await failure(world, issuer=issuer)

    assert ("exchange_url" in detail) is (issuer == OAUTH)
    assert world.idp.up.accepts == world.up.accepts == 0


async def test_each_issuer_gets_the_tokens_that_it_made(world: World) -> None:
    async with token_endpoint() as other:
        world.issuers[OAUTH] = Issuer(issuer=OAUTH, audience=("toolcrib",), exchange_url=other.url)
        world.credentials.replace(credentials(other.up.url, world.idp.up.url, world.up.url))
        await world.call()
        await world.call("another-token", issuer=OAUTH)

        assert [form(r)["subject_token"] for r in world.idp.requests] == [TOKEN]
        assert [form(r)["subject_token"] for r in other.requests] == ["another-token"]


async def test_a_caller_without_a_token_gets_none_for_the_backend(world: World) -> None:
    assert "this caller has none" in await failure(world, token="")


async def test_the_clients_secret_lists_the_issuer(world: World) -> None:
    world.credentials.replace(credentials(world.up.url))
    assert "token endpoint's host" in await failure(world, Refused)
    assert world.idp.up.accepts == 0


async def test_a_caller_gets_no_token_of_another_and_keeps_its_own(world: World) -> None:
    await asyncio.gather(*(world.call(token) for token in ("a-token", "b-token") for _ in range(5)))

    assert sorted(form(r)["subject_token"] for r in world.idp.requests) == ["a-token", "b-token"]
    assert sorted(set(world.sent)) == ["Bearer token-1", "Bearer token-2"]


async def test_what_was_obtained_ends_with_the_callers_token(world: World) -> None:
    await world.call(ends=1100.0)
    world.clock[0] = 1099.0
    await world.call(ends=1100.0)
    assert len(world.idp.requests) == 1
    world.clock[0] = 1101.0
    await world.call(ends=1100.0)
    assert len(world.idp.requests) == 2


async def test_what_was_obtained_goes_when_an_issuers_keys_change_and_with_the_clients_secret(
    world: World,
) -> None:
    await world.call()
    world.tokens.forget_callers()
    await world.call()
    assert len(world.idp.requests) == 2
    world.credentials.replace(Credentials(epoch=1))
    await failure(world, CredentialPending)
    assert world.tokens._held == {}


async def test_sessions_of_an_mcp_server_are_of_one_caller(world: World) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(handshake()))
        outbound = await stack.enter_async_context(OutboundHttp(POLICY))
        client = McpClient(outbound)
        stack.push_async_callback(client.close)
        world.credentials.replace(credentials(world.idp.up.url, f"http://127.0.0.1:{server.port}"))
        caller = McpBackend(client, world.credentials, POLICY, tokens=world.tokens, issuers=world.issuers)
        how = auth().model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
        place = PublishedBackend(
            url=server.url, auth=how, timeout=5, mcp=PublishedMcp(server="heist/s", tool="t")
        )
        for token in ("a-token", "b-token", "a-token", "b-token"):
            await caller.call(tool("heist/x", backend=place), NONE, "r", bot(), Exchange(token=token))

        calls = server.of("tools/call")
        sessions = [(w.request.headers["authorization"], w.request.headers["mcp-session-id"]) for w in calls]
        assert len(server.of("initialize")) == 2
        assert sessions[0] == sessions[2] != sessions[1] == sessions[3]
        assert len(world.idp.requests) == 2
