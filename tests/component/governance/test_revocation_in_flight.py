"""Calls whose grant ends while their tool is at work: the request to the tool is given up, no answer comes out."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from toolcrib.identity import Identity
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.publish import Publish, PublishedLimits, PublishedTool, Removed, Revision
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.policy.state import PolicyState

pytestmark = pytest.mark.guarantee

UID = "uid-team-bot"


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


def calling(
    r: RunningRegistry, slow: SlowBackend, pool: ThreadPoolExecutor, name: str = "calculator", **token: Any
) -> Future[httpx.Response]:
    """A call that has reached its tool."""
    headers = r.auth("team", "bot", **token)
    future = pool.submit(r.http.post, f"{r.url}/tools/{name}", headers=headers, json={})
    slow.began.get(timeout=30)
    return future


def cut(future: Future[httpx.Response]) -> None:
    """Assert that the call is answered `revoked`, within the five seconds promised and with nothing of its tool."""
    began = time.monotonic()
    answer = future.result(30)
    assert time.monotonic() - began < 5
    assert (answer.status_code, answer.json()["code"]) == (403, "revoked"), answer.text
    assert "secret" not in answer.text


REVOCATIONS: dict[str, tuple[str, Callable[[RunningRegistry, Any], object]]] = {
    "the binding is deleted": ("no_binding", lambda r, made: r.publish(remove_bindings=[UID])),
    "the binding loses the scope": (
        "scope_not_granted",
        lambda r, made: r.publish(bindings=[binding("bot", ["other:use"], generation=2)]),
    ),
    "the binding names somebody else": (
        "no_binding",
        lambda r, made: r.publish(bindings=[binding("other", name="bot", generation=2)]),
    ),
    "the binding's allow list leaves it out": (
        "not_allowed_by_name",
        lambda r, made: r.publish(bindings=[binding("bot", allow=("file_*",), generation=2)]),
    ),
    "a deny comes": (
        "denied",
        lambda r, made: r.publish(bindings=[binding("bot", (), name="no", deny=("calc*",))]),
    ),
    "the tool is disabled": (
        "tool_disabled",
        lambda r, made: r.publish([made.model_copy(update={"state": ToolState.DISABLED, "generation": 2})]),
    ),
    "the tool is not what was approved any more": (
        "tool_quarantined",
        lambda r, made: r.publish([made.model_copy(update={"quarantined": True, "generation": 2})]),
    ),
    "the tool is deleted": ("unknown_tool", lambda r, made: r.publish(remove_tools=[made.tool_id])),
    "the tool is gated by another scope": (
        "scope_not_granted",
        lambda r, made: r.publish([made.model_copy(update={"scopes": ("admin:use",), "generation": 2})]),
    ),
}


@pytest.mark.parametrize("what", REVOCATIONS)
def test_an_answer_in_flight_is_cut_and_the_request_to_the_tool_given_up_when(
    what: str, slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    reason, revoke = REVOCATIONS[what]
    made = tool("calculator", backend=backend(slow.port, "/calc"))
    log = tmp_path / "decisions.jsonl"
    with running_registry([made], [binding("bot")], decision_log=str(log)) as r:
        future = calling(r, slow, threads)
        start = time.monotonic()
        revoke(r, made)
        cut(future)
        assert time.monotonic() - start < 5, "what is promised"
        assert slow.given_up.get(timeout=30) == "/calc"
        metrics = r.metrics()

    # the tool is out of the caller's view: metrics tell what the caller was told, the decision log below tells why
    assert 'toolcrib_calls_cut_total{reason="not_permitted"} 1.0' in metrics
    assert 'outcome="revoked"' in metrics
    (record,) = [x for x in map(json.loads, log.read_text().splitlines()) if x["action"] == "call"]
    assert (record["outcome"], record["reason"], record["allowed"]) == ("revoked", reason, False)
    by = "AgentScopeBinding team/no" if reason == "denied" else "AgentScopeBinding team/bot"
    assert record["binding"]["ref"] == by


def test_a_grant_that_is_over_by_the_clock_cuts_and_a_token_that_expires_does_not(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    clock = ManualClock()
    made = [tool(n, backend=backend(slow.port, f"/{n}")) for n in ("calculator", "clock")]
    bindings = [
        binding("bot", name="lasting", scopes=["clock:use"]),
        binding("bot", expires_at=clock.now() + 100),
    ]
    with running_registry(made, bindings, clock=clock, metrics={"reasons": "full"}) as r:
        brief = calling(r, slow, threads)
        lasting = calling(r, slow, threads, "clock", ttl=50.0)
        clock.advance(99)
        assert not brief.done()
        clock.advance(1)
        cut(brief)
        assert slow.given_up.get(timeout=30) == "/calculator"
        assert not lasting.done()
        slow.answer()
        assert lasting.result(30).json() == {"secret": "the answer"}
        metrics = r.metrics()
    assert 'toolcrib_calls_cut_total{reason="not_valid_now"} 1.0' in metrics


def test_what_is_still_granted_goes_on_whatever_else_changes(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    made = tool("calculator", backend=backend(slow.port))
    second = binding("bot", name="second")
    with running_registry([made], [binding("bot"), second]) as r:
        future = calling(r, slow, threads)
        r.publish(remove_bindings=[UID])
        r.publish([tool("other")], [binding("somebody", ("other:use",))])
        r.publish([made.model_copy(update={"description": "Sums.", "generation": 2})])
        slow.answer()
        assert future.result(30).json() == {"secret": "the answer"}
        wait_until(lambda: r.on_loop(lambda: _count(r)) == 0, 5)


def test_a_call_goes_with_the_binding_it_was_charged_to_unless_one_without_limits_grants_it(
    slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    made = tool("calculator", backend=backend(slow.port))
    full = binding("bot", name="a", limits=PublishedLimits(per_minute=1))
    roomy = binding("bot", name="b", limits=PublishedLimits(concurrent=5))
    with running_registry([made], [full, roomy], decision_log=str(log)) as r:
        by_full = calling(r, slow, threads)
        by_roomy = calling(r, slow, threads)
        r.publish(
            bindings=[roomy.model_copy(update={"limits": PublishedLimits(concurrent=4), "generation": 2})]
        )
        r.publish(remove_bindings=["uid-team-b"])
        cut(by_roomy)
        r.publish(bindings=[binding("bot", name="z-without")])
        r.publish(remove_bindings=["uid-team-a"])
        slow.answer()
        assert by_full.result(30).json() == {"secret": "the answer"}

    records = [x for x in map(json.loads, log.read_text().splitlines()) if x["action"] == "call"]
    (record,) = [x for x in records if x["outcome"] == "revoked"]
    assert (record["reason"], record["binding"]["ref"]) == ("no_binding", "AgentScopeBinding team/b")


def test_a_call_by_several_bindings_goes_with_any_that_only_a_limited_one_replaces(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    scopes = ("a:use", "b:use")
    made = tool("calculator", backend=backend(slow.port), scopes=scopes, scope_match=ScopeMatch.ALL)
    several = [
        binding("bot", (scope,), name=f"{order}-{scope[0]}", limits=PublishedLimits(concurrent=1))
        for scope in scopes
        for order in ("first", "second")
    ]
    with running_registry([made], several) as r:
        one, other = (calling(r, slow, threads) for _ in range(2))
        r.publish(remove_bindings=["uid-team-first-b"])
        cut(one)
        slow.answer()
        assert other.result(30).status_code == 200


async def _count(r: RunningRegistry) -> int:
    return len(r.registry.deps.in_flight)


def slow_reader() -> httpx.Client:
    """A client that takes little in advance."""
    small = (socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    return httpx.Client(transport=httpx.HTTPTransport(socket_options=[small]), timeout=10)


@pytest.mark.parametrize("route", ["/tools/calculator", "/v1/call"])
def test_a_large_answer_that_is_read_slowly_is_cut_in_the_middle(
    route: str, slow: SlowBackend, tmp_path: Path
) -> None:
    slow.body = b'"' + b"x" * 3_900_000 + b'"'
    slow.answer()
    body = {"tool": "calculator", "arguments": {}} if route == "/v1/call" else {}
    log = tmp_path / "decisions.jsonl"
    made = tool("calculator", backend=backend(slow.port))
    with running_registry([made], [binding("bot")], decision_log=str(log)) as r:
        with (
            slow_reader() as client,
            client.stream("POST", r.url + route, headers=r.auth("team", "bot"), json=body) as answer,
        ):
            assert answer.status_code == 200
            wait_until(lambda: r.on_loop(lambda: _count(r)) == 1, 5)
            r.publish(remove_bindings=[UID])
            wait_until(lambda: r.on_loop(lambda: _count(r)) == 0, 5)
            with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
                answer.read()
        assert r.http.post(r.url + route, headers=r.auth("team", "bot"), json=body).status_code == 403
        r.publish(bindings=[binding("bot")])
        whole = r.http.post(r.url + route, headers=r.auth("team", "bot"), json=body)
        assert len(whole.content) >= len(slow.body)
        metrics = r.metrics()
    assert 'toolcrib_calls_cut_total{reason="not_permitted"} 1.0' in metrics
    records = [x for x in map(json.loads, log.read_text().splitlines()) if x["action"] == "call"]
    assert [x["outcome"] for x in records if "outcome" in x][:2] == ["ok", "revoked"]


class AtTheLastMoment:
    """A tool whose binding is revoked as it answers: nothing else runs between that and the answer's return."""

    def __init__(self) -> None:
        self.state: PolicyState | None = None

    async def call(
        self, tool: PublishedTool, arguments: CheckedArguments, request_id: str, caller: Identity, *_: object
    ) -> ToolAnswer:
        assert self.state is not None
        base = self.state.snapshot.revision
        assert base is not None
        to = Revision(epoch=base.epoch, seq=base.seq + 1)
        await self.state.publish(Publish(base=base, to=to, removed=Removed(bindings=(UID,))))
        return ToolAnswer(b'"secret"', "application/json", is_json=True)


