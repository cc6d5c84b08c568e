"""Problem documents have the same headers from every source: the edge, a route past FastAPI, FastAPI, another listener."""

from collections.abc import Iterator

import httpx
import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool

OWN = {"www-authenticate", "allow"}
"""Fields that belong to one status."""


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        yield r


def refusals(r: RunningRegistry) -> dict[str, httpx.Response]:
    token = r.auth("team", "bot")
    return {
        "edge, before the route": r.http.get(r.url + "/v1/tools"),
        "edge, no route": r.http.get(r.url + "/nothing", headers=token),
        "edge, another method": r.http.delete(r.url + "/v1/tools", headers=token),
        "edge, another host": r.http.get(r.url + "/v1/tools", headers={"Host": "evil.test"}),
        "past FastAPI": r.http.post(r.url + "/v1/call", headers=token, json={"tool": "vault"}),
        "past FastAPI, its model": r.http.post(r.url + "/v1/call", headers=token, json={}),
        "FastAPI": r.http.get(r.url + "/v1/tools/team/vault", headers=token),
        "FastAPI, its model": r.http.post(r.url + "/v1/load", headers=token, json={}),
        "admin listener": r.admin("POST", "/v1/admin/publish", content=b"{"),
    }


def test_every_problem_has_the_same_headers_and_may_not_be_kept(registry: RunningRegistry) -> None:
    answers = refusals(registry)

    fields = {who: [name for name in a.headers if name not in OWN] for who, a in answers.items()}
    assert {who: a.status_code for who, a in answers.items() if a.status_code < 400} == {}
    assert {who: sorted(f) for who, f in fields.items()} == dict.fromkeys(
        fields, sorted(fields["edge, before the route"])
    )
    assert {who: a.headers["cache-control"] for who, a in answers.items()} == dict.fromkeys(
        answers, "no-store"
    )
