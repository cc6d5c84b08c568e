"""`POST /oauth/token` on a real port: RFC 6749's client credentials grant and its errors."""

import asyncio
import base64
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from toolcrib.identity import Identity, ScopesPolicy, check_issuers, verify
from toolcrib_registry.http.edge import AdminEdge
from toolcrib_registry.http.route_table import OAUTH, RouteTable
from toolcrib_registry.http.routes import oauth
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer

pytestmark = pytest.mark.anyio
GRANTED = {"files:use", "calc:use"}


class Endpoint:
    """A running token endpoint with one client."""

    def __init__(self, issuer: LocalIssuer, http: httpx.AsyncClient) -> None:
        self.issuer = issuer
        self.secret = issuer.client_secret("heist", "planner")
        self.http = http

    async def post(self, form: Any, **how: Any) -> httpx.Response:
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        headers = {"content-type": "application/x-www-form-urlencoded", **how.pop("headers", {})}
        return await self.http.post(
            "/oauth/token" + how.pop("query", ""), content=body, headers=headers, **how
        )

    def basic(self, client: str = "heist/planner", secret: str | None = None) -> dict[str, str]:
        pair = f"{quote_plus(client)}:{quote_plus(self.secret if secret is None else secret)}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def identity(self, token: str) -> Identity:
        trusted = check_issuers([self.issuer.issuer])
        return verify(token, issuers=trusted, keys=self.issuer.keyset, now=time.time())


@asynccontextmanager
async def endpoint(folder: Path) -> AsyncIterator[Endpoint]:
    issuer = LocalIssuer.open(folder / "data")
    app = FastAPI()
    app.include_router(
        oauth.router(ClientTokens(issuer, lambda ns, name: GRANTED if name == "planner" else set()))
    )
    edge = AdminEdge(app, RouteTable(OAUTH, None))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(edge, log_config=None, log_level="warning", lifespan="off"))
    task = asyncio.create_task(server.serve([listener]))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=base, trust_env=False) as http:
            yield Endpoint(issuer, http)
    finally:
        server.should_exit = True
        await task
        listener.close()


GRANT = {"grant_type": "client_credentials"}


async def test_a_client_gets_a_token_that_its_bindings_decide(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as end:
        answer = await end.post(GRANT, headers=end.basic())
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        body = answer.json()
        assert (body["token_type"], body["expires_in"], set(body)) == (
            "Bearer", 3_600, {"access_token", "token_type", "expires_in"},
        )  # fmt: skip
        identity = end.identity(body["access_token"])
        assert identity.service_account == ("heist", "planner")
        assert identity.policy is ScopesPolicy.BINDINGS


async def test_the_client_may_authenticate_in_the_body(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as end:
        form = {**GRANT, "client_id": "heist/planner", "client_secret": end.secret}
        assert (await end.post(form)).status_code == 200


async def test_granted_scopes_are_carried_and_an_empty_parameter_counts_as_left_out(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as end:
        answer = await end.post({**GRANT, "scope": "files:use"}, headers=end.basic())
        assert answer.json()["scope"] == "files:use"
        identity = end.identity(answer.json()["access_token"])
        # both must grant: a client cannot leave its bindings' territory by naming a scope
        assert (identity.scopes, identity.policy) == ({"files:use"}, ScopesPolicy.INTERSECTION)
        answer = await end.post({**GRANT, "scope": ""}, headers=end.basic())
        assert end.identity(answer.json()["access_token"]).scopes is None


@pytest.mark.parametrize(
    "scope", ["other:use", "files:use other:use", " ", "registry:admin", 'files:use "', "ё"]
)
async def test_a_scope_that_bindings_do_not_grant_is_invalid_scope(tmp_path: Path, scope: str) -> None:
    async with endpoint(tmp_path) as end:
        answer = await end.post({**GRANT, "scope": scope}, headers=end.basic())
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")


@pytest.mark.parametrize(
    "header",
    [
        "Basic !!!",
        "Basic",
        "Bearer abc",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(b"heist/planner:").decode(),
        "Basic " + base64.b64encode(b"heist/planner:wrong").decode(),
        "Basic " + base64.b64encode(b"heist/nobody:wrong").decode(),
        "Basic " + base64.b64encode(b":").decode(),
    ],
)
async def test_a_client_that_proves_nothing_is_invalid_client(tmp_path: Path, header: str) -> None:
    async with endpoint(tmp_path) as end:
        answer = await end.post(GRANT, headers={"authorization": header})
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert answer.headers["cache-control"] == "no-store"


async def test_unknown_clients_and_wrong_secrets_are_told_the_same(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as end:
        wrong = await end.post({**GRANT, "client_id": "heist/planner", "client_secret": "x"})
        unknown = await end.post({**GRANT, "client_id": "heist/nobody", "client_secret": "x"})
        missing = await end.post(GRANT)
        assert wrong.status_code == unknown.status_code == missing.status_code == 401
        assert wrong.content == unknown.content == missing.content


@pytest.mark.parametrize(
    ("body", "headers", "query", "error"),
    [
        (b"", {}, "", "invalid_request"),
        (b"grant_type=password", {}, "", "unsupported_grant_type"),
        (b"grant_type=client_credentials&grant_type=client_credentials", {}, "", "invalid_request"),
        (b"grant_type=client_credentials&scope=a&scope=", {}, "", "invalid_request"),
        (b"grant_type=client_credentials&client_secret=x", {}, "", "invalid_request"),
        (b"grant_type=client_credentials&client_id=heist/other", {}, "", "invalid_request"),
        (b"grant_type=client_credentials", {}, "?client_secret=x", "invalid_request"),
        (b'{"grant_type":"client_credentials"}', {"content-type": "application/json"}, "", "invalid_request"),
        (b"grant_type=client_credentials&x=" + b"y" * 9_000, {}, "", "invalid_request"),
        (b"grant_type=%ff", {}, "", "invalid_request"),
        (b"grant_type=\xff", {}, "", "invalid_request"),
        (b"&".join(b"a%d=b" % i for i in range(50)), {}, "", "invalid_request"),
    ],
)
async def test_a_malformed_request_gets_the_rfcs_error(
    tmp_path: Path, body: bytes, headers: dict[str, str], query: str, error: str
) -> None:
    async with endpoint(tmp_path) as end:
        answer = await end.post(body, headers={**end.basic(), **headers}, query=query)
        assert (answer.status_code, answer.json()["error"]) == (400, error)
        assert end.secret not in answer.text
        assert answer.headers["cache-control"] == "no-store"


async def test_only_post_is_answered(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as end:
        assert (await end.http.get("/oauth/token")).status_code == 405
