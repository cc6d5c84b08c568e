"""What comes over MCP is limited, recorded and counted as what comes over `/v1`: the meta-tools are no tools there."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_requests import VERSIONS, ask, call, rpc
from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.wire.publish import PublishedLimits, PublishedTool

pytestmark = pytest.mark.guarantee

PATHS = ("/mcp", "/mcp/direct")
SECRET = "hush-hush"
PASSED = ("ts", "chain", "seq", "prev", "hash", "mac", "ms", "request_id", "after")


@pytest.fixture(scope="module")
def tools() -> Iterator[list[PublishedTool]]:
    schema = {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "additionalProperties": False,
    }
    with (
        answering(lambda _: Answer(b'{"value": 42}')) as works,
        answering(lambda _: Answer(b'"broken"', 500)) as fails,
    ):
        yield [
            tool("calculator", backend=backend(works), input_schema=schema, description="Add numbers."),
            tool("broken", backend=backend(fails), description="Never works."),
            tool("vault"),
        ]


GRANTS = [binding("bot", ("calculator:use", "broken:use"))]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", PATHS)
def test_a_call_over_a_limit_is_a_result_that_says_when_to_try_again(
    path: str, version: str, tools: list[PublishedTool]
) -> None:
    grant = binding("bot", limits=PublishedLimits(per_minute=2))
    with running_registry(tools, [grant], clock=ManualClock()) as r:
        results = [call(r, path, "calculator", version=version) for _ in range(3)]
        plain = r.http.post(f"{r.url}/v1/call", headers=r.auth("team", "bot"), json={"tool": "calculator"})
        metrics = r.metrics()

    assert [result.get("isError", False) for result in results] == [False, False, True]
    meta = results[2]["_meta"]
    assert (plain.status_code, plain.json()["code"]) == (429, meta["toolcrib.dev/code"])
    assert meta["toolcrib.dev/code"] == "limit_exceeded"
    assert meta["toolcrib.dev/retry-after"] == int(plain.headers["retry-after"]) > 0
    assert plain.json()["detail"].rstrip(".") in results[2]["content"][0]["text"]
    limited = [line for line in metrics.splitlines() if line.startswith("toolcrib_limited_calls_total")]
    assert [line.rpartition(" ")[2] for line in limited] == ["2.0"]


def logged(log: Path) -> dict[str, str]:
    """Settings of a log with a key, which is the same everywhere: so are hashes of arguments."""
    key = log.with_name("key")
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    return {"path": str(log), "key_file": str(key)}


def records(log: Path, *actions: str) -> list[dict[str, Any]]:
    """Those of the actions, without what differs from one time to the next."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        {k: v for k, v in one.items() if k not in PASSED} for one in found if one.get("action") in actions
    ]


def asked_over_http(r: RunningRegistry) -> None:
    headers = r.auth("team", "bot")
    r.http.post(
        f"{r.url}/v1/call", headers=headers, json={"tool": "calculator", "arguments": {"expression": SECRET}}
    )
    r.http.post(f"{r.url}/v1/call", headers=headers, json={"tool": "calculator", "arguments": {"zz": 1}})
    r.http.post(f"{r.url}/v1/call", headers=headers, json={"tool": "broken"})
    r.http.post(f"{r.url}/v1/call", headers=headers, json={"tool": "vault"})


def asked_over(path: str, version: str, r: RunningRegistry) -> None:
    assert not call(r, path, "calculator", {"expression": SECRET}, version=version).get("isError")
    for name, arguments, code in (
        ("calculator", {"zz": 1}, "invalid_arguments"),
        ("broken", {}, "upstream_error"),
    ):
        found = call(r, path, name, arguments, version=version)
        assert found["_meta"]["toolcrib.dev/code"] == code
        assert found["isError"]
    params = {"name": "vault", "arguments": {}}
    if path == "/mcp":
        params = {"name": "call_tool", "arguments": {"tool_id": "vault"}}
    assert ask(r, path, "tools/call", params, version=version).json()["error"]["message"] == "Unknown tool"


def counted(r: RunningRegistry) -> Counter[str]:
    """Calls and decisions of tools."""
    found: Counter[str] = Counter()
    for line in r.metrics().splitlines():
        series, _, value = line.rpartition(" ")
        if re.match(
            r"toolcrib_((calls|decisions|denials|grant_uses)_total|call_duration_seconds_count)", series
        ):
            found[series] += float(value)  # type: ignore[assignment]
    return found


