"""What a tool of an MCP server logs during a call reaches the client that asks for it, in both eras on both sides."""

from collections.abc import Iterator
from typing import Any

import pytest

from following_server import FollowingServer, following
from mcp_client import HANDSHAKE, OWN, STATELESS, McpClient, fields_of, message
from published import tool as published_tool
from registry_harness import RunningRegistry, binding, running_registry
from scripted_backend import events
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import Credential, Credentials, PublishedTool

EARLIER = HANDSHAKE[-1]
ERAS = [STATELESS, EARLIER]
SECRET = "a-secret-of-the-server"
LINES = [
    {"level": "debug", "data": "fine"},
    {"level": "info", "data": {"step": 1}, "logger": "worker"},
    {"level": "error", "data": "broken"},
]


@pytest.fixture(params=ERAS, ids=["server of 2026", "server of 2025"])
def server(request: pytest.FixtureRequest) -> Iterator[FollowingServer]:
    with following(request.param) as up:
        up.logs = [dict(line) for line in LINES]
        yield up


@pytest.fixture
def registry(server: FollowingServer) -> Iterator[RunningRegistry]:
    with running_registry([work(server)], [binding("bot", ("docs:use",))]) as running:
        yield running


def work(server: FollowingServer, auth: Any = None) -> PublishedTool:
    at = PublishedBackend(url=server.up.url, mcp=PublishedMcp(server="team/docs", tool="work"), auth=auth)
    return published_tool("team/work", name="work", scopes=("docs:use",), backend=at, description="Work.")


def said(
    r: RunningRegistry, version: str, level: str | None = None, headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The messages of a call's answer."""
    meta = {} if level is None else {f"{OWN}logLevel": level}
    body = message("tools/call", {"name": "work"}, version, **meta)
    answer = McpClient(r, version).post(body, {**fields_of(body, version), **(headers or {})})
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    return events(answer)


def logged(messages: list[dict[str, Any]]) -> list[Any]:
    *notices, last = messages
    assert last["result"]["content"] == [{"type": "text", "text": "done"}]
    assert {notice["method"] for notice in notices} <= {"notifications/message"}
    return [notice["params"] for notice in notices]


def test_a_client_of_2026_is_told_from_the_level_on_that_its_call_names(registry: RunningRegistry) -> None:
    assert logged(said(registry, STATELESS, "debug")) == LINES
    assert logged(said(registry, STATELESS, "warning")) == LINES[2:]
    assert logged(said(registry, STATELESS)) == []


def test_a_client_of_2025_is_told_from_the_level_on_that_its_session_has_set(
    registry: RunningRegistry,
) -> None:
    assert logged(said(registry, EARLIER)) == LINES[1:], "info, where it has set none"
    client, session = McpClient(registry, EARLIER), {"mcp-session-id": "a-session"}
    for level, lines in (("debug", LINES), ("error", LINES[2:])):
        set_level = {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": level}}
        assert client.post(set_level, session).json()["result"] == {}
        assert logged(said(registry, EARLIER, headers=session)) == lines
    assert logged(said(registry, EARLIER, headers={"mcp-session-id": "another"})) == LINES[1:]


@pytest.mark.parametrize("version", ERAS)
def test_a_client_that_accepts_no_stream_is_told_nothing(registry: RunningRegistry, version: str) -> None:
    assert logged(said(registry, version, "debug", {"accept": "application/json"})) == []


def test_what_no_client_should_read_is_left_out(registry: RunningRegistry, server: FollowingServer) -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    bad = [
        {"level": "loud", "data": 1},
        {"level": "info"},
        {"level": "info", "data": "x" * 20_000},
        {"level": "info", "data": deep},
        {"level": "info", "data": f"with {SECRET}"},
        {"level": "info", "data": 1, "logger": SECRET},
    ]
    server.logs = [*bad, LINES[2]]
    value = Credential(
        namespace="team", name="token", key="value", hosts=(f"http://127.0.0.1:{server.up.port}",), value=SECRET
    )  # fmt: skip
    credentials = Credentials(epoch=1, credentials=(value,)).model_dump_json()
    assert registry.admin("POST", "/v1/admin/credentials", content=credentials).status_code == 200
    reference = {"type": "Bearer", "secret": {"namespace": "team", "name": "token", "key": "value"}}
    registry.publish([work(server, auth=reference)])
    assert logged(said(registry, STATELESS, "debug")) == LINES[2:]
    assert server.up.of("tools/call")[-1].request.headers["authorization"] == f"Bearer {SECRET}"


def test_of_a_tool_that_never_stops_logging_a_thousand_messages_are_told(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    server.logs = [{"level": "info", "data": n} for n in range(1_200)]
    assert [each["data"] for each in logged(said(registry, STATELESS, "info"))] == list(range(1_000))
