"""What no careful client would send: bounded, typed, one line in the log, and nobody else waits for it."""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_client import HANDSHAKE, OWN, STATELESS, VERSIONS, McpClient, error_of, listening, message
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry, tool
from slow_clients import connected, drip

PATHS = ["/mcp", "/mcp/direct"]


@pytest.fixture(scope="module")
def r() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], [binding("bot")], limits={"body_seconds": 0.4}) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, -32700),
        (b"null", -32600),
        (b"5", -32600),
        (b'"ping"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', -32600),
        (b'{"jsonrpc":"2.0","method":5}', -32600),
    ],
    ids=lambda found: str(found)[:40],
)
def test_junk_is_refused_as_json_rpc(r: RunningRegistry, body: bytes, code: int, path: str) -> None:
    for version in VERSIONS:
        status, found, _ = error_of(McpClient(r, version, path).post(body))
        assert (status, found) == (400, code)


@pytest.mark.parametrize("id_", [0, -1, 2**63 - 1, -(2**63) + 1, "", "x" * 512, "\u0000\U0001f600", "1"])
def test_an_id_comes_back_as_it_was(r: RunningRegistry, id_: Any) -> None:
    for version in VERSIONS:
        found = McpClient(r, version).ask("tools/list", id=id_).json()["id"]
        assert (type(found), found) == (type(id_), id_)


@pytest.mark.parametrize("id_", [None, True, 1.5, 1.0, 2**63, 10**300, "x" * 513, [], {}, [1]])
def test_an_id_that_is_none_is_refused_and_not_repeated(r: RunningRegistry, id_: Any) -> None:
    for version in VERSIONS:
        refused = McpClient(r, version).ask("tools/list", id=id_)
        assert error_of(refused)[:2] == (400, -32600)
        assert refused.json()["id"] is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": None}),
        ("tools/call", {"name": ["calculator"]}),
        ("tools/call", {"name": "calculator", "arguments": []}),
        ("tools/call", {"name": "calculator", "arguments": "x"}),
        ("tools/call", {"name": "calculator", "_meta": 5}),
        ("tools/list", {"cursor": 5}),
        ("initialize", {}),
        ("initialize", {"protocolVersion": 5, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
        ("logging/setLevel", {"level": "loud"}),
        ("subscriptions/listen", {}),
        ("subscriptions/listen", {"notifications": []}),
    ],
)  # fmt: skip
def test_parameters_of_a_wrong_shape_are_invalid(
    r: RunningRegistry, method: str, params: dict[str, Any]
) -> None:
    versions = {"initialize": HANDSHAKE, "logging/setLevel": HANDSHAKE, "subscriptions/listen": (STATELESS,)}
    for version in versions.get(method, VERSIONS):
        body = message(method, {k: v for k, v in params.items() if k != "_meta"}, version)
        if "_meta" in params:
            body["params"]["_meta"] = params["_meta"]
        # what names no tool has no field to name it, either
        name = params.get("name")
        named = {"mcp-name": name if isinstance(name, str) else "x"} if method == "tools/call" else {}
        status, code, _ = error_of(McpClient(r, version).post(body, named))
        assert status == (400 if version == STATELESS else 200)
        assert code in ((-32602, -32020) if version == STATELESS else (-32602,))


@pytest.mark.parametrize("said", [5, [], "x", {"a": 1}, {"a": None}, {str(n): {} for n in range(65)}])
def test_answers_to_a_tools_questions_are_objects_and_not_many(r: RunningRegistry, said: Any) -> None:
    refused = McpClient(r).ask("tools/call", {"name": "calculator", "inputResponses": said})
    assert error_of(refused)[:2] == (400, -32602)


@pytest.mark.parametrize("version", [HANDSHAKE[-1], STATELESS])
def test_notes_of_any_kind_are_no_trouble(r: RunningRegistry, version: str) -> None:
    for meta in (
        {"progressToken": 1.5},
        {"progressToken": [1]},
        {"progressToken": {}},
        {"progressToken": "x" * 10_000},
        {f"{OWN}clientInfo": 5},
        {"x": None},
        {"": ""},
    ):
        found = McpClient(r, version).ask("tools/call", {"name": "calculator"}, **meta)
        assert found.status_code in (200, 400)
        assert found.json()["jsonrpc"] == "2.0"