@pytest.fixture(scope="module")
def over_http(
    tools: list[PublishedTool], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Counter[str]]:
    """Records and counts of the calls over `/v1`."""
    log = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    with running_registry(tools, GRANTS, audit=logged(log)) as r:
        asked_over_http(r)
        counts = counted(r)
        wait_until(lambda: len(records(log, "call")) == 4)
    return records(log, "call"), counts


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("path", PATHS)
def test_calls_are_recorded_and_counted_as_those_over_v1(
    path: str, version: str, tools: list[PublishedTool], over_http: tuple[Any, Counter[str]], tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry(tools, GRANTS, audit=logged(log)) as r:
        asked_over(path, version, r)
        counts = counted(r)
        wait_until(lambda: len(records(log, "call")) == 4)

    outcomes = [one.get("outcome") for one in records(log, "call")]
    assert records(log, "call") == over_http[0]
    assert [o for o in outcomes if o] == ["ok", "invalid_arguments", "upstream_error"]
    assert all(any("arguments" in key for key in one) for one in records(log, "call") if one.get("outcome"))
    assert SECRET not in log.read_text()
    assert counts == over_http[1]
    text = "\n".join(counts)
    assert "call_tool" not in text
    assert 'tool="team/calculator"' in text
    assert 'outcome="upstream_error"' in text, "an error within a 200 is one"


def test_lists_searches_descriptions_and_loads_are_recorded_and_counted(
    tools: list[PublishedTool], tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry(tools, GRANTS, audit=logged(log)) as r:
        ask(r, "/mcp/direct", "tools/list")
        ask(r, "/mcp", "tools/call", {"name": "search_tools", "arguments": {"query": "add numbers"}})
        ask(r, "/mcp", "tools/call", {"name": "describe_tool", "arguments": {"tool_id": "team/calculator"}})
        loaded = {"tool_ids": ["broken", "team/calculator", "team/nothing"]}
        ask(r, "/mcp", "tools/call", {"name": "load_tools", "arguments": loaded})
        ask(r, "/mcp", "tools/list")
        wait_until(lambda: len(records(log, "load")) == 2)
        metrics = r.metrics()

    (listed, meta), (search,), (described,) = (records(log, a) for a in ("list", "search", "describe"))
    # a list of meta-tools names no tool of the caller's
    assert (meta["mode"], meta["count"]) == ("meta", 0)
    assert (listed["count"], listed["view"]) == (2, search["view"])
    assert search["count"] == 1
    assert (described["tool"], described["outcome"]) == ("team/calculator", "ok")
    given, missing = sorted(records(log, "load"), key=lambda one: not one["allowed"])
    assert [one["tool"] for one in given["tools"]] == ["team/broken", "team/calculator"]
    assert missing["tool"] == "team/nothing"
    assert not records(log, "call"), "a meta-tool is no tool"
    for path in ('"/mcp/direct"', '"/mcp"'):
        (line,) = [
            x for x in metrics.splitlines() if x.startswith("toolcrib_discoveries_total") and path in x
        ]
        assert line.endswith(" 1.0")
    assert "toolcrib_search_duration_seconds_count" in metrics
    assert 'toolcrib_decisions_total{action="describe"' in metrics


def test_each_call_of_a_batch_is_limited_recorded_and_counted(
    tools: list[PublishedTool], tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    grant = binding("bot", limits=PublishedLimits(per_minute=3))
    body, fields = rpc("2025-03-26", "tools/call", {"name": "calculator", "arguments": {}})
    with running_registry(tools, [grant], audit=logged(log), clock=ManualClock()) as r:
        headers = r.auth("team", "bot") | fields
        answer = r.http.post(
            r.url + "/mcp/direct", headers=headers, json=[body | {"id": i} for i in range(5)]
        )
        wait_until(lambda: len(records(log, "call")) == 5)
        counts = counted(r)

    assert [one["id"] for one in answer.json()] == list(range(5))
    failed = [one for one in answer.json() if one["result"].get("isError")]
    assert [one["result"]["_meta"]["toolcrib.dev/code"] for one in failed] == ["limit_exceeded"] * 2
    assert Counter(one["outcome"] for one in records(log, "call")) == {"ok": 3, "limit_exceeded": 2}
    calls = {series: n for series, n in counts.items() if series.startswith("toolcrib_calls_total")}
    assert sorted(calls.values()) == [2.0, 3.0]
