"""Every revision, its methods, and how a request that is not of it is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import HANDSHAKE, OWN, STATELESS, VERSIONS, McpClient, error_of, message, result_of
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.version import __version__

PATHS = ["/mcp", "/mcp/direct"]
METHODS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
    "ping": {},
    "logging/setLevel": {"level": "info"},
    "server/discover": {},
    "tools/list": {},
    "tools/call": {"name": "describe_tool", "arguments": {"tool_id": "calculator"}},
    "subscriptions/listen": {"notifications": {}},
    "prompts/list": {},
    "prompts/get": {"name": "x"},
    "resources/list": {},
    "resources/read": {"uri": "file:///x"},
    "resources/subscribe": {"uri": "file:///x"},
    "resources/unsubscribe": {"uri": "file:///x"},
    "resources/templates/list": {},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "x"},
        "argument": {"name": "a", "value": ""},
    },
    "tasks/get": {},
    "tools/List": {},
    "": {},
}
OFFERED = {"prompts/list", "resources/list", "resources/templates/list"}
ABSENT = {"prompts/get", "resources/read", "completion/complete"}
"""Served, and there is nothing that they could answer with."""
FOLLOWING = {"resources/subscribe", "resources/unsubscribe"}
"""Served where there are streams: a client of 2025 has them at /mcp/direct alone."""
OLDER = {"initialize", "ping", "logging/setLevel", "tools/list", "tools/call"} | OFFERED | ABSENT
NEWER = {"server/discover", "tools/list", "tools/call", "subscriptions/listen"} | OFFERED | ABSENT


def capabilities(*, changes: bool, follow: bool) -> dict[str, Any]:
    lists = {"listChanged": changes}
    return {
        "tools": lists,
        "resources": {**lists, "subscribe": follow},
        "prompts": lists,
        "completions": {},
    }


@pytest.fixture(scope="module")
def r() -> Iterator[RunningRegistry]:
    with (
        answering(lambda _: Answer(b'{"sum": 3}')) as port,
        running_registry([tool("calculator", backend=backend(port))], [binding("bot")]) as running,
    ):
        yield running


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_revision_has_its_own_methods_and_no_others(r: RunningRegistry, version: str, path: str) -> None:
    client = McpClient(r, version, path)
    for method, params in METHODS.items():
        if path == "/mcp/direct" and method == "tools/call":
            params = {"name": "calculator"}
        older = OLDER | FOLLOWING if path == "/mcp/direct" else OLDER
        if method not in (NEWER if version == STATELESS else older):
            status = 404 if version == STATELESS else 200
            assert client.error(method, params) == (status, -32601, "Method not found."), method
        elif method in ABSENT or method == "resources/subscribe":
            assert client.error(method, params)[1] in (-32602, -32002), method
        elif method != "subscriptions/listen":
            client.result(method, params)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_post_without_a_handshake_is_enough(version: str) -> None:
    with (
        answering(lambda _: Answer(b'{"sum": 3}')) as port,
        running_registry([tool("calculator", backend=backend(port))], [binding("bot")]) as fresh,
    ):
        assert McpClient(fresh, version).call("calculator")["structuredContent"] == {"sum": 3}


def test_a_request_without_the_header_speaks_2025_03_26(r: RunningRegistry) -> None:
    client = McpClient(r)
    plain = message("tools/list", version="2025-03-26")

    found = client.post([plain], {"mcp-protocol-version": None})

    assert (found.status_code, len(found.json())) == (200, 1), "batches are of that revision alone"


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
        ("", "2025-11-25"),
        ("9" * 65_536, "2025-11-25"),
    ],
)
def test_initialize_answers_the_asked_revision_or_the_latest_of_its_era(
    r: RunningRegistry, asked: str, answered: str
) -> None:
    client = McpClient(r, "2025-03-26")
    body = message("initialize", {**METHODS["initialize"], "protocolVersion": asked}, "2025-03-26")
    found = result_of(client.post(body, {"mcp-protocol-version": None}), "initialize", answered)

    assert found["protocolVersion"] == answered
    assert found["serverInfo"] == {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
    assert found["capabilities"] == {**capabilities(changes=True, follow=True), "logging": {}}


def test_initialize_gives_a_session_id_that_nobody_stores(r: RunningRegistry) -> None:
    client = McpClient(r, "2025-11-25")
    ids = {client.ask("initialize", METHODS["initialize"]).headers["mcp-session-id"] for _ in range(3)}

    assert len(ids) == 3
    assert all(len(each) == 32 for each in ids)
    for given in (*ids, "made up", "x" * 8_000):
        found = client.post(message("ping", version="2025-11-25"), {"mcp-session-id": given})
        assert result_of(found, "ping", "2025-11-25") == {}


def test_no_session_where_there_is_no_stream_to_open_with_it(r: RunningRegistry) -> None:
    found = McpClient(r, "2025-11-25", "/mcp").ask("initialize", METHODS["initialize"])

    assert "mcp-session-id" not in found.headers
    assert found.json()["result"]["capabilities"]["tools"] == {"listChanged": False}


@pytest.mark.parametrize("path", PATHS)
def test_discovery_says_what_is_served(r: RunningRegistry, path: str) -> None:
    found = McpClient(r, path=path).result("server/discover")

    assert found["supportedVersions"] == list(VERSIONS)
    assert found["capabilities"] == capabilities(changes=path == "/mcp/direct", follow=True)
    assert found["_meta"][f"{OWN}serverInfo"]["version"] == __version__
    assert (found["cacheScope"], found["ttlMs"] > 0) == ("private", True)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/mcp", "Find a tool with search_tools, read its input schema with describe_tool, then call it"),
        ("/mcp/direct", "These are the tools that you may use now."),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_is_told_how_to_use_the_endpoint(
    r: RunningRegistry, version: str, path: str, told: str
) -> None:
    method = "server/discover" if version == STATELESS else "initialize"

    found = McpClient(r, version, path).result(method, METHODS[method])

    assert found["instructions"].startswith(told)


@pytest.mark.parametrize("named", ["2024-11-05", "2099-01-01", "latest", "é", "x" * 16_000])
def test_an_unknown_revision_is_refused_with_those_that_are_served(r: RunningRegistry, named: str) -> None:
    for version in (STATELESS, "2025-11-25"):
        body = message("tools/list", version=version)
        refused = McpClient(r, version).post(body, {"mcp-protocol-version": named})

        assert error_of(refused) == (400, -32022, "Unsupported protocol version.")
        assert refused.json()["error"]["data"] == {"supported": list(VERSIONS), "requested": named[:64]}
        assert refused.json()["id"] == 1


def test_the_body_may_not_name_another_revision_than_the_header(r: RunningRegistry) -> None:
    body = message("tools/list", version=STATELESS)
    for version in HANDSHAKE:
        assert error_of(McpClient(r, version).post(body))[:2] == (400, -32020)
    body["params"]["_meta"][f"{OWN}protocolVersion"] = "2025-11-25"
    assert error_of(McpClient(r).post(body))[:2] == (400, -32020)


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities", None])
def test_a_request_of_2026_says_what_a_handshake_would_have_said(
    r: RunningRegistry, missing: str | None
) -> None:
    body = message("tools/list")
    if missing is None:
        del body["params"]["_meta"]
    else:
        del body["params"]["_meta"][OWN + missing]

    status, code, text = error_of(McpClient(r).post(body))

    assert (status, code) == (400, -32602)
    assert (missing or "clientCapabilities") in text


@pytest.mark.parametrize("said", [5, None, "x", [], {"elicitation": 1}])
def test_capabilities_of_no_meaning_are_refused(r: RunningRegistry, said: Any) -> None:
    body = message("tools/list", **{f"{OWN}clientCapabilities": said})
    assert error_of(McpClient(r).post(body))[:2] == (400, -32602)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/mcp", "POST"),
        ("DELETE", "/mcp", "POST"),
        ("DELETE", "/mcp/direct", "GET, POST"),
        ("PUT", "/mcp/direct", "GET, POST"),
        ("HEAD", "/mcp/direct", "GET, POST"),
        ("OPTIONS", "/mcp", "POST"),
    ],
)
def test_other_methods_of_http_are_405(r: RunningRegistry, method: str, path: str, allowed: str) -> None:
    answer = r.http.request(method, r.url + path, headers=r.auth("team", "bot"))

    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


def test_there_is_no_stream_by_get_in_2026(r: RunningRegistry) -> None:
    headers = {**r.auth("team", "bot"), "mcp-protocol-version": STATELESS, "accept": "text/event-stream"}
    answer = r.http.get(r.url + "/mcp/direct", headers=headers)

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "calculator"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
    ],
)
def test_what_is_owed_no_answer_is_taken_with_202(
    r: RunningRegistry, version: str, body: dict[str, Any]
) -> None:
    taken = McpClient(r, version).post(body)

    assert (taken.status_code, taken.content) == (202, b"")


@pytest.mark.parametrize("path", PATHS)
def test_the_edge_refuses_here_what_it_refuses_elsewhere(r: RunningRegistry, path: str) -> None:
    body, url = message("tools/list"), r.url + path
    bot = r.auth("team", "bot")
    assert r.http.post(url, json=body).status_code == 401
    assert r.http.post(url, json=body, headers={"Authorization": "Bearer x"}).status_code == 401
    assert r.http.post(url, json=body, headers={**bot, "Host": "evil.example"}).status_code == 421
    assert r.http.post(url, json=body, headers={**bot, "Origin": "https://evil.example"}).status_code == 403
    assert r.http.post(url + "?access_token=x", json=body, headers=bot).status_code == 400
    assert r.http.post(url, content=b"{}", headers={**bot, "content-type": "text/plain"}).status_code == 415


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_kept_by_nobody_else(r: RunningRegistry, version: str) -> None:
    for method, params in (("tools/list", {}), ("tools/call", {"name": "calculator"})):
        found = McpClient(r, version).ask(method, params)
        assert found.headers["cache-control"] in ("private, no-cache", "no-store")
        if method == "tools/list" and version == STATELESS:
            assert (found.json()["result"]["cacheScope"], found.json()["result"]["ttlMs"]) == (
                "private",
                1000,
            )
