"""The limit that every agent has without a `maxConcurrent` of its own, on one real registry that has it at 2."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedTool
from toolcrib_registry.limits.agent_limit import DefaultLimit

TWO = {"agent_calls": 2}


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def limited(name: str, scopes: Any = ("calculator:use",), **limits: int) -> PublishedBinding:
    return binding("bot", scopes, name=name, limits=PublishedLimits(**limits) if limits else None)


def calculator(at: SlowBackend, **fields: Any) -> PublishedTool:
    return tool("calculator", backend=backend(at.port), **fields)


def call(r: RunningRegistry, account: str = "bot", **token: Any) -> httpx.Response:
    return r.http.post(f"{r.url}/tools/calculator", headers=r.auth("team", account, **token), json={})


def held(
    threads: ThreadPoolExecutor, r: RunningRegistry, slow: SlowBackend, number: int, **token: Any
) -> list[Future[httpx.Response]]:
    """So many calls, when they have reached the backend."""
    made = [threads.submit(call, r, **token) for _ in range(number)]
    for _ in made:
        slow.began.get(timeout=30)
    return made


def finish(slow: SlowBackend, calls: list[Future[httpx.Response]]) -> None:
    slow.answer()
    assert [f.result(30).status_code for f in calls] == [200] * len(calls)


def limit_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("limit", "")


def test_without_a_limit_an_agent_has_the_default_and_its_places_are_freed(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    with running_registry([calculator(slow)], [binding("bot"), binding("other")], limits=TWO) as r:
        calls = held(threads, r, slow, 2)
        refused = call(r)
        others = threads.submit(call, r, "other")
        slow.began.get(timeout=30)
        finish(slow, [*calls, others])
        assert [call(r).status_code for _ in range(5)] == [200] * 5

    assert limit_of(refused) == (429, "default_concurrent")
    assert refused.headers["retry-after"] == "1"
    assert "2 calls in progress on this replica, the default maximum" in refused.json()["detail"]


def test_a_token_whose_scopes_alone_decide_has_the_default_too(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    token = {"scopes": "calculator:use"}
    with running_registry([calculator(slow)], [], limits=TWO) as r:
        calls = held(threads, r, slow, 2, **token)
        assert limit_of(call(r, **token)) == (429, "default_concurrent")
        metrics = r.metrics()
        finish(slow, calls)

    assert 'toolcrib_limited_calls_total{grant="",kind="",limit="default_concurrent"} 1.0' in metrics


def test_one_subject_of_two_issuers_is_two_agents() -> None:
    here, elsewhere = (
        Identity(issuer=issuer, subject="ada", expires_at=2e9, policy=ScopesPolicy.BINDINGS)
        for issuer in ("https://here.test", "https://elsewhere.test")
    )
    limit = DefaultLimit(1)
    assert limit.take(here)
    assert not limit.take(here)
    assert limit.take(elsewhere)
    limit.give(here)
    assert limit.take(here)


def test_a_bindings_own_limit_takes_its_place(slow: SlowBackend, threads: ThreadPoolExecutor) -> None:
    with running_registry([calculator(slow)], [limited("bot", concurrent=4)], limits=TWO) as r:
        calls = held(threads, r, slow, 4)
        assert limit_of(call(r)) == (429, "concurrent")
        finish(slow, calls)


def test_what_the_default_refuses_is_not_counted_for_the_minute(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    with running_registry([calculator(slow)], [limited("bot", per_minute=3)], limits=TWO) as r:
        calls = held(threads, r, slow, 2)
        assert [limit_of(call(r)) for _ in range(5)] == [(429, "default_concurrent")] * 5
        finish(slow, calls)
        assert [limit_of(call(r)) for _ in range(2)] == [(200, ""), (429, "per_minute")]


def test_a_binding_with_its_own_limit_serves_what_the_default_has_no_place_for(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    both = [limited("a-first"), limited("b-second", concurrent=1)]
    with running_registry([calculator(slow)], both, limits=TWO) as r:
        calls = held(threads, r, slow, 3)
        assert limit_of(call(r)) == (429, "concurrent")
        metrics = r.metrics()
        finish(slow, calls)

    uses = 'toolcrib_grant_uses_total{grant="team/%s",kind="AgentScopeBinding"} %s'
    assert uses % ("a-first", "2.0") in metrics
    assert uses % ("b-second", "1.0") in metrics


def test_of_several_bindings_that_grant_together_one_limit_is_enough(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    made = calculator(slow, scopes=("a:use", "b:use"), scope_match=ScopeMatch.ALL)
    left, right = limited("left", ["a:use"]), limited("right", ["b:use"], concurrent=3)
    with running_registry([made], [left, right], limits=TWO) as r:
        calls = held(threads, r, slow, 3)
        assert limit_of(call(r)) == (429, "concurrent")
        finish(slow, calls)


def test_a_call_that_is_cut_or_refused_keeps_no_place(slow: SlowBackend, threads: ThreadPoolExecutor) -> None:
    strict = {"type": "object", "properties": {}, "additionalProperties": False}
    with running_registry([calculator(slow, input_schema=strict)], [binding("bot")], limits=TWO) as r:
        wrong = r.http.post(f"{r.url}/tools/calculator", headers=r.auth("team", "bot"), json={"x": 1})
        assert wrong.status_code == 400
        calls = held(threads, r, slow, 2)
        r.publish(bindings=[binding("bot", (), name="no", deny=("calc*",))])
        assert {f.result(30).json()["code"] for f in calls} == {"revoked"}
        r.publish(remove_bindings=["uid-team-no"])
        slow.answer()
        wait_until(lambda: [call(r).status_code for _ in range(3)] == [200] * 3)
