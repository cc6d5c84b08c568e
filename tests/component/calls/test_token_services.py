"""Token endpoints at Services: dialled as backends are, for tools of their own namespace alone, or nothing is sent."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evil_upstream import response, upstream
from imports_harness import importing, wanted
from mcp_lists import Listing, modern
from mcp_upstream import Wire, serving
from published import bot, tool
from token_endpoint import CLIENT, SECRET, TokenEndpoint, auth, basic, credentials, form, token_endpoint
from toolcrib.wire.backends import PublishedBackend, PublishedTokenService
from toolcrib.wire.imports import ServerOutcome
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import CallError, Refused, ServicePending
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.outbound.guard import EgressPolicy, PolicySource
from toolcrib_registry.outbound.messages import OutboundRequest, OutboundResponse, Sender

pytestmark = pytest.mark.anyio
ADDRESS = "10.96.0.17"
UNLISTED = "toolcrib.dev/hosts does not list the token endpoint's host"


def service(namespace: str = "heist", ip: str | None = ADDRESS, port: int = 8080) -> PublishedTokenService:
    return PublishedTokenService(namespace=namespace, name="idp", port=port, path="/token", cluster_ip=ip)


def reader(at: PublishedTokenService, url: str = "https://api.example/x") -> PublishedTool:
    return tool("heist/reader", backend=PublishedBackend(url=url, auth=auth(token_service=at), timeout=5))


class Network:
    """Takes its place: gives a token to everybody, and notes what was sent where."""

    def __init__(self) -> None:
        self.sent: list[OutboundRequest] = []

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        self.sent.append(request)
        body = b'{"access_token":"t","token_type":"Bearer"}' if request.target.path == "/token" else b"{}"
        return OutboundResponse(200, {"content-type": "application/json"}, body)

    async def close(self) -> None:
        pass


async def called(one: PublishedTool, sender: Sender, policy: PolicySource, *hosts: str) -> ToolAnswer:
    held = CredentialStore()
    held.replace(credentials("api.example", *hosts))
    tokens = Tokens(sender, policy, held)
    try:
        backend = HttpBackend(sender, held, policy, tokens=tokens)
        return await backend.call(one, CheckedArguments({}, b"{}"), "r-1", bot())
    finally:
        await tokens.close()


@asynccontextmanager
async def mapped() -> AsyncIterator[tuple[TokenEndpoint, EgressPolicy]]:
    """A token endpoint on loopback, which is the Service heist/idp."""
    async with token_endpoint() as idp:
        place = f"127.0.0.1:{idp.up.port}"
        yield idp, EgressPolicy(loopback=True, backends={"heist/idp": place, "team/idp": place})


async def test_a_call_carries_a_token_of_the_service() -> None:
    def answer(request: Any) -> bytes:
        return response(b"{}") if idp.accepts(request) else response(b"", status=401)

    async with mapped() as (idp, policy), upstream(answer) as up, OutboundHttp(policy) as outbound:
        await called(reader(service(ip=None), f"{up.url}/x"), outbound, policy, up.url, "idp.heist.svc")
        (asked,) = idp.requests

    assert form(asked) == {"grant_type": "client_credentials"}
    assert basic(asked) == (CLIENT, SECRET)
    assert [request.headers["authorization"] for request in up.requests] == ["Bearer token-1"]


async def test_the_published_address_is_dialled_under_the_services_own_name() -> None:
    sent, policy = Network(), EgressPolicy(allow=("api.example",))
    await called(reader(service()), sent, policy, "idp")

    asked, call = sent.sent
    assert (asked.method, asked.target.origin, asked.target.path) == (
        "POST",
        f"http://{ADDRESS}:8080",
        "/token",
    )
    assert (asked.target.authority, asked.owner) == ("idp.heist.svc:8080", "heist")
    assert base64.b64encode(b"the+client:s3cret%3A+of%2Fclient").decode() in str(asked.headers)
    assert call.headers["authorization"] == "Bearer t"


FORBIDDEN = EgressPolicy(allow=("*",), forbidden=("idp.heist.svc", "10.96.0.1"))


@pytest.mark.parametrize(
    ("at", "policy"),
    [
        (service("bank"), EgressPolicy(allow=("*",))),
        (service(ip="127.0.0.1"), EgressPolicy(allow=("*",), loopback=True)),
        (service(ip="169.254.169.254"), EgressPolicy(allow=("*",))),
        (service(ip="8.8.8.8"), EgressPolicy(allow=("*",))),
        (service(), FORBIDDEN),
        (service(ip="10.96.0.1"), EgressPolicy(allow=("*",), forbidden=("10.96.0.1:8080",))),
        (service(ip="10.200.0.1"), EgressPolicy(allow=("*",), cluster=("10.96.0.0/16",))),
    ],
    ids=["namespace", "loopback", "metadata", "public", "forbidden name", "API server", "elsewhere"],
)
async def test_a_service_of_another_namespace_or_at_an_address_that_no_service_has_gets_no_secret(
    at: PublishedTokenService, policy: EgressPolicy
) -> None:
    """Whatever the Secret lists, and although `egress.allow` lists everything."""
    sent = Network()
    with pytest.raises(Refused):
        await called(reader(at), sent, policy, "idp", "idp.heist.svc", "idp.bank.svc")

    assert sent.sent == []


@pytest.mark.parametrize("listed", ["", "other", "idp:9090", "idp.bank.svc", "https://idp", "idp.heist"])
async def test_the_secret_goes_to_no_service_that_its_annotation_does_not_list(listed: str) -> None:
    sent = Network()
    with pytest.raises(Refused) as told:
        await called(reader(service()), sent, EgressPolicy(allow=("api.example",)), *listed.split())

    assert UNLISTED in told.value.detail
    assert sent.sent == []


async def test_a_service_without_a_published_address_is_waited_for_and_asked_as_soon_as_it_has_one() -> None:
    sent, policy = Network(), EgressPolicy(allow=("api.example",))
    held = CredentialStore()
    held.replace(credentials("api.example", "idp"))
    tokens = Tokens(sent, policy, held)
    backend = HttpBackend(sent, held, policy, tokens=tokens)

    async def call(at: PublishedTokenService) -> ToolAnswer:
        return await backend.call(reader(at), CheckedArguments({}, b"{}"), "r-1", bot())

    with pytest.raises(ServicePending) as told:
        await call(service(ip=None))
    assert (told.value.code, told.value.retry_after, sent.sent) == ("service_pending", 5, [])
    assert "idp" not in told.value.detail, "callers are not told what stands behind a tool"
    await call(service())
    assert [request.target.path for request in sent.sent] == ["/token", "/x"]
    await tokens.close()


async def test_a_redirect_of_the_service_is_not_followed() -> None:
    def away(_: Any) -> bytes:
        return response(b"", status=307, headers=(f"Location: {other.url}/token",))

    async with (
        upstream(lambda _: response(b"{}")) as other,
        mapped() as (idp, policy),
        OutboundHttp(policy) as out,
    ):
        idp.answers = lambda: away(None)
        with pytest.raises(CallError):
            await called(reader(service(ip=None), f"{idp.up.url}/x"), out, policy, idp.up.url, "idp")

    assert other.accepts == 0


async def test_a_servers_list_is_read_with_a_token_of_a_service() -> None:
    listing = Listing()
    async with mapped() as (idp, policy), importing(policy) as imports, serving(modern(listing)) as up:
        for method, behave in list(up.on.items()):

            async def guarded(wire: Wire, behave: Any = behave) -> None:
                await (behave(wire) if idp.accepts(wire.request) else wire.status(401))

            up.on[method] = guarded
        hosts = (up.url.removesuffix("/mcp"), "idp")
        imports.credentials.replace(credentials(*hosts, namespace="team"))
        at = service("team", ip=None)
        imports.want(wanted(up, auth=auth("team", token_service=at)))
        await imports.seen(ServerOutcome.LISTED)

        assert len(idp.requests) == 1
        imports.want(wanted(up, auth=auth("team", token_service=service("heist", ip=None))))
        row = await imports.seen(ServerOutcome.CREDENTIAL_REFUSED)
        assert "own namespace" in row.detail
        assert len(idp.requests) == 1


async def test_a_list_waits_for_the_address_of_the_service_that_gives_tokens() -> None:
    policy = EgressPolicy(loopback=True)
    async with importing(policy) as imports, serving(modern(Listing())) as up:
        imports.credentials.replace(credentials(up.url.removesuffix("/mcp"), "idp", namespace="team"))
        imports.want(wanted(up, auth=auth("team", token_service=service("team", ip=None))))
        row = await imports.seen(ServerOutcome.NO_ADDRESS)

    assert "Service" in row.detail
    assert up.wires == []
