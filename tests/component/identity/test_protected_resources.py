"""`/mcp` and `/mcp/direct` as protected resources of OAuth: whose tokens they take, and what they tell clients without one."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from registry_harness import RunningRegistry, binding, mint, running_registry, tool
from token_kinds import ISSUERS as TRUSTED
from token_kinds import KEYS, LOGIN, Target, account_token, person_token
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib_registry.identity import resources

BASE = "https://crib.example"
MCP, DIRECT = (BASE + path for path in resources.PATHS)
DEX = Issuer(issuer="https://dex.test", audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS)
BOT = "system:serviceaccount:team:bot"


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry(
        [tool("calculator")],
        [binding("bot")],
        issuers=(*TRUSTED, DEX),
        extra_keys={**KEYS, DEX.issuer: {}},
        public_url=BASE,
        oauth={"scopes_supported": ["calculator:use", "vault:open"]},
    ) as r:
        yield r


def metadata(registry: RunningRegistry, path: str) -> httpx.Response:
    return registry.http.get(registry.url + resources.WELL_KNOWN + path)


def ask(registry: RunningRegistry, path: str, token: str | None = None) -> tuple[int, str | None, Any]:
    """Status, challenge and body of a ping."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    answer = registry.http.post(registry.url + path, json=ping, headers=headers)
    return answer.status_code, answer.headers.get("www-authenticate"), answer.json()


# ---- metadata -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", resources.PATHS)
def test_metadata_names_where_clients_log_in(registry: RunningRegistry, path: str) -> None:
    answer = metadata(registry, path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "resource": BASE + path,
        "resource_name": "Toolcrib",
        "authorization_servers": [LOGIN, "https://other.test", DEX.issuer],
        "scopes_supported": ["calculator:use", "vault:open"],
        "bearer_methods_supported": ["header"],
    }


def test_metadata_is_public_and_the_same_for_all(registry: RunningRegistry) -> None:
    alone = metadata(registry, "/mcp")
    url = registry.url + resources.WELL_KNOWN + "/mcp"
    bad = registry.http.get(url, headers={"Authorization": "Bearer not.a.token"})

    assert (bad.status_code, bad.content) == (200, alone.content)
    assert alone.headers["cache-control"] == "public, max-age=300"


@pytest.mark.parametrize("told", [{"issuers": TRUSTED[:1]}, {"oauth": {"authorization_servers": []}}])
def test_where_no_issuer_offers_a_login_there_is_no_metadata(told: Any) -> None:
    with running_registry(**{"issuers": TRUSTED, "extra_keys": KEYS, **told}) as r:
        found = metadata(r, "/mcp")
        absent = r.http.get(r.url + resources.WELL_KNOWN + "/other")

        assert (found.status_code, found.json()) == (absent.status_code, absent.json())
        assert found.json()["code"] == "not_found"
        assert ask(r, "/mcp")[:2] == (401, 'Bearer realm="toolcrib"')
        described = 'error="invalid_token", error_description="the token is malformed"'
        assert ask(r, "/mcp", "x")[:2] == (401, f'Bearer realm="toolcrib", {described}')


def test_the_cluster_and_the_local_issuer_offer_no_login() -> None:
    with running_registry() as r:  # the harness's issuer is both
        assert metadata(r, "/mcp").status_code == 404


# ---- challenges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", resources.PATHS)
def test_a_caller_without_a_token_is_told_where_to_get_one(registry: RunningRegistry, path: str) -> None:
    status, challenge, problem = ask(registry, path)

    assert (status, problem["code"]) == (401, "unauthenticated")
    assert challenge == (
        f'Bearer resource_metadata="{BASE}{resources.WELL_KNOWN}{path}", scope="calculator:use vault:open"'
    )


def test_a_bad_token_is_called_invalid(registry: RunningRegistry) -> None:
    status, challenge, problem = ask(registry, "/mcp", "not.a.token")

    assert (status, problem["code"]) == (401, "invalid_token")
    assert challenge == (
        'Bearer error="invalid_token", error_description="the token is malformed", '
        f'resource_metadata="{BASE}{resources.WELL_KNOWN}/mcp", '
        'scope="calculator:use vault:open"'
    )


