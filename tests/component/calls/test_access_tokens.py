"""Backends that take access tokens: obtained by client credentials, kept, replaced, and never shown. On real ports."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from evil_upstream import Request, Upstream, response, upstream
from published import bot, tool
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
from toolcrib.resources.backends import ClientAuthentication
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import Credentials, PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import (
    BackendAuthFailed,
    BackendUnavailable,
    CallError,
    CredentialPending,
    Refused,
    UpstreamProtocol,
)
from toolcrib_registry.calls.oauth import tokens as tokens_module
from toolcrib_registry.calls.oauth.tokens import TokenOutcome, Tokens
from toolcrib_registry.metrics.table import TOKEN_OUTCOMES
from toolcrib_registry.outbound.guard import EgressPolicy

pytestmark = pytest.mark.anyio
NONE = CheckedArguments({}, b"{}")
POLICY = EgressPolicy(loopback=True)


@dataclass
class World:
    """A backend, its authorization server, and a replica that calls it."""

    idp: TokenEndpoint
    up: Upstream
    caller: HttpBackend
    tokens: Tokens
    credentials: CredentialStore
    now: list[float]
    outcomes: list[TokenOutcome]
    refusal: list[Callable[[Request], bytes]] = field(default_factory=list)

    def tool(self, hints: dict[str, bool] | None = None, timeout: float = 5, **oauth: Any) -> PublishedTool:
        how = auth(**{"token_url": self.idp.url, **oauth})
        place = PublishedBackend(url=f"{self.up.url}/x", auth=how, timeout=timeout)
        return tool("heist/reader", backend=place, annotations=hints or {})

    async def call(self, **fields: Any) -> ToolAnswer:
        return await self.caller.call(self.tool(**fields), NONE, "r-1", bot())

    def held(self, *hosts: str, **fields: Any) -> None:
        """The client's Secret may go there, and is this."""
        listed = hosts or (self.idp.up.url, self.up.url)
        self.credentials.replace(credentials(*listed, **fields))


@asynccontextmanager
async def living(policy: EgressPolicy = POLICY) -> AsyncIterator[World]:
    def answer(request: Request) -> bytes:
        if made.idp.accepts(request):
            return response(b'{"ok":true}')
        challenge = 'WWW-Authenticate: Bearer error="invalid_token"'
        return made.refusal[0](request) if made.refusal else response(b"", status=401, headers=(challenge,))

    async with token_endpoint() as idp, upstream(answer) as up, OutboundHttp(policy) as outbound:
        held, now, outcomes = store(idp.up.url, up.url), [1000.0], list[TokenOutcome]()
        tokens = Tokens(outbound, policy, held, clock=lambda: now[0], observe=outcomes.append)
        made = World(idp, up, HttpBackend(outbound, held, policy, tokens=tokens), tokens, held, now, outcomes)
        try:
            yield made
        finally:
            await tokens.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with living() as made:
        yield made


async def failure(world: World, kind: type[CallError] = BackendAuthFailed, **fields: Any) -> CallError:
    with pytest.raises(kind) as told:
        await world.call(**fields)
    return told.value


async def test_a_call_carries_a_token_that_the_client_obtained(world: World) -> None:
    answer = await world.call(scope="read write", resource="https://api.example/x")

    (asked,), (called,) = world.idp.requests, world.up.requests
    assert answer.structured == {"ok": True}
    assert form(asked) == {
        "grant_type": "client_credentials", "scope": "read write", "resource": "https://api.example/x",
    }  # fmt: skip
    assert basic(asked) == (CLIENT, SECRET)
    assert called.headers["authorization"] == "Bearer token-1"
    assert SECRET not in str(called)


async def test_a_client_that_is_known_by_the_body_sends_no_header(world: World) -> None:
    await world.call(client_authentication=ClientAuthentication.POST)

    (asked,) = world.idp.requests
    assert form(asked) == {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}
    assert "authorization" not in asked.headers


async def test_many_calls_at_once_cause_one_request_for_a_token(world: World) -> None:
    await asyncio.gather(*(world.call() for _ in range(30)))

    assert len(world.idp.requests) == 1
    assert len(world.up.requests) == 30


