"""What a route is in the decision log: one word, whether its request is refused at the edge or answered."""

from pathlib import Path
from typing import Any

import pytest

import decision_logs
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.http import route_table
from toolcrib_registry.http.route_table import Access

CALL = {"tool": "calculator"}
ASKED: dict[tuple[str, str], tuple[str, Any]] = {
    ("GET", "/"): ("list", None),
    ("HEAD", "/"): ("list", None),
    ("GET", "/stats"): ("stats", None),
    ("GET", "/tools/calculator"): ("list", None),
    ("GET", "/v1/tools"): ("list", None),
    ("GET", "/v1/tools/team/calculator"): ("list", None),
    ("GET", "/v0.1/servers"): ("list", None),
    ("GET", "/v0.1/servers/dev.toolcrib/toolcrib/versions"): ("list", None),
    ("GET", "/v0.1/servers/dev.toolcrib/toolcrib/versions/latest"): ("list", None),
    ("POST", "/v1/describe"): ("describe", CALL),
    ("POST", "/v1/load"): ("load", {"tools": ["calculator"]}),
    ("POST", "/v1/call"): ("call", CALL),
    ("POST", "/tools/calculator"): ("call", {}),
    ("POST", "/v1/search"): ("search", {"query": "sums"}),
    ("POST", "/v1/compat/intelligent_tool_finder"): ("search", {"natural_language_query": "sums"}),
    ("POST", "/api/search/semantic"): ("search", {"query": "sums"}),
    ("GET", "/v1/access-review"): ("access-review", None),
    ("POST", "/v1/access-review"): ("access-review", CALL),
    ("POST", "/mcp"): ("list", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("POST", "/mcp/direct"): ("list", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
}
"""Method and path of a request, and the action and body that it has."""
REFUSED = ASKED | {
    ("POST", "/tools/register"): ("register", {}),
    ("POST", "/v1/access-requests"): ("access-request", {}),
    ("GET", "/v1/watch"): ("watch", None),
    ("POST", "/mcp"): ("mcp", {}),
    ("POST", "/mcp/direct"): ("mcp", {}),
    ("GET", "/mcp/direct"): ("watch", None),
}
"""The same of requests that are refused before anybody knows what they want: each line of the table, once at least."""
PATHS = {
    "/tools/{name:path}": "/tools/calculator",
    "/v1/tools/{namespace}/{name}": "/v1/tools/team/calculator",
    "/v0.1/servers/{namespace}/{server}/versions": "/v0.1/servers/dev.toolcrib/toolcrib/versions",
    "/v0.1/servers/{namespace}/{server}/versions/{version}": "/v0.1/servers/dev.toolcrib/toolcrib/versions/latest",
}


def ask(r: RunningRegistry, asked: dict[tuple[str, str], tuple[str, Any]], **headers: str) -> None:
    """Send each request; its number is its id."""
    for number, ((method, path), (_, body)) in enumerate(asked.items()):
        about = {**r.auth("team", "bot"), **headers, "X-Request-Id": str(number)}
        r.http.request(method, r.url + path, json=body, headers=about)


def test_a_request_that_is_answered_is_recorded_with_the_action_of_its_route(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry([tool("calculator")], [binding("bot")], audit={"path": str(log)}) as r:
        ask(r, ASKED)

    found = {r["request_id"]: r["action"] for r in decision_logs.records(log) if "request_id" in r}
    assert {route: found.get(str(n)) for n, route in enumerate(ASKED)} == {r: action for r, (action, _) in ASKED.items()}  # fmt: skip


def test_a_request_that_the_edge_refuses_is_recorded_with_the_same_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[str] = []
    # what repeats is folded in the log itself
    monkeypatch.setattr(DecisionLog, "refused", lambda _, action, *__: refused.append(action))
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        ask(r, REFUSED, Host="evil.test")

    assert dict(zip(REFUSED, refused, strict=True)) == {route: action for route, (action, _) in REFUSED.items()}  # fmt: skip


def test_every_line_of_the_table_is_asked() -> None:
    lines = {
        (line.method, PATHS.get(line.path, line.path))
        for line in route_table.AGENTS
        if line.access is not Access.PUBLIC
    }

    assert lines == set(REFUSED)
