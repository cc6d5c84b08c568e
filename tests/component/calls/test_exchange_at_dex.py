"""The registry exchanges a user's token at a real Dex, and a backend gets a token of Dex that is not the user's own."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import jwt
import pytest

from dex import EXCHANGE, Dex, secret_of
from mcp_upstream import McpUpstream, running, stateless
from realparts.required import require_real
from registry_harness import ISSUER, RunningRegistry, running_registry, tool
from token_endpoint import auth, credentials
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.backends import AuthType
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import PublishedBinding, PublishedSubject

pytestmark = pytest.mark.real

CLIENT = "toolcrib"
STABLE = base64.urlsafe_b64encode(b"\x0a\x0808a8684b\x12\x05local").rstrip(b"=").decode()
"""Dex's `sub` of the user."""


@pytest.fixture(scope="module")
def dex() -> Iterator[Dex]:
    require_real("dex")
    with Dex([CLIENT], exchanges=True) as found:
        yield found


def granted(dex: Dex) -> PublishedBinding:
    user = PublishedSubject(kind=SubjectKind.USER, issuer=dex.issuer, name=STABLE)
    return PublishedBinding(
        uid="u", kind="AgentScopeBinding", namespace="team", name="alice", subjects=(user,), namespaces=("team",),
        scopes=("ask:use",),
    )  # fmt: skip


@pytest.fixture
def place(dex: Dex) -> Iterator[tuple[RunningRegistry, McpUpstream]]:
    found = jwt.PyJWKSet.from_dict(dex.client.get(f"{dex.issuer}/keys").json())
    keys = {dex.issuer: {str(each.key_id): each.key for each in found.keys}}
    with ExitStack() as stack:
        up = stack.enter_context(running(stateless()))
        how = auth("team", scope="openid profile").model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
        backend = PublishedBackend(url=up.url, auth=how, mcp=PublishedMcp(server="team/files", tool="ask"))
        issuers = (
            Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True),
            Issuer(
                issuer=dex.issuer, audience=(CLIENT,), scopes=ScopesPolicy.BINDINGS, accept_id_tokens=True,
                exchange_url=f"{dex.issuer}/token",
                exchange_parameters={"connector_id": EXCHANGE},
            ),
        )  # fmt: skip
        registry = stack.enter_context(
            running_registry([tool("ask", backend=backend)], [granted(dex)], issuers=issuers, extra_keys=keys)
        )
        registry.heartbeat()
        given = credentials(
            dex.url, up.url.removesuffix("/mcp"), namespace="team", client=CLIENT, secret=secret_of(CLIENT)
        )
        registry.admin("POST", "/v1/admin/credentials", content=given.model_dump_json()).raise_for_status()
        yield registry, up


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def test_a_backend_gets_a_token_of_dex_for_the_user_that_calls(
    dex: Dex, place: tuple[RunningRegistry, McpUpstream]
) -> None:
    registry, up = place
    own = dex.user_token(CLIENT, "openid profile email")["access_token"]

    answer = registry.http.post(
        f"{registry.url}/v1/call",
        headers={"Authorization": f"Bearer {own}"},
        json={"tool": "ask", "arguments": {"q": 1}},
    )

    assert (answer.status_code, answer.json().get("result")) == (200, {"q": 1}), answer.text
    sent = up.of("tools/call")[0].request.headers["authorization"].removeprefix("Bearer ")
    assert sent != own
    assert claims(sent)["iss"] == dex.issuer
    assert claims(sent)["aud"] == CLIENT
    assert own not in str(up.wires)