def test_scopes_of_a_challenge_are_never_those_of_the_tools() -> None:
    with running_registry([tool("calculator")], issuers=TRUSTED, extra_keys=KEYS, public_url=BASE) as r:
        for path in resources.PATHS:
            for token in (None, "x"):
                assert "scope" not in (ask(r, path, token)[1] or "")


def test_other_paths_are_challenged_as_before(registry: RunningRegistry) -> None:
    answer = registry.http.get(registry.url + "/v1/tools")

    assert answer.headers["www-authenticate"] == 'Bearer realm="toolcrib"'


# ---- audiences ----------------------------------------------------------------------------------------------------


def tokens(audience: Any) -> list[str]:
    """A service account's and a person's."""
    target = Target(BOT, audience, "")
    return [account_token(target, aud=audience), person_token(target)]


def on_v1(registry: RunningRegistry, token: str) -> int:
    answer = registry.http.get(registry.url + "/v1/tools", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code


@pytest.mark.parametrize(
    ("audience", "expected"),
    [
        ("toolcrib", (200, 200, 200)),
        (MCP, (200, 401, 401)),
        (DIRECT, (401, 200, 401)),
        ([MCP, DIRECT], (200, 200, 401)),
        ([DIRECT, "toolcrib"], (200, 200, 200)),
        (BASE, (401, 401, 401)),
        (MCP + "/", (401, 401, 401)),
        (MCP.upper(), (401, 401, 401)),
        ("somebody-else", (401, 401, 401)),
    ],
)
def test_a_token_is_good_where_it_is_meant_for(
    registry: RunningRegistry, audience: Any, expected: tuple[int, int, int]
) -> None:
    for token in tokens(audience):
        found = (
            ask(registry, "/mcp", token)[0],
            ask(registry, "/mcp/direct", token)[0],
            on_v1(registry, token),
        )
        assert found == expected
        # and again, from memory
        assert on_v1(registry, token) == expected[2]
        assert ask(registry, "/mcp/direct", token)[0] == expected[1]


def test_a_token_of_a_resource_is_not_the_operators(registry: RunningRegistry) -> None:
    for audience in (MCP, DIRECT):
        headers = registry.admin_auth(audience=audience)
        answer = registry.http.get(registry.admin_url + "/v1/admin/state", headers=headers)
        assert answer.status_code == 401


def test_every_method_of_a_resource_has_its_challenge(registry: RunningRegistry) -> None:
    metadata_url = f'resource_metadata="{BASE}{resources.WELL_KNOWN}'
    for method in ("GET", "POST", "DELETE", "PUT"):
        for path in resources.PATHS:
            answer = registry.http.request(method, registry.url + path)
            assert answer.status_code == 401
            assert f'{metadata_url}{path}"' in answer.headers["www-authenticate"]


def test_a_token_by_another_issuer_is_refused_whatever_its_audience(registry: RunningRegistry) -> None:
    token = person_token(Target(BOT, MCP, ""), iss="https://evil.test")

    assert ask(registry, "/mcp", token)[2]["code"] == "invalid_token"


def test_the_public_urls_own_host_is_answered(registry: RunningRegistry) -> None:
    url = registry.url + "/healthz"

    assert registry.http.get(url, headers={"Host": "crib.example"}).status_code == 200
    assert registry.http.get(url, headers={"Host": "other.example"}).status_code == 421


def test_a_stream_goes_on_with_a_token_of_its_own_path() -> None:
    with running_registry([tool("calculator")], [binding("bot")], public_url=BASE) as r:
        token = mint(BOT, audience=DIRECT)
        headers = {"Authorization": f"Bearer {token}"}
        with r.http.stream("GET", r.url + "/mcp/direct", headers=headers) as stream:
            lines = stream.iter_lines()
            assert (stream.status_code, next(lines)) == (200, ": ready")
            r.publish([tool("lens", scopes=("calculator:use",))])
            told = next(line for line in lines if line.startswith("data:"))

    assert "notifications/tools/list_changed" in told
