"""A caller's token through a whole registry: exchanged at the issuer that made it, in no log, metric or record, and worth nothing
once the grant is gone."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from imported import toolserver
from mcp_client import McpClient
from mcp_upstream import STATELESS, Wire, handshake, running, stateless
from published import account
from realparts.processes import wait_until
from registry_harness import ISSUER, RunningRegistry, binding, running_registry, tool
from scripted_backend import ScriptedBackend
from stub_server import Answer, Asked, answering
from token_endpoint import auth, credentials
from toolcrib import publishing
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib_registry.identity.key_store import KeyStore

EXCHANGED = "exchanged-for-the-caller"


@pytest.fixture
def asked() -> list[Asked]:
    """What the issuer was asked."""
    return []


@pytest.fixture
def on_new_keys(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the registry has called when an issuer's keys change."""
    told: list[Callable[[], None]] = []
    monkeypatch.setattr(KeyStore, "on_change", lambda keys, each: told.append(each))
    return told


@pytest.fixture
def registry(
    request: pytest.FixtureRequest,
    asked: list[Asked],
    on_new_keys: list[Callable[[], None]],
    tmp_path: Path,
) -> Iterator[RunningRegistry]:
    def answer(request: Asked) -> Answer:
        asked.append(request)
        said = {"access_token": EXCHANGED, "token_type": "Bearer", "issued_token_type": "x", "expires_in": 60}
        return Answer(json.dumps(said).encode())

    with ExitStack() as stack:
        issuer = f"http://127.0.0.1:{stack.enter_context(answering(answer))}"
        up = stack.enter_context(running(getattr(request, "param", stateless)()))
        how = auth("team").model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
        place = PublishedBackend(url=up.url, auth=how, mcp=PublishedMcp(server="team/files", tool="ask"))
        trusted = Issuer(
            issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True,
            exchange_url=f"{issuer}/token",
        )  # fmt: skip
        found = stack.enter_context(
            running_registry(
                [tool("ask", backend=place)], [binding("bot", ("ask:use",))], issuers=(trusted,),
                audit={"path": str(tmp_path / "decisions.log"), "arguments": "plain"},
            )
        )  # fmt: skip
        found.heartbeat()
        given = credentials(issuer, up.url.removesuffix("/mcp"), namespace="team")
        assert (
            found.admin("POST", "/v1/admin/credentials", content=given.model_dump_json()).status_code == 200
        )
        found.up = up  # type: ignore[attr-defined]
        yield found


def call(registry: RunningRegistry, token: str, path: str = "/v1/call") -> tuple[int, Any]:
    body: Any = {"tool": "ask", "arguments": {"q": 1}} if path == "/v1/call" else {"q": 1}
    answer = registry.http.post(
        f"{registry.url}{path}", headers={"Authorization": f"Bearer {token}"}, json=body
    )
    return answer.status_code, answer.json()


