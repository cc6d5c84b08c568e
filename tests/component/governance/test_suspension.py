"""A suspended Agent at a running registry: nothing is there for it on any route, and lifting it gives all of it back."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import decision_logs
from mcp_requests import call_of, rpc
from published import suspension
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend

pytestmark = pytest.mark.guarantee

STOPPED = suspension("bot", "team", generation=3)
ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", "/stats", None),
    ("GET", "/tools/calculator", None),
    ("POST", "/tools/calculator", {"expression": "1"}),
    ("GET", "/v1/tools", None),
    ("GET", "/v1/tools/team/calculator", None),
    ("POST", "/v1/search", {"query": "calculator"}),
    ("POST", "/v1/describe", {"tool": "calculator"}),
    ("POST", "/v1/load", {"tools": ["calculator"]}),
    ("POST", "/v1/call", {"tool": "calculator", "arguments": {}}),
    ("GET", "/v0.1/servers", None),
    ("GET", "/v1/access-review?subject=ServiceAccount/team/bot", None),
    ("POST", "/tools/register", {"name": "mine"}),
]
_OF_REVIEWS = re.compile(rb'"revision":"[0-9.]+","at":"[^"]+"')
MCP = [
    (path, version, method)
    for path in ("/mcp", "/mcp/direct")
    for version in ("2025-03-26", "2026-07-28")
    for method in ("tools/list", "tools/call")
]


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


@pytest.fixture
def r() -> Iterator[RunningRegistry]:
    powers = binding("bot", ["registry:admin", "registry:write"], namespace=None, name="powers")
    with running_registry([tool("calculator")], [binding("bot"), powers]) as running:
        yield running


def without_id(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """What answers can be told apart by, but for ids and the time."""
    left = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "date", "content-length")}
    request_id = answer.headers.get("x-request-id", "none")
    content = answer.content.replace(request_id.encode(), b"ID")
    return answer.status_code, left, _OF_REVIEWS.sub(b"", content)


def asked(r: RunningRegistry, who: str) -> dict[str, tuple[int, dict[str, str], bytes]]:
    """The answer of every route."""
    headers = r.auth("team", who)
    found = {
        f"{method} {path}": without_id(r.http.request(method, r.url + path, headers=headers, json=body))
        for method, path, body in ROUTES
    }
    for path, version, method in MCP:
        body, fields = rpc(version, method, call_of(path, "calculator") if method == "tools/call" else {})
        answer = r.http.post(r.url + path, headers=headers | fields, json=body)
        found[f"{path} {version} {method}"] = without_id(answer)
    return found


def test_every_route_answers_it_as_a_caller_without_any_grant_and_lifting_restores_every_answer(
    r: RunningRegistry,
) -> None:
    before, nobody = asked(r, "bot"), asked(r, "nobody")
    assert before["GET /"] != nobody["GET /"]

    r.publish(bindings=[STOPPED])
    suspended = asked(r, "bot")
    r.publish(remove_bindings=[STOPPED.uid])

    assert suspended == nobody
    assert asked(r, "bot") == before


def test_other_callers_get_the_same_answers_as_before(r: RunningRegistry) -> None:
    r.publish(bindings=[binding("other")])
    before = asked(r, "other"), asked(r, "nobody")

    r.publish(bindings=[STOPPED])

    assert (asked(r, "other"), asked(r, "nobody")) == before


def test_the_decision_log_and_the_metrics_say_why(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "key_file": decision_logs.key_file(tmp_path)}
    with running_registry([tool("calculator")], [binding("bot"), STOPPED], audit=audit) as r:
        call = r.http.post(f"{r.url}/tools/calculator", headers=r.auth("team", "bot"), json={})
        assert (call.status_code, call.json()["code"]) == (403, "not_permitted")
        metrics = r.metrics()
    (record,) = [f for f in decision_logs.records(path) if f["action"] == "call"]
    assert (record["allowed"], record["reason"]) == (False, "agent_suspended")
    assert record["subject"] == "system:serviceaccount:team:bot"
    assert (record["binding"]["ref"], record["binding"]["generation"]) == ("Agent team/bot", 3)
    assert 'toolcrib_decisions_total{action="call",allowed="false",reason="agent_suspended"} 1.0' in metrics


@pytest.mark.parametrize("over", ["http", "mcp"])
def test_a_call_in_flight_is_cut_and_the_request_to_the_tool_given_up(
    over: str, slow: SlowBackend, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    made = tool("calculator", backend=backend(slow.port, "/calc"))
    with (
        running_registry([made], [binding("bot")], decision_log=str(log)) as r,
        ThreadPoolExecutor(1) as pool,
    ):
        path, body, fields = "/tools/calculator", {}, {}
        if over == "mcp":
            path = "/mcp/direct"
            body, fields = rpc("2026-07-28", "tools/call", call_of(path, "calculator"))
        call = pool.submit(r.http.post, r.url + path, headers=r.auth("team", "bot") | fields, json=body)
        slow.began.get(timeout=30)
        began = time.monotonic()
        r.publish(bindings=[STOPPED])
        answer = call.result(30)
        assert time.monotonic() - began < 5, "what is promised"
        assert slow.given_up.get(timeout=30) == "/calc"
        assert "secret" not in answer.text
        assert 'toolcrib_calls_cut_total{reason="agent_suspended"} 1.0' in r.metrics()
    (record,) = [x for x in map(json.loads, log.read_text().splitlines()) if x["action"] == "call"]
    assert (record["outcome"], record["reason"]) == ("revoked", "agent_suspended")
    assert record["binding"]["ref"] == "Agent team/bot"


def test_a_watch_stream_is_emptied_and_gets_its_tools_back(r: RunningRegistry) -> None:
    events: list[tuple[str, Any]] = []
    with r.http.stream("GET", r.url + "/v1/watch", headers=r.auth("team", "bot"), timeout=30) as stream:
        kind = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((kind, json.loads(line.removeprefix("data: "))))
                if kind == "snapshot":
                    r.publish(bindings=[STOPPED])
                elif kind == "removed":
                    r.publish(remove_bindings=[STOPPED.uid])
                elif kind == "added":
                    break
    assert [kind for kind, _ in events] == ["snapshot", "removed", "added"]
    assert events[1][1]["tool_id"] == "team/calculator"