@pytest.mark.parametrize(
    ("lifetime", "good_for"),
    [(3600, 3540), (100, 50), ("3600", 3540), (None, 240), (10**30, 86_340), (1.5e3, 1440)],
)
async def test_a_token_is_used_until_a_minute_before_its_end_or_half_its_life(
    world: World, lifetime: Any, good_for: float
) -> None:
    world.idp.lifetime = lifetime
    await world.call()
    world.now[0] += good_for - 1
    await world.call()
    assert len(world.idp.requests) == 1
    world.now[0] += 2
    await world.call()
    assert len(world.idp.requests) == 2


def said(**fields: Any) -> bytes:
    return response(json.dumps({"access_token": "a", "token_type": "Bearer", **fields}).encode())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (response(b"<html>hello</html>", content_type="text/html"), "not a JSON object"),
        (response(b'["a"]'), "not a JSON object"),
        (response(b'{"access_token":'), "not a JSON object"),
        (response(b"[" * 60_000), "not a JSON object"),
        (response(b'{"access_token":"' + b"x" * (10 << 20) + b'"}'), "larger"),
        (response(b"", status=302, headers=("Location: https://evil.example/",)), "redirects (302)"),
        (said(access_token="a\r\nX-Evil: 1"), "no access token"),
        (said(access_token="\x00"), "no access token"),
        (said(access_token="ü"), "no access token"),
        (said(access_token="x" * 20_000), "no access token"),
        (said(access_token=None), "no access token"),
        (said(access_token=7), "no access token"),
        (said(token_type="mac"), "another type than Bearer"),
        (said(token_type=None), "another type than Bearer"),
        (said(expires_in=-1), "expires_in"),
        (said(expires_in=0), "expires_in"),
        (said(expires_in="soon"), "expires_in"),
        (said(expires_in=True), "expires_in"),
        (said(expires_in=[]), "expires_in"),
        (response(b'{"error":"invalid_client"}', status=401), "(invalid_client). Check the Secret"),
        (response(b'{"error":"invalid_scope"}', status=400), "Check auth.oauth.scope"),
        (response(b'{"error":"hello","error_description":"hello"}', status=400), "refused the request (400)"),
        (response(b"hello", status=500), "failed (500)"),
        (b"", "no answer of the authorization server"),
    ],
)  # fmt: skip
async def test_what_is_no_token_is_a_typed_failure_and_nothing_is_sent_to_the_backend(
    world: World, answer: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.idp.answers = lambda: answer

    with caplog.at_level(logging.DEBUG):
        error = await failure(world)

    assert says in error.detail
    assert error.code == "backend_auth_failed"
    assert world.up.requests == []
    for words in (error.detail, caplog.text, repr(world.tokens), repr(world.credentials)):
        assert SECRET not in words
        assert "hello" not in words


async def test_a_failure_is_told_for_a_moment_without_asking_again_and_a_new_secret_is_tried_at_once(
    world: World,
) -> None:
    world.idp.answers = lambda: response(b'{"error":"invalid_client"}', status=401)
    for _ in range(5):
        await failure(world)
    assert len(world.idp.requests) == 1
    world.idp.answers = None

    world.held(secret="another")
    await world.call()

    assert basic(world.idp.requests[-1])[1] == "another"


async def test_what_became_of_each_request_is_counted(world: World) -> None:
    await world.call()
    world.held(secret="another")
    world.idp.answers = lambda: response(b'{"error":"invalid_client"}', status=401)
    await failure(world)
    world.held(secret="a third")
    world.idp.answers = lambda: response(b"", status=503)
    await failure(world)
    world.held(world.up.url)
    await failure(world, Refused)

    assert tuple(world.outcomes) == TOKEN_OUTCOMES


async def hangs(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_an_authorization_server_that_hangs_costs_a_call_its_deadline_and_opens_its_own_breaker() -> (
    None
):
    async with living() as world, upstream(raw=hangs) as slow:
        world.held(slow.url, world.up.url)
        for _ in range(5):
            error = await failure(world, timeout=0.05, token_url=f"{slow.url}/token")
            assert "no token within" in error.detail
            world.now[0] += 1
        unavailable = await failure(world, BackendUnavailable, timeout=0.05, token_url=f"{slow.url}/token")

        assert "authorization server" in unavailable.detail
        assert slow.accepts == 1, "one request serves all callers"
        world.held()
        await world.call()  # another authorization server is another breaker


async def test_many_callers_of_one_request_that_fails_are_one_failure_for_the_breaker(world: World) -> None:
    world.idp.answers = lambda: response(b"", status=503)
    found = await asyncio.gather(*(world.call() for _ in range(30)), return_exceptions=True)
    assert {type(each) for each in found} == {BackendAuthFailed}
    assert len(world.idp.requests) == 1

    world.idp.answers = None
    world.now[0] += 1.1  # it is asked again
    await world.call()


@pytest.mark.parametrize("hints", [{}, {"readOnlyHint": True}])
async def test_a_token_that_the_backend_no_longer_accepts_is_replaced_once(
    world: World, hints: dict[str, bool]
) -> None:
    await world.call()
    world.idp.good.clear()

    assert (await world.call(hints=hints)).structured == {"ok": True}
    assert [r.headers["authorization"] for r in world.up.requests] == [
        "Bearer token-1", "Bearer token-1", "Bearer token-2",
    ]  # fmt: skip
    await world.call()
    assert len(world.idp.requests) == 2


async def test_a_401_that_is_not_of_the_token_repeats_no_call_that_may_have_been_executed(
    world: World,
) -> None:
    world.refusal.append(lambda _: response(b"{}", status=401))
    await world.call()
    world.idp.good.clear()

    error = await failure(world)

    assert "refuses the access token (401)" in error.detail
    assert len(world.up.requests) == 2
    await world.call()  # with a new token
    assert len(world.idp.requests) == 2


async def test_a_backend_that_refuses_every_token_causes_one_request_for_a_token_in_half_a_minute(
    world: World,
) -> None:
    world.idp.answers = lambda: said()
    for _ in range(10):
        await failure(world)
    assert len(world.idp.requests) == 2
    assert len(world.up.requests) == 11


async def test_the_tokens_that_were_used_last_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_MOST", 2)
    for scope in ("a", "b", "a", "c", "a", "b"):
        await world.call(scope=scope)

    assert [form(r)["scope"] for r in world.idp.requests] == ["a", "b", "c", "b"]


async def test_tokens_go_with_their_secret(world: World) -> None:
    await world.call()

    world.credentials.replace(Credentials(epoch=1))
    await failure(world, CredentialPending)
    world.held()
    await world.call()

    assert len(world.idp.requests) == 2


async def test_a_secret_that_is_revoked_while_its_token_is_fetched_opens_nothing(world: World) -> None:
    def revoked() -> bytes:
        world.credentials.replace(Credentials(epoch=1))
        return world.idp.token()

    world.idp.answers = revoked

    await failure(world, CredentialPending)

    assert world.up.requests == []
    world.idp.answers = None
    world.held()
    await world.call()
    assert world.up.requests[0].headers["authorization"] == "Bearer token-2"


async def test_the_secret_goes_to_no_token_endpoint_and_its_tokens_to_no_backend_that_it_does_not_list(
    world: World,
) -> None:
    world.held(world.up.url)
    error = await failure(world, Refused)
    assert "token endpoint's host" in error.detail
    world.held(world.idp.up.url)
    error = await failure(world, Refused)
    assert "backend's host" in error.detail
    assert world.idp.up.accepts == world.up.accepts == 0


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("https://idp.example/token", "not in egress.allow"),
        ("http://169.254.169.254/token", "metadata service"),
        ("http://10.0.0.1/token", "cluster's own ranges"),
        ("http://registry.example/token", "belongs to the registry"),
    ],
)
async def test_a_token_endpoint_passes_the_guard_like_any_backend(place: str, says: str) -> None:
    policy = EgressPolicy(
        allow=("169.254.169.254", "10.0.0.1", "registry.example"), loopback=True,
        cluster=("10.0.0.0/8",), forbidden=("registry.example",),
    )  # fmt: skip
    async with living(policy) as world:
        world.held(place.removesuffix("/token"), world.up.url)
        error = await failure(world, Refused, token_url=place)
    assert says in error.detail


async def test_an_answer_that_repeats_the_token_is_withheld(world: World) -> None:
    world.refusal.append(lambda request: response(json.dumps(request.headers).encode()))
    world.idp.answers = lambda: said(access_token="token-of-nobody")

    error = await failure(world, UpstreamProtocol)

    assert "token-of-nobody" not in error.detail


async def test_each_namespace_and_each_backend_has_tokens_of_its_own(world: World) -> None:
    await world.call()
    await world.call(scope="other")
    await world.call(resource="https://api.example/")

    assert len(world.idp.requests) == 3