def test_each_callers_token_goes_to_its_issuer_alone_and_stands_nowhere(
    registry: RunningRegistry, asked: list[Asked], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = registry.token("team", "bot"), registry.token("team", "bot", jti="2")

    with caplog.at_level(logging.DEBUG, "toolcrib"), caplog.at_level(logging.DEBUG, "toolcrib_registry"):
        for token in (one, one, other):
            assert call(registry, token)[0] == 200
        assert call(registry, one, "/tools/ask") == (200, {"q": 1})

    assert [parse_qs(r.body.decode())["subject_token"] for r in asked] == [[one], [other]]
    wires = registry.up.wires  # type: ignore[attr-defined]
    assert {w.request.headers["authorization"] for w in wires} == {f"Bearer {EXCHANGED}"}
    registry.registry.deps.decisions.close()
    shown = caplog.text + registry.metrics() + (tmp_path / "decisions.log").read_text() + str(wires)
    assert one.rpartition(".")[2] not in shown
    assert EXCHANGED not in caplog.text + registry.metrics() + (tmp_path / "decisions.log").read_text()


def test_a_revoked_grant_leaves_nothing_of_the_exchange(
    registry: RunningRegistry, asked: list[Asked]
) -> None:
    token = registry.token("team", "bot")
    assert call(registry, token)[0] == 200
    registry.publish(remove_bindings=[binding("bot", ("ask:use",)).uid])

    status, problem = call(registry, token)

    assert (status, problem["code"]) == (403, "not_permitted")
    assert len(asked) == 1
    assert len(registry.up.of("tools/call")) == 1  # type: ignore[attr-defined]


def test_new_keys_of_an_issuer_end_what_was_exchanged_with_the_earlier_ones(
    registry: RunningRegistry, asked: list[Asked], on_new_keys: list[Callable[[], None]]
) -> None:
    async def changed() -> None:
        for told in on_new_keys:
            told()

    token = registry.token("team", "bot")
    call(registry, token)
    registry.on_loop(changed)

    assert call(registry, token)[0] == 200
    assert len(asked) == 2


def test_resources_are_listed_and_read_by_each_callers_own_token(
    registry: RunningRegistry, asked: list[Asked]
) -> None:
    up = registry.up  # type: ignore[attr-defined]
    kept = {"ttlMs": 60_000, "cacheScope": "private"}

    async def list_(wire: Wire) -> None:
        await wire.result(resources=[{"uri": "docs://mine", "name": "mine"}], **kept)

    async def discover(wire: Wire) -> None:
        await wire.result(
            resultType="complete", supportedVersions=[STATELESS], capabilities={"resources": {}}, **kept
        )

    async def read(wire: Wire) -> None:
        await wire.result(contents=[{"uri": "docs://mine", "text": "x"}], **kept)

    up.on |= {"resources/list": list_, "resources/read": read, "server/discover": discover}
    server = publishing.server(toolserver("files", up.url), None)
    assert server is not None
    how = auth("team").model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
    parts = [
        part.model_copy(update={"backend": part.backend.model_copy(update={"auth": how})})
        for part in server.parts
        if part.backend is not None
    ]
    two = (account("team", "bot"), account("team", "twin"))
    registry.publish(
        servers=[server.model_copy(update={"parts": tuple(parts)})],
        bindings=[binding("files", ("files:use",), subjects=two)],
    )

    for who in ("bot", "twin", "bot"):
        client = McpClient(registry, who=who)
        assert [each["uri"] for each in client.result("resources/list")["resources"]] == ["docs://mine"]
        client.result("resources/read", {"uri": "docs://mine"})

    assert len(up.of("resources/list")) == 2, "no list of another caller is shown"
    tokens = {parse_qs(r.body.decode())["subject_token"][0] for r in asked}
    assert len(tokens) >= 2
    assert {w.request.headers["authorization"] for w in up.wires} == {f"Bearer {EXCHANGED}"}


@pytest.mark.parametrize("registry", [handshake], indirect=True)
def test_a_session_that_was_begun_for_a_caller_ends_with_the_callers_token(registry: RunningRegistry) -> None:
    up = registry.up  # type: ignore[attr-defined]
    lasting, brief = registry.token("team", "bot"), registry.token("team", "bot", exp=int(time.time()) + 2)
    for token in (lasting, brief):
        assert call(registry, token)[0] == 200

    wait_until(lambda: up.of("DELETE"))
    assert [w.request.headers["mcp-session-id"] for w in up.of("DELETE")] == ["session-2"]


@pytest.mark.parametrize("exchange_url", [None, "http://127.0.0.1:9/token"])
def test_a_callers_token_is_carried_to_no_tool_but_those_that_take_it_from_an_issuer_that_exchanges(
    exchange_url: str | None,
) -> None:
    to, backend = PublishedBackend(url="http://127.0.0.1:9/"), ScriptedBackend()
    backend.answers()
    takes = to.model_copy(update={"auth": auth("team").model_copy(update={"type": AuthType.TOKEN_EXCHANGE})})
    own = to.model_copy(update={"auth": auth("team", token_url="http://127.0.0.1:9/token")})
    tools = [tool("ask", backend=takes), tool("plain", backend=to), tool("own", backend=own)]
    bot = binding("bot", ("ask:use", "plain:use", "own:use"))
    issuer = Issuer(
        issuer=ISSUER,
        audience=("toolcrib",),
        scopes=ScopesPolicy.LOCAL,
        cluster=True,
        exchange_url=exchange_url,
    )
    with running_registry(tools, [bot], backend=backend, issuers=(issuer,)) as found:
        found.heartbeat()
        token = found.token("team", "bot")
        headers = {"Authorization": f"Bearer {token}"}
        for name in ("ask", "plain", "own"):
            body = {"tool": name, "arguments": {}}
            assert found.http.post(f"{found.url}/v1/call", headers=headers, json=body).status_code == 200

    assert [exchange.token for exchange in backend.given] == ["" if exchange_url is None else token, "", ""]
