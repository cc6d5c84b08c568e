"""Progress of a call is told before its answer, to a client that asks for it."""

import asyncio
import json
import socket
import threading

import httpx
import pytest

from mcp_client import STATELESS, McpClient, fields_of, message
from realparts.processes import wait_until
from registry_harness import RunningRegistry
from scripted_backend import ScriptedBackend, called, events, result
from toolcrib_registry.calls.backends.port import Exchange, Progress, Text, ToolAnswer
from toolcrib_registry.http import progress_stream

HANDSHAKE = "2025-11-25"


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_progress_is_told_before_the_answer_to_a_client_that_asks_for_it(
    asking: RunningRegistry, scripted: ScriptedBackend, version: str
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1, 2, "half"))
        await exchange.progress(Progress(2.5))
        return ToolAnswer(b"", "", is_json=False, blocks=(Text("x" * 100_000),))

    scripted.behave = behave

    half, further, last = events(called(asking, version, meta={"progressToken": "p-1"}))

    assert half == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "p-1", "progress": 1, "total": 2, "message": "half"},
    }
    assert further["params"] == {"progressToken": "p-1", "progress": 2.5}
    assert (last["id"], last["result"]["content"][0]["text"]) == (7, "x" * 100_000)


def test_a_call_of_which_no_progress_is_told_is_answered_as_every_call(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.answers(blocks=(Text("done"),))

    told = called(asking, meta={"progressToken": 5})

    assert told.headers["content-type"] == "application/json"
    assert result(told)["content"] == [{"type": "text", "text": "done"}]


def test_without_a_token_no_backend_is_asked_for_progress(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.answers()

    called(asking)

    assert scripted.given[0].progress is None


def test_a_grant_that_ends_while_progress_is_told_ends_the_call(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    begun = threading.Event()

    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    scripted.behave = behave
    found: list[httpx.Response] = []
    calling = threading.Thread(target=lambda: found.append(called(asking, meta={"progressToken": 1})))
    calling.start()
    assert begun.wait(10)
    asking.publish(remove_bindings=["uid-team-bot"])
    calling.join(10)

    *_, last = events(found[0])
    assert last["result"]["_meta"]["toolcrib.dev/code"] == "revoked"
    assert scripted.cancelled.is_set()


def test_a_client_that_goes_ends_the_work_whose_progress_it_was_told(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        await asyncio.Event().wait()
        raise AssertionError

    scripted.behave = behave
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "_meta": {"progressToken": 1}},
    }
    headers = {**asking.auth("team", "bot"), "accept": "text/event-stream"}
    with asking.http.stream("POST", asking.url + "/mcp/direct", json=body, headers=headers) as response:
        assert next(response.iter_lines()).startswith("event:")

    assert scripted.cancelled.wait(1), "within a second"


@pytest.mark.parametrize("token", [10**30, -(2**60), "x" * 1_025])
def test_a_progress_token_that_could_not_be_repeated_is_refused_before_the_tool_begins(
    asking: RunningRegistry, scripted: ScriptedBackend, token: int | str
) -> None:
    scripted.answers()

    refused = called(asking, meta={"progressToken": token})

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
    assert "progressToken" in refused.json()["error"]["message"]
    assert not scripted.given


@pytest.mark.parametrize("token", [2**53 - 1, -(2**53) + 1, "x" * 1_024])
def test_the_longest_progress_tokens_are_repeated_as_they_came(
    asking: RunningRegistry, scripted: ScriptedBackend, token: int | str
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        return ToolAnswer(b"", "", is_json=False)

    scripted.behave = behave

    told, _ = events(called(asking, meta={"progressToken": token}))

    assert told["params"]["progressToken"] == token


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_a_client_that_accepts_no_stream_is_told_no_progress(
    asking: RunningRegistry, scripted: ScriptedBackend, version: str
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        if exchange.progress is not None:
            await exchange.progress(Progress(1))
        return ToolAnswer(b"", "", is_json=False, blocks=(Text("done"),))

    scripted.behave = behave
    body = message("tools/call", {"name": "ask"}, version, progressToken="p-1")

    told = McpClient(asking, version).post(body, {"accept": "application/json"})

    assert told.headers["content-type"] == "application/json"
    assert result(told)["content"] == [{"type": "text", "text": "done"}]
    assert scripted.given[0].progress is None


def test_a_call_that_is_done_is_not_sent_when_its_grant_ends_while_its_progress_waits_to_be_read(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        for n in range(2):
            await exchange.progress(Progress(n, message="x" * 8_000_000))
        return ToolAnswer(b"", "", is_json=False, blocks=(Text("secret"),))

    async def held() -> int:
        return len(asking.registry.deps.in_flight)

    scripted.behave = behave
    body = message("tools/call", {"name": "ask"}, progressToken=1)
    headers = {**asking.auth("team", "bot"), **fields_of(body, STATELESS)}
    small = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)])
    with (
        httpx.Client(transport=small, timeout=30) as client,
        client.stream("POST", asking.url + "/mcp/direct", json=body, headers=headers) as response,
    ):
        wait_until(lambda: asking.on_loop(held) == 0, 10)
        asking.publish(remove_bindings=["uid-team-bot"])
        response.read()

    *told, last = events(response)
    assert [each["params"]["progress"] for each in told] == [0, 1]
    assert last["result"]["_meta"]["toolcrib.dev/code"] == "revoked"
    assert "secret" not in response.text


def test_a_quiet_stream_of_progress_is_kept_alive_by_comments(
    asking: RunningRegistry, scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert progress_stream.KEEP_ALIVE == 15
    monkeypatch.setattr(progress_stream, "KEEP_ALIVE", 0.05)
    enough = threading.Event()

    async def behave(exchange: Exchange) -> ToolAnswer:
        assert exchange.progress is not None
        await exchange.progress(Progress(1))
        await asyncio.to_thread(enough.wait, 20)
        return ToolAnswer(b"", "", is_json=False, blocks=(Text("done"),))

    scripted.behave = behave
    body = message("tools/call", {"name": "ask"}, progressToken=1)
    headers = {**asking.auth("team", "bot"), **fields_of(body, STATELESS)}
    try:
        with asking.http.stream(
            "POST", asking.url + "/mcp/direct", json=body, headers=headers, timeout=5
        ) as response:
            lines = response.iter_lines()
            seen = [next(lines) for _ in range(7)]
            enough.set()
            *_, last = (line for line in lines if line.startswith("data: "))
    finally:
        enough.set()

    assert seen[0] == "event: message"
    assert json.loads(seen[1].removeprefix("data: "))["params"]["progress"] == 1
    assert seen[2:] == ["", ": keep-alive", "", ": keep-alive", ""]
    assert json.loads(last.removeprefix("data: "))["result"]["content"] == [{"type": "text", "text": "done"}]
