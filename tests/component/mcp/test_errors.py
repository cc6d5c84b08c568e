"""What a call that fails is told: unknown and denied alike, mistakes without values, a client that goes ends the work."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import decision_logs
from decision_logs import records
from mcp_client import VERSIONS, McpClient, fields_of, message
from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from slow_backend import slow_backend
from stub_server import Answer, answering
from toolcrib.resources.tools import ToolState

SECRET = "hush-hush"
SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "maximum": 10},
        "mode": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string"}},
        "token": {"type": "string", "pattern": "^[a-z]+$"},
    },
    "required": ["count"],
    "additionalProperties": False,
}
GRANTS = [binding("bot", ("strict:use", "broken:use", "off:use", "none:use", "shared:use"), namespace=None)]


@pytest.fixture(scope="module")
def r() -> Iterator[RunningRegistry]:
    with answering(lambda _: Answer(b'{"why": "no"}', 500)) as port:
        tools = [
            tool("strict", input_schema=SCHEMA, backend=backend(port)),
            tool("broken", backend=backend(port)),
            tool("none"),
            tool("off", state=ToolState.DISABLED, backend=backend(port)),
            tool("vault", backend=backend(port)),
            tool("shared", namespace="one", backend=backend(port)),
            tool("shared", namespace="two", backend=backend(port)),
        ]
        with running_registry(tools, GRANTS) as running:
            yield running


def asked(path: str, name: str, version: str) -> tuple[str, dict[str, Any]]:
    if path == "/mcp":
        return "call_tool", {"tool_id": name}
    return name, {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
def test_denied_and_unknown_tools_answer_alike_to_the_byte(
    r: RunningRegistry, path: str, version: str
) -> None:
    answers = []
    for name in ("vault", "team/vault", "off", "absent", "nowhere/at-all", "x" * 500, "\u0000", "ü"):
        tool_name, arguments = asked(path, name, version)
        named = {"mcp-name": None} if not tool_name.isascii() or "\u0000" in tool_name else {}
        if named and version == VERSIONS[-1]:
            continue  # a field cannot carry it as it is; see the tests of header fields
        body = message("tools/call", {"name": tool_name, "arguments": arguments}, version)
        found = McpClient(r, version, path).post(body, named)
        headers = sorted((k, v) for k, v in found.headers.items() if k not in ("x-request-id", "date"))
        answers.append((found.status_code, headers, found.content))
    assert all(each == answers[0] for each in answers)
    assert answers[0][0] == 200
    assert json.loads(answers[0][2]) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32602, "message": "Unknown tool"},
    }


def test_unknown_is_the_same_on_both_endpoints_and_in_both_eras(r: RunningRegistry) -> None:
    bodies = set()
    for version in VERSIONS:
        for path in ("/mcp", "/mcp/direct"):
            name, arguments = asked(path, "vault", version)
            bodies.add(
                McpClient(r, version, path).ask("tools/call", {"name": name, "arguments": arguments}).content
            )
    assert len(bodies) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_arguments_name_path_expectation_and_type_at_most_five_and_never_a_value(
    r: RunningRegistry, version: str
) -> None:
    wrong = {"count": 99, "mode": SECRET, "list": [1, 2, SECRET, 3, 4, 5], "token": f"{SECRET}!", SECRET: 1}
    for path in ("/mcp", "/mcp/direct"):
        name, arguments = (
            ("call_tool", {"tool_id": "strict", "args": wrong}) if path == "/mcp" else ("strict", wrong)
        )
        found = McpClient(r, version, path).call(name, arguments)

        assert found["isError"] is True
        assert found["_meta"]["toolcrib.dev/code"] == "invalid_arguments"
        first, *lines = found["content"][0]["text"].splitlines()
        assert first.startswith("Invalid arguments")
        assert 1 <= len(lines) <= 5
        assert all(line.startswith("- /") and "(got " in line for line in lines), lines
        values = [
            line
            for line in lines
            if SECRET in line and "additional" not in line.lower() and SECRET not in line.split(":")[0]
        ]
        assert not values
    found = McpClient(r, version).call("strict", {"count": "x"})
    (line,) = found["content"][0]["text"].splitlines()[1:]
    assert line.startswith("- /count: ")
    assert "integer" in line
    assert line.endswith("(got string)")


@pytest.mark.parametrize("version", VERSIONS)
def test_other_failures_are_results_with_the_code_of_the_problem(r: RunningRegistry, version: str) -> None:
    client = McpClient(r, version)
    for name, code in (("none", "no_backend"), ("shared", "ambiguous_name")):
        found = client.call(name)
        plain = r.http.post(r.url + "/v1/call", json={"tool": name}, headers=r.auth("team", "bot")).json()
        assert (found["isError"], found["_meta"]["toolcrib.dev/code"]) == (True, code)
        assert plain["code"] == code
        assert plain["detail"].rstrip(".") in found["content"][0]["text"]
    assert "one/shared, two/shared" in client.call("shared")["content"][0]["text"]
    broken = client.call("broken")
    assert broken["isError"] is True
    assert broken["_meta"]["toolcrib.dev/code"] in ("upstream_error", "tool_error")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stale_policy_refuses_calls_and_still_lists(version: str) -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], [binding("bot")], clock=clock) as r:
        clock.advance(901)
        client = McpClient(r, version)
        found = client.call("calculator")
        assert (found["isError"], found["_meta"]["toolcrib.dev/code"]) == (True, "policy_stale")
        assert found["_meta"]["toolcrib.dev/retry-after"] == 10
        assert [each["name"] for each in client.listed()] == ["calculator"]
        assert client.error("tools/call", {"name": "vault"})[1:] == (-32602, "Unknown tool")
        r.heartbeat()
        assert client.call("calculator")["_meta"]["toolcrib.dev/code"] == "no_backend"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/direct"])
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_client_that_goes_away_ends_the_call_within_a_second_and_the_log_says_cancelled(
    path: str, version: str, tmp_path: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    given = {"path": str(log), "key_file": decision_logs.key_file(tmp_path)}
    with (
        slow_backend() as slow,
        running_registry(
            [tool("slow", backend=backend(slow.port))], [binding("bot", ("slow:use",))], decision_log=given
        ) as r,
    ):
        name, arguments = asked(path, "slow", version)
        connection = _sent(
            r, path, message("tools/call", {"name": name, "arguments": arguments}, version), version
        )
        slow.began.get(timeout=20)
        gone = time.monotonic()
        connection.close()
        slow.given_up.get(timeout=5)
        assert time.monotonic() - gone < 1

        def outcomes() -> list[Any]:
            return [each.get("outcome") for each in records(log) if each["action"] == "call"]

        wait_until(lambda: outcomes() == ["cancelled"], 10)
        assert 'outcome="cancelled"' in r.metrics()
        assert len(r.registry.deps.in_flight) == 0


def _sent(r: RunningRegistry, path: str, body: Any, version: str) -> socket.socket:
    where = urlsplit(r.url)
    raw = json.dumps(body).encode()
    fields = {
        **r.auth("team", "bot"),
        **fields_of(body, version),
        "content-length": str(len(raw)),
        "host": where.netloc,
    }
    head = "".join(f"{k}: {v}\r\n" for k, v in fields.items())
    connection = socket.create_connection(("127.0.0.1", where.port or 0))
    connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + raw)
    return connection


def test_a_cancelled_notification_is_taken_and_another_caller_cannot_end_a_call_by_it(
    r: RunningRegistry,
) -> None:
    with slow_backend() as slow:
        r.publish([tool("slow", backend=backend(slow.port), scopes=("strict:use",))])
        found: list[Any] = []
        calling = threading.Thread(target=lambda: found.append(McpClient(r).call("slow")))
        calling.start()
        slow.began.get(timeout=20)
        for who in ("bot", "other"):
            for version in VERSIONS:
                body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
                assert McpClient(r, version, who=who).post(body).status_code == 202
        slow.answer()
        calling.join(20)
        assert "isError" not in found[0]
