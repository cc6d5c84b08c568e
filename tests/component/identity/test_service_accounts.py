"""The token of a ServiceAccount that was deleted, or made anew since: refused on every route, at once."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import decision_logs
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import slow_backend
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedAccount, PublishedSubject

ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", "/stats", None),
    ("GET", "/tools/calculator", None),
    ("POST", "/tools/calculator", {"expression": "1"}),
    ("GET", "/v1/tools", None),
    ("GET", "/v1/tools/team/calculator", None),
    ("GET", "/v1/watch", None),
    ("POST", "/v1/search", {"query": "calculator"}),
    ("POST", "/v1/describe", {"tool": "calculator"}),
    ("POST", "/v1/load", {"tools": ["calculator"]}),
    ("POST", "/v1/call", {"tool": "calculator", "arguments": {}}),
]


def known(uid: str, name: str = "bot") -> PublishedAccount:
    return PublishedAccount(namespace="team", name=name, uid=uid)


@pytest.fixture
def r() -> Iterator[RunningRegistry]:
    with running_registry(publish=False) as running:
        running.publish([tool("calculator")], [binding("bot")], accounts=[known("u1")])
        yield running


def seen(r: RunningRegistry, **token: Any) -> list[str]:
    answer = r.http.get(r.url, headers=r.auth("team", "bot", **token))
    assert answer.status_code == 200
    return [t["name"] for t in answer.json()["tools"]]


def ask(r: RunningRegistry, headers: dict[str, str], method: str, path: str, body: Any) -> httpx.Response:
    # a stream that is let in would not end
    with r.http.stream(method, r.url + path, headers=headers, json=body, timeout=15) as answer:
        if not answer.headers["content-type"].startswith("text/event-stream"):
            answer.read()
        return answer


def without_id(answer: httpx.Response) -> tuple[int, dict[str, str], Any]:
    """What a caller can tell answers apart by, but for ids, the time and why the token is bad."""
    apart = ("x-request-id", "date", "content-length", "www-authenticate")
    body = answer.json()
    kept = {k: v for k, v in body.items() if k not in ("request_id", "detail")}
    return answer.status_code, {k: v for k, v in answer.headers.items() if k not in apart}, kept


@pytest.mark.parametrize("change", ["deleted", "recreated", "no uid"])
def test_it_is_answered_like_any_bad_token_on_every_route(r: RunningRegistry, change: str) -> None:
    gone = r.auth("team", "bot", uid=None if change == "no uid" else "u1")
    if change == "deleted":
        r.publish(remove_accounts=["team/bot"])
    if change == "recreated":
        r.publish(accounts=[known("u2")])
    for route in ROUTES:
        answer = ask(r, gone, *route)
        forged = ask(r, {"Authorization": "Bearer not.a.token"}, *route)
        assert without_id(answer) == without_id(forged), route
        if route[1].startswith("/v1/") or route[0] == "POST":
            assert (answer.status_code, answer.json()["code"]) == (401, "invalid_token"), route
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_the_decision_log_says_whose_token_it_was(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "key_file": decision_logs.key_file(tmp_path)}
    with running_registry(publish=False, audit=audit) as r:
        r.publish([tool("calculator")], [binding("bot")], accounts=[known("u2")])
        for route in ROUTES:
            ask(r, r.auth("team", "bot", uid="u1"), *route)
        ask(r, {"Authorization": "Bearer not.a.token"}, *ROUTES[0])
    found = [f for f in decision_logs.records(path) if not f["action"].startswith("audit.")]
    ghosts = [f for f in found if f["reason"] == "account_gone"]
    (nobody,) = [f for f in found if f not in ghosts]
    assert sum(decision_logs.accounted(ghosts).values()) == len(ROUTES)
    assert {(g["subject"], g["reason"], g["allowed"], g.get("tool")) for g in ghosts} == {
        ("system:serviceaccount:team:bot", "account_gone", False, None)
    }
    assert (nobody["subject"], nobody["reason"]) == (None, "no_identity")


def test_a_token_of_the_account_that_there_is_now_works(r: RunningRegistry) -> None:
    assert seen(r, uid="u1") == ["calculator"]
    r.publish(accounts=[known("u2")])
    assert seen(r, uid="u1") == []
    assert seen(r, uid="u2") == ["calculator"]


def test_what_was_kept_for_the_account_is_not_served_to_its_successor_nor_to_its_ghost(
    r: RunningRegistry,
) -> None:
    headers = r.auth("team", "bot", uid="u1")
    first = r.http.get(r.url, headers=headers)
    assert r.http.get(r.url, headers=headers | {"If-None-Match": first.headers["etag"]}).status_code == 304
    r.publish(remove_accounts=["team/bot"])
    after = r.http.get(r.url, headers=headers | {"If-None-Match": first.headers["etag"]})
    assert (after.status_code, after.json()["tools"], after.json()["authenticated"]) == (200, [], False)


def test_where_anybody_may_list_the_ghost_may_not() -> None:
    with running_registry(publish=False, discovery={"anonymous": "list"}) as open_to_all:
        open_to_all.publish([tool("calculator")], [binding("bot")], accounts=[])
        assert [t["name"] for t in open_to_all.http.get(open_to_all.url).json()["tools"]] == ["calculator"]
        assert seen(open_to_all, uid="u1") == []


def test_a_watch_stream_is_emptied_and_ends(r: RunningRegistry) -> None:
    events: list[tuple[str, Any]] = []
    with r.http.stream("GET", r.url + "/v1/watch", headers=r.auth("team", "bot", uid="u1")) as stream:
        kind = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((kind, json.loads(line.removeprefix("data: "))))
                if kind == "snapshot":
                    r.publish(accounts=[known("u2")])
    assert [kind for kind, _ in events] == ["snapshot", "removed", "end"]
    assert events[1][1]["tool_id"] == "team/calculator"
    assert events[2][1] == {"reason": "invalid_token"}


def test_a_call_in_flight_of_an_account_that_goes_is_cut() -> None:
    with slow_backend() as slow, running_registry(publish=False) as r, ThreadPoolExecutor(1) as pool:
        r.publish([tool("calculator", backend=backend(slow.port))], [binding("bot")], accounts=[known("u1")])
        headers = r.auth("team", "bot", uid="u1")
        call = pool.submit(r.http.post, f"{r.url}/tools/calculator", headers=headers, json={})
        slow.began.get(timeout=30)
        began = time.monotonic()
        r.publish(accounts=[known("u2")])
        assert (call.result(30).status_code, call.result().json()["code"]) == (403, "revoked")
        assert time.monotonic() - began < 5, "what is promised"
        metrics = r.metrics()
        assert 'toolcrib_calls_cut_total{reason="account_gone"} 1.0' in metrics


def test_one_that_is_bound_through_the_group_of_its_namespace_alone_is_refused_too(
    r: RunningRegistry,
) -> None:
    everybody = PublishedSubject(
        kind=SubjectKind.GROUP, issuer="https://issuer.test", name="system:serviceaccounts:team"
    )
    grant = binding("anybody", subjects=(everybody,))
    r.publish([], [grant], accounts=[known("c1", "cook")])
    names = [
        [t["name"] for t in r.http.get(r.url, headers=r.auth("team", "cook", uid=uid)).json()["tools"]]
        for uid in ("c1", "c0")
    ]
    assert names == [["calculator"], []]


def test_where_the_leader_knows_no_accounts_nothing_is_held_against_them() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        assert seen(r) == seen(r, uid="whatever") == ["calculator"]


def test_the_operators_own_account_is_not_held_against_what_it_publishes(r: RunningRegistry) -> None:
    r.publish(remove_accounts=["team/bot"])
    assert r.admin("GET", "/v1/admin/state").status_code == 200
