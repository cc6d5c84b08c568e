"""Limits of bindings on one real registry: whom a call is charged to, what is refused, and what is said then."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import (
    ISSUER,
    ManualClock,
    RunningRegistry,
    backend,
    binding,
    keyset,
    mint,
    running_registry,
    tool,
)
from slow_backend import SlowBackend, slow_backend
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedSubject, PublishedTool

FOREVER = 1e9


@pytest.fixture(scope="module")
def quick() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        running.answer()
        yield running


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(50) as pool:
        yield pool


def limited(account: str = "bot", **fields: Any) -> PublishedBinding:
    """A binding with limits; names as in `PublishedLimits` are its limits."""
    limits = {n: fields.pop(n) for n in tuple(fields) if n in PublishedLimits.model_fields}
    return binding(account, limits=PublishedLimits(**limits) if limits else None, **fields)


def call(r: RunningRegistry, account: str = "bot", name: str = "calculator", **token: Any) -> httpx.Response:
    return r.http.post(f"{r.url}/tools/{name}", headers=r.auth("team", account, **token), json={})


def statuses(r: RunningRegistry, times: int, account: str = "bot", name: str = "calculator") -> list[int]:
    return [call(r, account, name).status_code for _ in range(times)]


def calculator(at: SlowBackend, **fields: Any) -> PublishedTool:
    return tool("calculator", backend=backend(at.port), **fields)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("limit", "seconds"), [("per_minute", 60), ("per_day", 86_400)], ids=["minute", "day"]
)
def test_a_used_up_window_is_429_with_the_time_until_there_is_room(
    quick: SlowBackend, limit: str, seconds: int
) -> None:
    clock = ManualClock()
    with running_registry(
        [calculator(quick)], [limited(**{limit: 3})], clock=clock, policy_max_age=FOREVER
    ) as r:
        assert statuses(r, 2) == [200, 200]
        clock.advance(seconds / 3)
        assert statuses(r, 1) == [200]
        refused = call(r)
        unlike = r.http.post(f"{r.url}/v1/call", headers=r.auth("team", "bot"), json={"tool": "calculator"})
        clock.advance(int(refused.headers["retry-after"]) + 0.1)
        assert statuses(r, 3) == [200, 200, 429]
        metrics = r.metrics()
        documented = r.http.get(f"{r.url}/openapi.json").json()["paths"]

    assert all("429" in documented[path]["post"]["responses"] for path in ("/v1/call", "/tools/{name}"))
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["limit"]) == (429, "limit_exceeded", limit)
    assert set(problem) == {"type", "title", "status", "code", "detail", "hint", "limit"}
    assert abs(int(refused.headers["retry-after"]) - seconds * 2 / 3) <= 1
    assert (unlike.status_code, unlike.json()["code"]) == (429, "limit_exceeded")
    kind = 'grant="team/bot",kind="AgentScopeBinding"'
    assert f'toolcrib_limited_calls_total{{{kind},limit="{limit}"}} 3.0' in metrics
    assert f"toolcrib_grant_uses_total{{{kind}}} 5.0" in metrics
    assert 'outcome="limit_exceeded"' in metrics


def test_calls_under_way_hold_slots_and_give_them_back_before_they_are_answered(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    with running_registry([calculator(slow)], [limited(concurrent=2)]) as r:
        held = [threads.submit(call, r) for _ in range(2)]
        for _ in held:
            slow.began.get(timeout=30)
        refused = call(r)
        slow.answer()
        assert [f.result(30).status_code for f in held] == [200, 200]
        # one after the other: each finds the slot of the one before free
        assert statuses(r, 20) == [200] * 20

    assert (refused.status_code, refused.json()["limit"]) == (429, "concurrent")
    assert refused.headers["retry-after"] == "1"


def test_a_call_that_is_cut_by_a_revocation_gives_its_slot_back(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    two = [limited(concurrent=1), limited(name="z-other", concurrent=1)]
    with running_registry([calculator(slow)], two) as r:
        held = threads.submit(call, r)
        slow.began.get(timeout=30)
        r.publish(bindings=[binding("bot", (), name="no", deny=("calc*",))])
        assert held.result(30).json()["code"] == "revoked"
        r.publish(remove_bindings=["uid-team-no"])
        slow.answer()
        assert statuses(r, 3) == [200, 200, 200]
        uses = r.metrics()

    assert 'toolcrib_grant_uses_total{grant="team/bot",kind="AgentScopeBinding"} 4.0' in uses


def test_tokens_of_one_subject_share_and_subjects_of_one_binding_do_not(quick: SlowBackend) -> None:
    both = tuple(
        PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team", name=n) for n in ("bot", "other")
    )
    with running_registry([calculator(quick)], [limited(per_minute=2, subjects=both)]) as r:
        tokens = [r.auth("team", "bot", ttl=ttl, jti=f"token-{ttl}") for ttl in (600, 700, 800)]
        answers = [r.http.post(f"{r.url}/tools/calculator", headers=t, json={}) for t in tokens]
        assert [a.status_code for a in answers] == [200, 200, 429]
        assert statuses(r, 3, "other") == [200, 200, 429]


def test_one_name_of_two_issuers_is_two_callers(quick: SlowBackend) -> None:
    places = ("https://here.test", "https://elsewhere.test")
    users = tuple(PublishedSubject(kind=SubjectKind.USER, issuer=i, name="ada") for i in places)
    cluster = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)
    others = [Issuer(issuer=i, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS) for i in places]
    with running_registry(
        [calculator(quick)],
        [limited(per_minute=1, subjects=users)],
        issuers=(cluster, *others),
        extra_keys={i: keyset()[ISSUER] for i in places},
    ) as r:

        def ada(issuer: str) -> int:
            bearer = {"Authorization": f"Bearer {mint('ada', iss=issuer)}"}
            return r.http.post(f"{r.url}/tools/calculator", headers=bearer, json={}).status_code

        assert [ada(places[0]), ada(places[1]), ada(places[0]), ada(places[1])] == [200, 200, 429, 429]


def test_a_recreated_binding_starts_at_zero_and_an_edited_one_does_not(quick: SlowBackend) -> None:
    with running_registry([calculator(quick)], [limited(per_minute=2)]) as r:
        assert statuses(r, 3) == [200, 200, 429]
        r.publish(bindings=[limited(per_minute=3, generation=2)])
        assert statuses(r, 2) == [200, 429]
        r.publish(bindings=[limited(per_minute=1, generation=3)])
        assert statuses(r, 1) == [429]
        r.publish(bindings=[limited(generation=4)])
        assert statuses(r, 5) == [200] * 5

        again = limited(per_minute=2, uid="uid-made-anew")
        r.publish(bindings=[again], remove_bindings=["uid-team-bot"])
        assert statuses(r, 3) == [200, 200, 429]


def test_the_next_binding_takes_over_and_is_the_one_that_is_named_logged_and_counted(
    quick: SlowBackend, tmp_path: Path
) -> None:
    first = limited(name="a-first", per_minute=1)
    second = limited(name="b-second", per_minute=2, generation=7)
    whole = limited(name="z-cluster", namespace=None, per_minute=1)
    with running_registry(
        [calculator(quick)], [second, first, whole], decision_log=str(tmp_path / "log")
    ) as r:
        assert statuses(r, 5) == [200, 200, 200, 200, 429]
        metrics = r.metrics()

    made = [(e["outcome"], e["binding"]["uid"], e["binding"]["generation"]) for e in records(tmp_path / "log")
            if e.get("outcome")]  # fmt: skip
    assert made == [
        ("ok", "uid-None-z-cluster", 1),
        ("ok", "uid-team-a-first", 1),
        ("ok", "uid-team-b-second", 7),
        ("ok", "uid-team-b-second", 7),
        ("limit_exceeded", "uid-None-z-cluster", 1),
    ]
    assert 'toolcrib_grant_uses_total{grant="team/b-second",kind="AgentScopeBinding"} 2.0' in metrics


def test_scopes_that_only_several_bindings_grant_together_charge_each_once(quick: SlowBackend) -> None:
    made = calculator(quick, scopes=("a:use", "b:use", "c:use"), scope_match=ScopeMatch.ALL)
    left = limited(name="left", scopes=["a:use", "b:use"], per_minute=4)
    right = limited(name="right", scopes=["c:use"], per_minute=2)
    alone = tool("alone", backend=backend(quick.port), scopes=("a:use",))
    with running_registry([made, alone], [left, right]) as r:
        assert statuses(r, 4) == [200, 200, 429, 429]
        # the two that were refused for `right` are not counted on `left`
        assert statuses(r, 3, name="alone") == [200, 200, 429]


def test_what_is_let_through_counts_whatever_becomes_of_it_and_what_is_refused_does_not(
    quick: SlowBackend,
) -> None:
    clock = ManualClock()
    strict = {"type": "object", "properties": {}, "additionalProperties": False}
    made = [
        calculator(quick, input_schema=strict),
        tool("nowhere", scopes=("calculator:use",)),
    ]
    with running_registry(made, [limited(per_minute=3, per_day=5)], clock=clock, policy_max_age=FOREVER) as r:
        headers = r.auth("team", "bot")
        wrong = r.http.post(f"{r.url}/tools/calculator", headers=headers, json={"x": 1})
        assert (wrong.status_code, call(r, name="nowhere").status_code) == (400, 503)
        assert statuses(r, 30) == [200, *[429] * 29]
        clock.advance(61)
        # three of five were counted on the day
        assert statuses(r, 5) == [200, 200, 429, 429, 429]


def test_the_decision_comes_first_a_used_up_limit_tells_a_stranger_nothing(quick: SlowBackend) -> None:
    with running_registry(
        [calculator(quick)], [limited(per_minute=1), limited("stranger", scopes=["x:use"])]
    ) as r:
        assert statuses(r, 2) == [200, 429]
        denied, unknown = call(r, "stranger"), call(r, "stranger", "unknown")
        assert (denied.status_code, denied.content) == (403, unknown.content)
        # reads are not charged: the same tool is still listed, described and loaded
        headers = r.auth("team", "bot")
        assert r.http.get(r.url, headers=headers).json()["total_available"] == 1
        assert r.http.get(f"{r.url}/tools/calculator", headers=headers).status_code == 200
        # nothing is counted for a token whose scopes alone decide
        assert [call(r, scopes="calculator:use").status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("limit", ["per_minute", "per_day"])
def test_of_fifty_callers_at_once_exactly_the_limit_gets_through(
    quick: SlowBackend, threads: ThreadPoolExecutor, limit: str
) -> None:
    with running_registry([calculator(quick)], [limited(**{limit: 17})]) as r:
        found = [f.result(30) for f in [threads.submit(call, r) for _ in range(50)]]
    assert sum(a.status_code == 200 for a in found) == 17
    assert {a.json()["limit"] for a in found if a.status_code == 429} == {limit}


def test_never_more_than_the_slots_are_at_work_at_once(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    with running_registry([calculator(slow)], [limited(concurrent=5)]) as r:
        futures = [threads.submit(call, r) for _ in range(50)]
        for _ in range(5):
            slow.began.get(timeout=30)
        wait_until(lambda: sum(f.done() for f in futures) == 45)
        slow.answer()
        assert sorted(f.result(30).status_code for f in futures) == [200] * 5 + [429] * 45
        assert slow.began.empty(), "who is refused reaches no tool"


def test_replicas_that_count_apart_say_so_once(quick: SlowBackend, caplog: pytest.LogCaptureFixture) -> None:
    with running_registry(
        [calculator(quick)], [limited(per_minute=9)], counters={"kind": "memory", "several": True}
    ) as r:
        statuses(r, 3)
    said = [m for m in caplog.messages if "counters.kind" in m]
    assert len(said) == 1


def test_a_clock_that_is_set_back_or_forward_changes_no_limit(quick: SlowBackend) -> None:
    clock = ManualClock()
    with running_registry(
        [calculator(quick)], [limited(per_minute=2)], clock=clock, policy_max_age=FOREVER
    ) as r:
        assert statuses(r, 2) == [200, 200]
        clock.jump(3600)
        assert statuses(r, 1) == [429]
        clock.jump(-7200)
        assert statuses(r, 1) == [429]
        clock.advance(61)
        assert statuses(r, 3) == [200, 200, 429]


def test_a_caller_that_hangs_up_holds_its_slot_until_the_backend_has_answered(slow: SlowBackend) -> None:
    with running_registry([calculator(slow)], [limited(concurrent=1)]) as r:
        where = urlsplit(r.url)
        head = [
            "POST /tools/calculator HTTP/1.1", f"Host: {where.netloc}", "Content-Type: application/json",
            "Content-Length: 2", *(f"{name}: {value}" for name, value in r.auth("team", "bot").items()),
        ]  # fmt: skip
        with socket.create_connection((where.hostname, where.port), timeout=30) as caller:
            caller.sendall("\r\n".join([*head, "", "{}"]).encode())
            slow.began.get(timeout=30)
        assert statuses(r, 5) == [429] * 5
        assert (slow.began.qsize(), slow.given_up.qsize()) == (0, 0)
        slow.answer()
        wait_until(lambda: statuses(r, 1) == [200])
