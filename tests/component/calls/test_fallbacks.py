"""A tool that names fallbacks is answered by one of them while its backend is down, within the caller's own grants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import decision_logs
from mcp_client import McpClient
from realparts.processes import free_port
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from stub_server import Answer, Asked, answering
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import Candidate, PublishedLimits, PublishedTool
from toolcrib_client import Toolcrib

READS = {"readOnlyHint": True}
GRANT = binding("bot", ("rates:use",))
DOWN = (502, "upstream_error")


class Server:
    """A backend that answers with `status` and what it is; `asked` are its requests."""

    def __init__(self, name: str) -> None:
        self.name, self.status, self.port = name, 200, 0
        self.asked: list[Asked] = []

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return Answer(json.dumps({"from": self.name}).encode(), self.status)


class Stage:
    """`rates` at `first`; `spare` and `last` may stand in for it. A log in `folder`."""

    def __init__(self, r: RunningRegistry, log: Path, servers: dict[str, Server]) -> None:
        self.r, self.log, self.servers = r, log, servers
        self.first, self.spare, self.last = (servers[name] for name in ("rates", "spare", "last"))

    def tool(self, name: str, **fields: Any) -> PublishedTool:
        given: dict[str, Any] = {
            "scopes": ("rates:use",),
            "annotations": READS,
            "backend": backend(self.servers[name].port),
        }
        if name == "rates":
            given["fallback"] = ("team/spare",)
        return tool(name, **{**given, **fields})

    def call(self, name: str = "rates", arguments: dict[str, Any] | None = None) -> httpx.Response:
        return self.r.http.post(
            self.r.url + "/v1/call",
            headers=self.r.auth("team", "bot"),
            json={"tool": name, "arguments": arguments or {}},
        )

    def failure(self, name: str = "rates") -> tuple[int, str]:
        answer = self.call(name)
        return answer.status_code, answer.json()["code"]

    def records(self) -> list[tuple[str, str, str | None]]:
        """Tool, outcome and the tool in whose place it was called, of each call in the log."""
        self.r.registry.deps.decisions.close()
        assert decision_logs.verify(self.log).findings == ()
        judged = decision_logs.replayed(decision_logs.all_records(self.log))
        assert all(one.recorded == one.found for one in judged)
        found = [r for r in decision_logs.records(self.log) if r["action"] == "call"]
        return [(r["tool"], r["outcome"], r.get("fallback_for")) for r in found]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    servers = {name: Server(name) for name in ("rates", "spare", "last")}
    audit = {"path": str(tmp_path / "decisions.jsonl"), "key_file": decision_logs.key_file(tmp_path)}
    with ExitStack() as stack:
        for server in servers.values():
            server.port = stack.enter_context(answering(server.answer))
        r = stack.enter_context(running_registry(publish=False, audit=audit))
        made = Stage(r, Path(audit["path"]), servers)
        made.first.status = 503
        r.publish([made.tool(name) for name in servers], [GRANT])
        yield made


def test_a_backend_that_is_down_is_stood_in_for_and_everything_says_so(stage: Stage) -> None:
    answer = stage.call(arguments={"of": "EUR"})
    body = answer.json()
    assert (answer.status_code, body["result"]) == (200, {"from": "spare"})
    assert (body["tool_id"], body["fallback_for"]) == ("team/spare", "team/rates")
    assert answer.headers["toolcrib-fallback"] == "team/spare"
    assert stage.spare.asked[0].json() == {"of": "EUR"}, "with the same arguments"
    assert len(stage.first.asked) == 1

    plain = stage.r.http.post(stage.r.url + "/tools/rates", headers=stage.r.auth("team", "bot"), json={})
    assert (plain.json(), plain.headers["toolcrib-fallback"]) == ({"from": "spare"}, "team/spare")
    with Toolcrib(stage.r.url, lambda: stage.r.token("team", "bot")) as crib:
        called = crib.call("rates", {})
    assert (called.tool_id, called.fallback_for) == ("team/spare", "team/rates")

    metrics = stage.r.metrics()
    assert 'toolcrib_fallback_calls_total{outcome="ok",tool="team/rates"} 3.0' in metrics
    assert (
        stage.records()
        == [
            ("team/rates", "upstream_error", None),
            ("team/spare", "ok", "team/rates"),
        ]
        * 3
    )


def test_where_the_backend_answers_no_fallback_is_called_and_nothing_speaks_of_one(stage: Stage) -> None:
    stage.first.status = 200
    answer = stage.call()
    assert (answer.json()["tool_id"], answer.json()["result"]) == ("team/rates", {"from": "rates"})
    assert "fallback_for" not in answer.json()
    assert "toolcrib-fallback" not in answer.headers
    assert stage.spare.asked == []
    assert "toolcrib_fallback_calls_total{" not in stage.r.metrics()


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 501])
def test_what_arguments_can_cause_calls_no_fallback(stage: Stage, status: int) -> None:
    stage.first.status = status
    assert stage.failure()[1] in ("tool_error", "upstream_error")
    assert stage.spare.asked == []


def test_an_open_breaker_and_a_closed_port_are_stood_in_for_and_the_breaker_saves_the_try(
    stage: Stage,
) -> None:
    for _ in range(5):
        assert stage.call().status_code == 200
    tried = len(stage.first.asked)
    assert stage.call().status_code == 200
    assert (len(stage.first.asked), len(stage.spare.asked)) == (tried, 6)

    stage.r.publish([stage.tool("rates", backend=backend(free_port()))])
    assert stage.call().json()["tool_id"] == "team/spare"


@pytest.mark.parametrize("fields", [{"annotations": {}}, {"annotations": {"idempotentHint": False}}])
@pytest.mark.parametrize("name", ["rates", "spare"])
def test_a_call_that_may_not_be_made_twice_is_not(stage: Stage, name: str, fields: dict[str, Any]) -> None:
    stage.r.publish([stage.tool(name, **fields)])
    assert stage.failure() == DOWN
    assert stage.spare.asked == []


WRITES = {"idempotentHint": True}


def test_a_tool_that_writes_never_stands_in_for_one_that_only_reads(stage: Stage) -> None:
    stage.r.publish([stage.tool("spare", annotations=WRITES)])
    assert stage.failure() == DOWN
    assert McpClient(stage.r).call("rates")["isError"]
    assert stage.spare.asked == []

    stage.r.publish([stage.tool("rates", fallback=("team/spare", "team/last"))])
    assert stage.call().json()["tool_id"] == "team/last", "the next one that only reads"
    stage.r.publish([stage.tool("rates", annotations=WRITES)])
    assert stage.call().json()["tool_id"] == "team/spare", "both write"


def test_a_caller_that_gets_a_candidate_which_writes_has_no_fallback_in_it(stage: Stage) -> None:
    candidate = stage.tool("spare", annotations=WRITES, trial="canary")
    stage.r.publish([stage.tool("spare", candidate=Candidate(canary="canary", share=100, tool=candidate))])
    assert stage.failure() == DOWN
    assert stage.spare.asked == []


def test_a_tool_whose_calls_a_person_confirms_stands_in_for_none(stage: Stage) -> None:
    stage.first.status = 503
    stage.r.publish([stage.tool("spare", confirm=True)])
    assert stage.failure() == DOWN
    assert stage.spare.asked == []


def test_a_fallback_that_the_caller_may_not_call_is_as_none(stage: Stage) -> None:
    denies = binding("bot", ("rates:use",), deny=("spare",))
    stage.r.publish([stage.tool("rates", fallback=())], [denies])
    without = stage.call()
    stage.r.publish([stage.tool("rates")])
    denied = stage.call()

    def told(answer: httpx.Response) -> tuple[int, dict[str, Any], set[str]]:
        return answer.status_code, answer.json(), set(answer.headers)

    assert told(denied) == told(without)
    assert denied.json()["code"] == "upstream_error"
    assert stage.spare.asked == []
    assert stage.records() == [("team/rates", "upstream_error", None)] * 2, (
        "no refusal that the agent did not cause"
    )


BROKEN: dict[str, dict[str, Any]] = {
    "other scopes": {"scopes": ("rates:use", "more:use")},
    "another scopeMatch": {"scope_match": ScopeMatch.ALL},
    "disabled": {"state": ToolState.DISABLED},
    "quarantined": {"quarantined": True},
    "leads back": {"fallback": ("team/rates",)},
    "leads back by way of another": {"fallback": ("team/last",)},
}


@pytest.mark.parametrize("fields", BROKEN.values(), ids=BROKEN)
def test_a_fallback_that_is_none_by_its_definition_is_not_called(
    stage: Stage, fields: dict[str, Any]
) -> None:
    stage.r.publish([stage.tool("spare", **fields), stage.tool("last", fallback=("team/rates",))])
    assert stage.failure() == DOWN
    assert stage.spare.asked == []


def test_one_that_is_gone_and_the_tool_itself_are_not_called_and_the_next_one_is(stage: Stage) -> None:
    stage.r.publish([stage.tool("rates", fallback=("team/gone", "team/rates", "team/last"))])
    assert stage.call().json()["tool_id"] == "team/last"


def test_fallbacks_are_tried_in_their_order_and_those_of_fallbacks_are_not(stage: Stage) -> None:
    stage.r.publish([stage.tool("rates", fallback=("team/spare", "team/last"))])
    stage.spare.status = 502
    answer = stage.call()
    assert (answer.json()["tool_id"], answer.headers["toolcrib-fallback"]) == ("team/last", "team/last")
    assert len(stage.spare.asked) == 1

    stage.r.publish([stage.tool("rates"), stage.tool("spare", fallback=("team/last",))])
    called = len(stage.last.asked)
    assert stage.failure() == DOWN
    assert len(stage.last.asked) == called


def test_where_all_are_down_the_failure_is_that_of_the_tool_that_was_called(stage: Stage) -> None:
    stage.spare.status = 504
    stage.first.status = 502
    answer = stage.call()
    assert (answer.status_code, answer.json()["code"], answer.json()["upstream_status"]) == (*DOWN, 502)
    assert "toolcrib-fallback" not in answer.headers
    assert stage.records() == [
        ("team/rates", "upstream_error", None),
        ("team/spare", "upstream_error", "team/rates"),
    ]


def test_what_a_fallback_says_of_the_arguments_is_told_and_no_other_is_called(stage: Stage) -> None:
    stage.r.publish([stage.tool("rates", fallback=("team/spare", "team/last"))])
    stage.spare.status = 404
    answer = stage.call()
    assert (answer.json()["code"], answer.json()["upstream_status"]) == ("tool_error", 404)
    assert stage.last.asked == []


def test_arguments_that_a_fallback_does_not_take_are_not_sent_to_it(stage: Stage) -> None:
    needs = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}
    stage.r.publish([stage.tool("spare", input_schema=needs)])
    assert stage.failure() == DOWN
    assert stage.spare.asked == []


def test_a_fallback_is_charged_as_any_call(stage: Stage) -> None:
    stage.r.publish(bindings=[binding("bot", ("rates:use",), limits=PublishedLimits(per_minute=3))])
    assert stage.call().status_code == 200
    assert stage.failure() == DOWN, "the third is the tool's own, and none is left for the fallback"
    assert len(stage.spare.asked) == 1


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


def test_a_tool_whose_time_is_over_has_none_left_for_a_fallback(stage: Stage, slow: SlowBackend) -> None:
    stage.r.publish([stage.tool("rates", backend=backend(slow.port, timeout=0.5))])
    assert stage.failure() == (504, "upstream_timeout")
    assert stage.spare.asked == []


def test_a_fallback_has_the_time_that_is_left_of_the_call(stage: Stage, slow: SlowBackend) -> None:
    stage.r.publish([
        stage.tool("rates", backend=backend(stage.first.port, timeout=1.0), fallback=("team/spare", "team/last")),
        stage.tool("spare", backend=backend(slow.port, timeout=60.0)),
    ])  # fmt: skip
    began = time.monotonic()
    assert stage.failure() == DOWN
    assert time.monotonic() - began < 20
    assert slow.given_up.get(timeout=30), "the fallback's request was ended"
    assert stage.last.asked == []
    assert stage.records() == [
        ("team/rates", "upstream_error", None),
        ("team/spare", "upstream_timeout", "team/rates"),
    ]


def test_a_fallback_whose_grant_is_revoked_meanwhile_is_cut(stage: Stage, slow: SlowBackend) -> None:
    stage.r.publish([
        stage.tool("rates", backend=backend(stage.first.port, timeout=60.0)),
        stage.tool("spare", backend=backend(slow.port, timeout=60.0)),
    ])  # fmt: skip
    answers: list[httpx.Response] = []
    calling = threading.Thread(target=lambda: answers.append(stage.call()), daemon=True)
    calling.start()
    assert slow.began.get(timeout=30)
    stage.r.publish(bindings=[binding("bot", ("rates:use",), deny=("spare",))])
    calling.join(60)
    assert (answers[0].status_code, answers[0].json()["code"]) == (403, "revoked")
    assert slow.given_up.get(timeout=30)
    assert stage.records() == [
        ("team/rates", "upstream_error", None),
        ("team/spare", "revoked", "team/rates"),
    ]


def test_over_mcp_a_result_says_which_tool_answered_and_fits_the_one_that_was_called(stage: Stage) -> None:
    client = McpClient(stage.r)
    found = client.call("rates")
    assert (found["structuredContent"], found["_meta"]["toolcrib.dev/fallback"]) == (
        {"from": "spare"},
        "team/spare",
    )

    shape = {"type": "object", "properties": {"rate": {"type": "number"}}, "required": ["rate"]}
    stage.r.publish([stage.tool("rates", output_schema=shape)])
    misfit = client.call("rates")
    assert misfit["isError"], "clients hold it against the schema of the tool that they called"
    assert misfit["_meta"]["toolcrib.dev/fallback"] == "team/spare"
    stage.first.status = 200
    assert "toolcrib.dev/fallback" not in client.call("spare").get("_meta", {})


def test_the_way_of_a_fallback_is_that_of_its_tool(stage: Stage) -> None:
    stage.r.publish([stage.tool("spare", backend=PublishedBackend(url="http://169.254.169.254/"))])
    assert stage.failure() == DOWN, "the guard refuses it as it would any call"
