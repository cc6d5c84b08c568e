"""Calls over MCP whose grant ends while they run, or while their answer is sent: nothing of the tool comes out."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_requests import call_of, rpc
from realparts.processes import wait_until
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from stub_server import Answer, answering
from waiting_embedder import WaitingEmbedder

pytestmark = pytest.mark.guarantee

PATHS = ("/mcp", "/mcp/direct")
VERSIONS = ("2025-03-26", "2026-07-28")
UID = "uid-team-bot"
ANSWERS = {"whole": "application/json", "after progress": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


def request(path: str, version: str, accept: str) -> tuple[Any, dict[str, str]]:
    """A call whose client wants to know how far it has come, as far as it takes streams."""
    body, fields = rpc(version, "tools/call", call_of(path, "calculator"))
    body["params"].setdefault("_meta", {})["progressToken"] = "p"
    return body, fields | {"accept": accept}


def message(answer: httpx.Response) -> dict[str, Any]:
    """The last message of an answer."""
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")][-1]
    found: dict[str, Any] = json.loads(text)
    return found


def outcomes(log: Path) -> list[str | None]:
    found = map(json.loads, log.read_text().splitlines())
    return [one.get("outcome") for one in found if one["action"] == "call"]


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", PATHS)
def test_a_call_is_cut_and_the_request_to_the_tool_given_up_when_its_grant_ends(
    path: str, version: str, kind: str, slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    body, fields = request(path, version, ANSWERS[kind])
    with running_registry(
        [tool("calculator", backend=backend(slow.port))], [binding("bot")], decision_log=str(log)
    ) as r:
        headers = r.auth("team", "bot") | fields
        future: Future[httpx.Response] = threads.submit(r.http.post, r.url + path, headers=headers, json=body)
        slow.began.get(timeout=30)
        r.publish(remove_bindings=[UID])
        answer = future.result(5)
        assert slow.given_up.get(timeout=30) == "/"
        metrics = r.metrics()

    result = message(answer)["result"]
    assert (answer.status_code, result["isError"]) == (200, True)
    assert result["_meta"]["toolcrib.dev/code"] == "revoked"
    assert "secret" not in answer.text
    assert 'toolcrib_calls_cut_total{reason="not_permitted"} 1.0' in metrics
    assert 'outcome="revoked"' in metrics
    assert outcomes(log) == ["revoked"]


async def _held(r: RunningRegistry) -> int:
    return len(r.registry.deps.in_flight)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", PATHS)
def test_a_large_answer_that_is_read_slowly_is_cut_in_the_middle(
    path: str, version: str, kind: str, slow: SlowBackend, tmp_path: Path
) -> None:
    slow.body = b'{"x": "' + b"x" * 3_000_000 + b'"}'
    slow.answer()
    log = tmp_path / "decisions.jsonl"
    body, fields = request(path, version, ANSWERS[kind])
    small = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)])
    with running_registry(
        [tool("calculator", backend=backend(slow.port))], [binding("bot")], decision_log=str(log)
    ) as r:
        headers = r.auth("team", "bot") | fields
        with (
            httpx.Client(transport=small, timeout=10) as client,
            client.stream("POST", r.url + path, headers=headers, json=body) as answer,
        ):
            assert answer.status_code == 200
            wait_until(lambda: r.on_loop(lambda: _held(r)) == 1, 5)
            r.publish(remove_bindings=[UID])
            wait_until(lambda: r.on_loop(lambda: _held(r)) == 0, 5)
            with pytest.raises(httpx.RemoteProtocolError):
                answer.read()
        metrics = r.metrics()
    assert 'toolcrib_calls_cut_total{reason="not_permitted"} 1.0' in metrics
    assert outcomes(log) == ["ok", "revoked"]


def posted(
    r: RunningRegistry, threads: ThreadPoolExecutor, calls: Sequence[dict[str, Any]]
) -> Future[httpx.Response]:
    """A batch of calls over `/mcp`."""
    bodies = [rpc("2025-03-26", "tools/call", params)[0] | {"id": i} for i, params in enumerate(calls)]
    return threads.submit(r.http.post, r.url + "/mcp", headers=r.auth("team", "bot"), json=bodies)


@pytest.mark.parametrize("waits_for", ["a call", "a search"])
def test_a_call_of_a_batch_that_is_done_is_not_sent_when_its_grant_ends_while_the_batch_waits(
    waits_for: str, slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    embedder = WaitingEmbedder()
    quick_done = threading.Event()

    def quick(_: Any) -> Answer:
        quick_done.set()
        return Answer(b'{"secret": "the answer"}')

    search = {"name": "search_tools", "arguments": {"query": "some tool"}}
    second = call_of("/mcp", "slow") if waits_for == "a call" else search
    granted = [binding("bot"), binding("bot", ("slow:use",), name="slow")]
    with answering(quick) as port:
        tools = [
            tool("calculator", backend=backend(port)),
            tool("slow", backend=backend(slow.port)),
        ]
        with running_registry(tools, granted, embedder=embedder, decision_log=str(log)) as r:
            future = posted(r, threads, [call_of("/mcp", "calculator"), second])
            assert quick_done.wait(30)
            if waits_for == "a call":
                slow.began.get(timeout=30)
            else:
                assert embedder.asked.wait(30)
            wait_until(lambda: "ok" in outcomes(log), 30)
            r.publish(remove_bindings=[UID])
            slow.body = b'{"of": "the other"}'
            slow.answer()
            embedder.go.set()
            first, other = future.result(30).json()

    assert first["result"]["_meta"] == {"toolcrib.dev/code": "revoked"}
    assert first["result"]["isError"]
    assert "secret" not in json.dumps([first, other])
    assert "result" in other
    if waits_for == "a search":
        assert [t["tool_id"] for t in other["result"]["structuredContent"]["tools"]] in ([], ["team/slow"])
    assert outcomes(log).count("revoked") == 1


def test_a_refusal_by_a_tool_is_not_sent_when_its_grant_ends_while_the_batch_waits(
    slow: SlowBackend, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    granted = [binding("bot"), binding("bot", ("slow:use",), name="slow")]
    with answering(lambda _: Answer(b'{"secret": "why not"}', 422)) as port:
        tools = [tool("calculator", backend=backend(port)), tool("slow", backend=backend(slow.port))]
        with running_registry(tools, granted, decision_log=str(log)) as r:
            future = posted(r, threads, [call_of("/mcp", "calculator"), call_of("/mcp", "slow")])
            slow.began.get(timeout=30)
            wait_until(lambda: "tool_error" in outcomes(log), 30)
            r.publish(remove_bindings=[UID])
            slow.answer()
            first, other = future.result(30).json()

    assert first["error"] == {"code": -32602, "message": "Unknown tool"}
    assert "result" in other