MANY = 60_000
LARGE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "answers to questions, each wrong": (
        "tools/call", {"name": "calculator", "inputResponses": {str(n): 1 for n in range(MANY)}}, {},
    ),
    "an answer of many parts": (
        "tools/call",
        {"name": "calculator", "inputResponses": {"a": {"role": "user", "model": "m", "content": [{}] * MANY}}},
        {},
    ),
    "capabilities": (
        "tools/list", {}, {f"{OWN}clientCapabilities": {"experimental": {str(n): 1 for n in range(MANY)}}},
    ),
    "subscriptions": (
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": [1] * 300_000}}, {},
    ),
    "a name": ("tools/call", {"name": "x" * 900_000}, {}),
    "ids": ("tools/call", {"name": "load_tools", "arguments": {"tool_ids": [1] * 300_000}}, {}),
    "tags": ("tools/call", {"name": "search_tools", "arguments": {"query": "x", "tags": [1] * 300_000}}, {}),
    "fields": ("tools/call", {"name": "search_tools", "arguments": {str(n): 1 for n in range(MANY)}}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_what_is_large_and_wrong_holds_nobody_up(r: RunningRegistry, case: str) -> None:
    method, params, meta = LARGE[case]
    body = json.dumps(message(method, params, **meta)).encode()
    assert len(body) < 1 << 20, "it is not refused for its size"
    named = {
        "mcp-method": method,
        "mcp-name": params.get("name", "x") if len(body) < 900_000 or "ids" in case else "x",
    }
    longest = _held(
        r,
        lambda: McpClient(r, path="/mcp" if case in ("ids", "tags", "fields") else "/mcp/direct").post(
            body, named
        ),
    )
    assert longest < 0.5, "reading 1 MiB takes some 50 ms; the mistakes in it took seconds"


def _held(r: RunningRegistry, ask: Any) -> float:
    """For how long, in seconds of the loop's own processor time, one step of the loop lasted at most meanwhile."""
    longest, stop = 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while not stop:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.run_coroutine_threadsafe(watch(), r._loop)
    try:
        found = ask()
        assert found.status_code in (200, 400), found.text[:500]
        assert len(found.content) < 10_000
    finally:
        stop = True
        watching.result(20)
    return longest


def test_a_body_that_is_too_large_is_413(r: RunningRegistry) -> None:
    for path in PATHS:
        refused = McpClient(r, path=path).post(b'"' + b"x" * (1 << 20) + b'"')
        assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_comes_byte_by_byte_is_answered_with_408(r: RunningRegistry, path: str) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {r.token('team', 'bot')}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    with connected(urlsplit(r.url).port or 0) as connection:
        connection.sendall(head.encode())
        answer = drip(connection, b" " * 400)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
def test_header_fields_of_a_megabyte_are_refused_before_they_are_read(r: RunningRegistry, name: str) -> None:
    with connected(urlsplit(r.url).port or 0) as connection:
        head = f"POST /mcp/direct HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {r.token('team', 'bot')}\r\n{name}: "
        try:
            connection.sendall(head.encode() + b"x" * (1 << 20) + b"\r\nContent-Length: 2\r\n\r\n{}")
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.split()[1].startswith(b"4"), answer[:200]
    assert McpClient(r).listed()


def test_every_request_leaves_one_line_that_names_neither_tool_nor_method(
    r: RunningRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="toolcrib.registry.access")
    asked: list[tuple[Any, str, int, str | None]] = [
        (message("tools/list"), "/mcp/direct", 200, None),
        (message("tools/call", {"name": "vault-secret"}), "/mcp/direct", 200, "rpc -32602"),
        (message("secret/method"), "/mcp", 404, "rpc -32601"),
        (b"{", "/mcp", 400, "rpc -32700"),
        ({"jsonrpc": "2.0", "method": "x"}, "/mcp", 202, None),
        (message("tools/call", {"name": "calculator"}), "/mcp/direct", 200, None),
    ]
    for n, (body, path, status, _) in enumerate(asked):
        found = McpClient(r, path=path).post(body, {"x-request-id": f"line-{n}"})
        assert (found.status_code, found.headers["x-request-id"]) == (status, f"line-{n}")
    more = {**r.auth("team", "bot"), "x-request-id": "line-delete"}
    assert r.http.delete(r.url + "/mcp", headers=more).status_code == 405
    more |= {"x-request-id": "line-stream", "accept": "text/event-stream"}
    with r.http.stream("GET", r.url + "/mcp/direct", headers=more) as response:
        next(response.iter_lines())

    def lines() -> list[Any]:
        found = [each.msg for each in caplog.records if each.name == "toolcrib.registry.access"]
        return [each for each in found if each["request_id"].startswith("line-")]

    wait_until(lambda: len(lines()) >= len(asked) + 2)
    assert [(each["route"], each["status"], each.get("code")) for each in lines()] == [
        *((path, status, code) for _, path, status, code in asked),
        ("/mcp", 405, "method_not_allowed"),
        ("/mcp/direct", 200, None),
    ]
    assert "secret" not in str(lines())
    assert all(each["agent"] == "team/bot" for each in lines())


def test_a_replica_that_stops_ends_its_own_streams_alone() -> None:
    tools, grants = [tool("calculator")], [binding("bot", ("calculator:use", "echo:use"))]
    with running_registry(tools, grants) as lives:
        with listening(McpClient(lives)) as kept:
            with running_registry(tools, grants) as dies, listening(McpClient(dies)) as lost:
                dies.on_loop(lambda: asyncio.sleep(0, dies.registry.deps.state.close()))
                wait_until(lambda: not lost.thread.is_alive(), 10)
            lives.publish([tool("echo")])
            assert kept.next()["method"] == "notifications/tools/list_changed"
            assert [each["name"] for each in McpClient(lives).listed()] == ["calculator", "echo"]
