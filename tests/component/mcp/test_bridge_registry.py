"""The stdio bridge before a real registry: both eras, changes, revocation, tokens that end, a registry that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_mode import HEIST, LocalMode
from mcp_bridge import INITIALIZED, BridgeProcess, initialize, modern, plain
from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from slow_backend import SlowBackend, slow_backend
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, Progress, ToolAnswer

LIST_CHANGED = "notifications/tools/list_changed"
ERAS = pytest.mark.parametrize("era", [plain, modern], ids=["2025-11-25", "2026-07-28"])
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    """A backend that answers when it is told to."""
    with slow_backend() as found:
        yield found


@pytest.fixture
def registry(slow: SlowBackend) -> Iterator[RunningRegistry]:
    """A registry in which team/bot may call `calculator`."""
    made = tool("calculator", input_schema=SCHEMA, backend=backend(slow.port, timeout_seconds=30))
    with running_registry([made, tool("hidden")], [binding("bot")]) as found:
        yield found


def bridge_to(registry: RunningRegistry, *flags: str, direct: bool = True) -> BridgeProcess:
    token = registry.token("team", "bot")
    return BridgeProcess("--url", registry.url, *flags, *(["--direct"] if direct else []), token=token)


def begin(bridge: BridgeProcess, era: Any) -> None:
    """What a client of this era says first."""
    if era is plain:
        assert bridge.ask(initialize(0))["result"]["protocolVersion"] == "2025-11-25"
        bridge.send(INITIALIZED)
    else:
        assert "2026-07-28" in bridge.ask(era("server/discover", 0))["result"]["supportedVersions"]


def until_one_stream(url: str) -> None:
    """Wait until the registry has an open change stream, which no message shows."""
    wait_until(lambda: "\ntoolcrib_watch_streams 1.0" in httpx.get(f"{url}/metrics").text, timeout=60)


def names(bridge: BridgeProcess, era: Any, number: int | str) -> list[str]:
    return [t["name"] for t in bridge.ask(era("tools/list", number))["result"]["tools"]]


@ERAS
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "meta-tools"])
def test_a_client_lists_and_calls_through_the_bridge(
    registry: RunningRegistry, slow: SlowBackend, era: Any, direct: bool
) -> None:
    slow.answer()
    with bridge_to(registry, direct=direct) as bridge:
        begin(bridge, era)
        listed = names(bridge, era, 1)
        if direct:
            call = era("tools/call", 2, name="calculator", arguments={"a": 1})
        else:
            arguments = {"tool_id": "team/calculator", "args": {"a": 1}}
            call = era("tools/call", 2, name="call_tool", arguments=arguments)
        result = bridge.ask(call)["result"]

    assert listed == (
        ["calculator"] if direct else ["search_tools", "describe_tool", "call_tool", "load_tools"]
    )
    assert not result.get("isError")
    assert "the answer" in result["content"][0]["text"]


@ERAS
def test_a_revoked_tool_is_announced_and_unknown_from_then_on(registry: RunningRegistry, era: Any) -> None:
    with bridge_to(registry) as bridge:
        begin(bridge, era)
        if era is modern:
            bridge.send(modern("subscriptions/listen", "s", notifications={"toolsListChanged": True}))
            bridge.receive(lambda m: m.get("method") == "notifications/subscriptions/acknowledged")
        else:
            until_one_stream(registry.metrics_url)
        assert names(bridge, era, 1) == ["calculator"]

        registry.publish(remove_bindings=["uid-team-bot"])

        bridge.receive(lambda m: m.get("method") == LIST_CHANGED)
        assert names(bridge, era, 2) == []
        error = bridge.ask(era("tools/call", 3, name="calculator", arguments={"a": 1}))["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool")


@ERAS
def test_a_cancelled_call_reaches_the_tools_own_service(
    registry: RunningRegistry, slow: SlowBackend, era: Any
) -> None:
    slow.hold()
    with bridge_to(registry) as bridge:
        begin(bridge, era)
        bridge.send(era("tools/call", 5, name="calculator", arguments={"a": 1}))
        slow.began.get(timeout=60)
        notice = {"method": "notifications/cancelled", "params": {"requestId": 5}}
        bridge.send({"jsonrpc": "2.0", **notice})
        slow.given_up.get(timeout=60)
        assert names(bridge, era, 6) == ["calculator"]
    assert not [line for line in bridge.lines if b'"id":5' in line]


class Reporting:
    """A backend that says how far it has come."""

    async def call(
        self, tool: Any, arguments: Any, request_id: str, caller: Any, exchange: Exchange = NO_EXCHANGE
    ) -> ToolAnswer:
        assert exchange.progress is not None
        for step in (1.0, 2.0):
            await exchange.progress(Progress(step, 2.0))
        return ToolAnswer(b'"done"', "application/json", True)


@ERAS
def test_progress_arrives_before_the_answer(slow: SlowBackend, era: Any) -> None:
    made = tool("calculator", backend=backend(slow.port))
    with (
        running_registry([made], [binding("bot")], backend=Reporting()) as registry,
        bridge_to(registry) as bridge,
    ):
        begin(bridge, era)
        call = era("tools/call", 1, name="calculator", arguments={})
        call["params"].setdefault("_meta", {})["progressToken"] = "p"
        answer = bridge.ask(call)
        told = [json.loads(line)["params"] for line in bridge.lines if b"notifications/progress" in line]

    assert [(t["progressToken"], t["progress"], t["total"]) for t in told] == [
        ("p", 1.0, 2.0),
        ("p", 2.0, 2.0),
    ]
    assert answer["result"]["content"][0]["text"] == '"done"'


@ERAS
def test_a_token_that_has_ended_is_replaced_from_its_file(
    slow: SlowBackend, era: Any, tmp_path: Path
) -> None:
    clock = ManualClock()
    file = tmp_path / "token"
    with running_registry([tool("calculator")], [binding("bot")], clock=clock) as registry:
        first = registry.token("team", "bot", ttl=60)
        file.write_text(first)
        flags = ("--token-file", str(file), "--direct")
        with BridgeProcess("--url", registry.url, *flags, secrets=(first,)) as bridge:
            # the change stream of the first token ends with it, and is opened by the second
            begin(bridge, era)
            assert names(bridge, era, 1) == ["calculator"]
            clock.advance(120)
            registry.heartbeat()
            error = bridge.ask(era("tools/list", 2))["error"]
            second = registry.token("team", "bot", ttl=60)
            bridge.secrets.append(second)
            file.write_text(second)
            assert names(bridge, era, 3) == ["calculator"]

    assert error["data"]["status"] == 401
    assert error["data"]["code"] == "invalid_token"


@ERAS
def test_a_local_mode_that_is_killed_and_started_again_is_found_and_what_it_missed_announced(
    tmp_path: Path, era: Any
) -> None:
    with LocalMode(tmp_path, HEIST) as local:
        flags = ("--as", "hacker", "--data", str(local.data), "--direct", "--wait", "60")
        with BridgeProcess(*flags) as bridge:
            begin(bridge, era)
            if era is modern:
                bridge.send(modern("subscriptions/listen", "s", notifications={"toolsListChanged": True}))
                bridge.receive(lambda m: m.get("method") == "notifications/subscriptions/acknowledged")
            else:
                until_one_stream(local.url)
            before = names(bridge, era, 1)
            local.child.kill()
            bridge.send(era("tools/list", 2))
            local.start()
            answer = bridge.receive(lambda m: m.get("id") == 2)
            assert [t["name"] for t in answer["result"]["tools"]] == before != []
            if not any(LIST_CHANGED.encode() in line for line in bridge.lines):
                bridge.receive(lambda m: m.get("method") == LIST_CHANGED)
