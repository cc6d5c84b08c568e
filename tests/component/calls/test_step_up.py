"""What a token lacks for a call that a binding of its caller grants, and that nothing else is told."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from token_kinds import AGENT, ISSUERS, KEYS, LOGIN, account_token, person_token
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject
from toolcrib_registry.calls import step_up
from toolcrib_registry.http.problems import insufficient_scope

ALICE = (PublishedSubject(kind=SubjectKind.USER, issuer=LOGIN, name="alice"),)
TOOLS = (
    tool("seen"),
    tool("vault", scopes=("vault:look", "vault:open")),
    tool("both", scopes=("vault:open", "vault:close"), scope_match="All"),
    tool("denied"),
    tool("disabled", state="Disabled"),
    tool("ungranted"),
    tool("over", scopes=("over:use",)),
    tool("twin", object_name="twin-a", server="a"),
    tool("twin", object_name="twin-b", server="b"),
)
GRANTS = (
    binding("alice", ("seen:use", "vault:open", "vault:close", "denied:use", "disabled:use", "twin:use"), subjects=ALICE),
    binding("denial", (), subjects=ALICE, deny=("denied",)),
    binding("over", ("over:use",), subjects=ALICE, expires_at=1.0),
    binding("bot", ("seen:use",)),
)  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry(
        TOOLS, GRANTS, issuers=ISSUERS, extra_keys=KEYS, public_url="https://crib.example"
    ) as r:
        yield r


def lacking(registry: RunningRegistry, name: str, token: str | None = None) -> tuple[str, ...]:
    deps = registry.registry.deps

    async def ask() -> tuple[str, ...]:
        asker = await deps.agents.identify([] if token is None else [f"Bearer {token}".encode()])
        return await step_up.lacking(deps, asker, step_up.named(name))

    return registry.on_loop(ask)


def alice(scope: Any = "seen:use openid offline_access", **claims: Any) -> str:
    return person_token(AGENT, scope=scope, groups=[], azp="x", **claims)


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        # the one of its scopes that is granted, and what lets the caller in elsewhere
        ("vault", ("seen:use", "vault:open")),
        ("team/vault", ("seen:use", "vault:open")),
        ("both", ("seen:use", "vault:close", "vault:open")),
        ("team/twin-a", ("seen:use", "twin:use")),
    ],
)
def test_the_scopes_that_a_new_token_needs_are_named(
    registry: RunningRegistry, name: str, scopes: tuple[str, ...]
) -> None:
    assert lacking(registry, name, alice()) == scopes


@pytest.mark.parametrize(
    "name", ["seen", "denied", "disabled", "ungranted", "over", "twin", "nothing", "team/nothing", ""]
)
def test_what_no_scope_would_open_stays_absent(registry: RunningRegistry, name: str) -> None:
    assert lacking(registry, name, alice()) == ()


def test_a_token_without_scopes_is_told_the_ones_it_needs(registry: RunningRegistry) -> None:
    assert lacking(registry, "vault", alice(scope=...)) == ("vault:open",)


def test_callers_whose_tokens_carry_no_scopes_are_told_nothing(registry: RunningRegistry) -> None:
    for token in (None, "x", account_token(AGENT), person_token(AGENT, sub="mallory", groups=[], azp="x")):
        assert lacking(registry, "vault", token) == ()


def test_a_403_names_the_scopes(registry: RunningRegistry) -> None:
    error = step_up.InsufficientScope(("seen:use", "vault:open"))
    problem = insufficient_scope(registry.registry.deps.resources["/mcp"], error)

    assert (problem.status_code, problem.code) == (403, "insufficient_scope")
    assert problem.headers == {
        "WWW-Authenticate": 'Bearer error="insufficient_scope", '
        'resource_metadata="https://crib.example/.well-known/oauth-protected-resource/mcp", '
        'scope="seen:use vault:open"'
    }


# ---- over MCP -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stepping_up() -> Iterator[RunningRegistry]:
    with running_registry(
        TOOLS,
        GRANTS,
        issuers=ISSUERS,
        extra_keys=KEYS,
        public_url="https://crib.example",
        discovery={"step_up": True},
    ) as r:
        yield r


def call(
    registry: RunningRegistry, path: str, name: str, token: str, *, batch: bool = False
) -> httpx.Response:
    """A call of a tool by MCP, by its id or, on /mcp/direct, by its name for models."""
    meta = {"name": "call_tool", "arguments": {"tool_id": name}}
    params = meta if path == "/mcp" else {"name": name, "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Authorization": f"Bearer {token}"}
    return registry.http.post(registry.url + path, json=[message] if batch else message, headers=headers)


@pytest.mark.parametrize(
    ("path", "name"), [("/mcp", "vault"), ("/mcp", "team/vault"), ("/mcp/direct", "vault")]
)
def test_a_client_is_told_to_ask_for_the_scope(stepping_up: RunningRegistry, path: str, name: str) -> None:
    answer = call(stepping_up, path, name, alice())

    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
    assert answer.headers["www-authenticate"] == (
        'Bearer error="insufficient_scope", '
        f'resource_metadata="https://crib.example/.well-known/oauth-protected-resource{path}", '
        'scope="seen:use vault:open"'
    )
    again = call(stepping_up, path, name, alice(scope="seen:use vault:open"))
    assert again.json()["result"]["_meta"]["toolcrib.dev/code"] == "no_backend"


def test_a_client_that_follows_progress_is_told_too(stepping_up: RunningRegistry) -> None:
    params = {"name": "vault", "arguments": {}, "_meta": {"progressToken": 1}}
    answer = stepping_up.http.post(
        stepping_up.url + "/mcp/direct",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={"Authorization": f"Bearer {alice()}", "Accept": "application/json, text/event-stream"},
    )

    assert answer.status_code == 403
    assert 'scope="seen:use vault:open"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
@pytest.mark.parametrize("name", ["denied", "disabled", "ungranted", "over", "nothing"])
def test_what_is_not_granted_is_unknown_also_with_step_up(
    stepping_up: RunningRegistry, path: str, name: str
) -> None:
    answer = call(stepping_up, path, name, alice())

    assert answer.status_code == 200
    assert answer.json()["error"] == {"code": -32602, "message": "Unknown tool"}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
def test_without_step_up_a_tool_whose_scope_is_missing_is_unknown(
    registry: RunningRegistry, path: str
) -> None:
    asked, absent = (call(registry, path, name, alice()) for name in ("vault", "nothing"))

    assert (asked.status_code, asked.content) == (absent.status_code, absent.content) == (200, absent.content)


def test_other_paths_do_not_step_up(stepping_up: RunningRegistry) -> None:
    headers = {"Authorization": f"Bearer {alice()}"}
    answer = stepping_up.http.post(
        stepping_up.url + "/v1/call", json={"tool": "vault", "arguments": {}}, headers=headers
    )

    assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
    assert "www-authenticate" not in answer.headers


def test_a_message_of_a_batch_is_refused_by_itself(stepping_up: RunningRegistry) -> None:
    answer = call(stepping_up, "/mcp", "vault", alice(), batch=True)

    assert answer.status_code == 200
    assert answer.json()[0]["error"]["message"] == "Unknown tool"