def test_an_answer_that_comes_in_the_same_moment_as_the_revocation_is_not_sent() -> None:
    backend = AtTheLastMoment()
    with running_registry([tool("calculator")], [binding("bot")], backend=backend) as r:
        backend.state = r.registry.deps.state
        answer = r.http.post(f"{r.url}/tools/calculator", headers=r.auth("team", "bot"), json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "revoked")
    assert "secret" not in answer.text


def test_of_many_calls_in_flight_exactly_the_revoked_ones_are_cut(
    slow: SlowBackend, threads: ThreadPoolExecutor
) -> None:
    made = [tool(f"tool_{i}", backend=backend(slow.port, f"/{i}"), scopes=(f"s{i}",)) for i in range(8)]
    bindings = [binding("bot", (f"s{i}",), name=f"b{i}") for i in range(8)]
    with running_registry(made, bindings) as r:
        futures = {i: [calling(r, slow, threads, f"tool_{i}") for _ in range(4)] for i in range(8)}
        r.publish(remove_bindings=["uid-team-b3", "uid-team-b5"])
        for i in (3, 5):
            for future in futures.pop(i):
                cut(future)
        slow.answer()
        for future in (f for several in futures.values() for f in several):
            assert future.result(30).status_code == 200
        metrics = r.metrics()
    assert 'toolcrib_calls_cut_total{reason="not_permitted"} 8.0' in metrics
