"""Several messages at one time, in the revision that has that."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mcp_client import VERSIONS, McpClient, error_of, message, valid_result
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from stub_server import Answer, Asked, answering
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends.port import ToolAnswer

OLD = "2025-03-26"


@pytest.fixture(scope="module")
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


GRANTS = [binding("bot", ("calculator:use", "slow:use", "other:use"))]


@pytest.fixture(scope="module")
def tools(slow: SlowBackend) -> Iterator[list[Any]]:
    def echo(asked: Asked) -> Answer:
        return Answer(asked.body)

    with answering(echo) as port:
        yield [
            tool("calculator", backend=backend(port)),
            tool("slow", backend=backend(slow.port)),
            tool("other", description="What nobody else may read."),
        ]


@pytest.fixture(scope="module")
def running(tools: list[Any]) -> Iterator[RunningRegistry]:
    with running_registry(tools, GRANTS) as found:
        yield found


@pytest.fixture
def client(running: RunningRegistry, tools: list[Any], slow: SlowBackend) -> McpClient:
    slow.hold()
    running.publish(tools, GRANTS)
    return McpClient(running, OLD)


def test_sixteen_are_answered_each_under_its_id(client: McpClient) -> None:
    calls = [
        message("tools/call", {"name": "calculator", "arguments": {"n": n}}, OLD, id=f"n-{n}")
        for n in range(16)
    ]

    found = client.post(calls).json()

    by_id = {each["id"]: valid_result(each, "tools/call", OLD)["structuredContent"] for each in found}
    assert by_id == {f"n-{n}": {"n": n} for n in range(16)}


def test_one_that_is_wrong_spoils_none_of_the_others(client: McpClient) -> None:
    found = client.post([
        message("ping", version=OLD, id=1),
        5,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "1.0", "id": 2, "method": "ping"},
        message("nonsense", version=OLD, id=3),
        message("tools/call", {"name": "absent"}, OLD, id=4),
        message("tools/call", {"name": 7}, OLD, id=5),
        {"jsonrpc": "2.0", "id": 9, "result": {}},
        message("tools/list", version=OLD, id=6),
    ]).json()  # fmt: skip

    assert [(each["id"], each.get("error", {}).get("code")) for each in found] == [
        (1, None), (None, -32600), (2, -32600), (3, -32601), (4, -32602), (5, -32602), (6, None),
    ]  # fmt: skip


def test_a_result_of_more_than_64_kib_is_refused_in_a_batch_and_no_other(client: McpClient) -> None:
    def echo(length: int, id: int = 0) -> dict[str, Any]:
        return message("tools/call", {"name": "calculator", "arguments": {"a": "x" * length}}, OLD, id=id)

    twice = len(client.post(echo(1)).content) - 2  # as text, and as structured content
    fits = (64 * 1024 - twice) // 2
    small, large = client.post([echo(fits, 1), echo(fits + 1, 2)]).json()

    assert valid_result(small, "tools/call", OLD)["structuredContent"] == {"a": "x" * fits}
    assert (large["id"], large["error"]["code"]) == (2, -32603)
    assert large["error"]["message"].startswith("The result is too large for a batch.")
    assert client.post(echo(fits + 1)).json()["result"]["structuredContent"] == {"a": "x" * (fits + 1)}


def test_only_notifications_are_taken_with_202(client: McpClient) -> None:
    taken = client.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 16)
    assert (taken.status_code, taken.content) == (202, b"")


@pytest.mark.parametrize("count", [0, 17, 100_000])
def test_none_and_more_than_sixteen_are_refused_whole(client: McpClient, count: int) -> None:
    refused = client.post(b"[" + b",".join([b"1"] * count) + b"]")
    assert error_of(refused) == (400, -32600, "A batch must have 1 to 16 messages.")
    assert refused.json()["id"] is None


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_later_revisions_have_no_batches(client: McpClient, version: str) -> None:
    refused = McpClient(client.r, version).post([message("tools/list", version=version)])
    assert error_of(refused)[:2] == (400, -32600)


def test_a_handshake_is_no_part_of_a_batch(client: McpClient) -> None:
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    (found,) = client.post([message("initialize", params, OLD)]).json()
    assert found["error"]["code"] == -32600


def test_what_is_revoked_while_another_call_takes_its_time_is_not_shown(
    client: McpClient, slow: SlowBackend
) -> None:
    meta = McpClient(client.r, OLD, "/mcp")
    batch = [
        message("tools/call", {"name": "describe_tool", "arguments": {"tool_id": "other"}}, OLD, id=1),
        message("tools/call", {"name": "load_tools", "arguments": {"tool_ids": ["other"]}}, OLD, id=2),
        message("tools/call", {"name": "call_tool", "arguments": {"tool_id": "slow"}}, OLD, id=3),
        message("tools/call", {"name": "call_tool", "arguments": {"tool_id": "calculator"}}, OLD, id=4),
    ]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(meta.post, batch)
        slow.began.get(timeout=20)
        client.r.publish(bindings=[binding("bot", ("slow:use",), generation=2)])
        slow.answer()
        found = {each["id"]: each for each in answer.result(20).json()}

    assert found[1]["error"] == {"code": -32602, "message": "Unknown tool"}
    assert "What nobody else" not in str(found)
    assert "result" in found[3]
    assert found[4]["result"]["_meta"]["toolcrib.dev/code"] == "revoked"


def test_a_client_that_goes_ends_all_calls_of_its_batch(client: McpClient, slow: SlowBackend) -> None:
    batch = [message("tools/call", {"name": "slow"}, OLD, id=n) for n in range(3)]
    gone = threading.Event()

    def ask() -> None:
        with pytest.raises(Exception, match="timed out"):
            client.r.http.post(
                client.r.url + client.path, json=batch, headers=client.r.auth("team", "bot"), timeout=1.0
            )
        gone.set()

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(3):
        slow.began.get(timeout=20)
    assert gone.wait(20)
    for _ in range(3):
        slow.given_up.get(timeout=1)
    asking.join(20)


class Broken:
    """A backend that breaks on one tool, and has endless work for another."""

    def __init__(self) -> None:
        self.working, self.cancelled = threading.Event(), threading.Event()

    async def call(self, called: PublishedTool, *_: Any) -> ToolAnswer:
        """Work, or break once there is other work."""
        if called.name == "calculator":
            await asyncio.to_thread(self.working.wait, 20)
            raise RuntimeError("a mistake in the registry")
        self.working.set()
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.cancelled.set()


def test_where_one_call_breaks_the_others_of_its_batch_do_not_go_on_for_nobody() -> None:
    broken = Broken()
    with running_registry([tool("calculator"), tool("slow")], GRANTS, backend=broken) as r:
        batch = [message("tools/call", {"name": name}, OLD, id=name) for name in ("calculator", "slow")]
        failed = McpClient(r, OLD).post(batch)

        assert (failed.status_code, failed.json()["code"]) == (500, "internal")
        assert "mistake" not in failed.text
        assert broken.cancelled.wait(1)
