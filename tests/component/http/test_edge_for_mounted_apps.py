"""The edge enforces the route table for any ASGI app behind it: who is let in, what body arrives, and that it is parsed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_registry.http.bodies import BODY, PARSED
from toolcrib_registry.http.edge import Edge
from toolcrib_registry.http.route_table import Access, Body, Line, RouteTable

LINES = (
    Line("POST", "/mcp", Access.IDENTITY, "call", Body.JSON, 1000),
    Line("POST", "/open", Access.PUBLIC, body=Body.FORM, limit=10),
    Line("GET", "/mcp", Access.IDENTITY, "watch"),
)


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        yield r


class Mounted:
    """An app that answers 204 and keeps what reached it."""

    def __init__(self, registry: RunningRegistry) -> None:
        self.reached: list[dict[str, Any]] = []
        deps = registry.registry.deps
        self._edge = Edge(self._answer, deps, RouteTable(LINES, deps.settings.limits))
        self._registry = registry

    async def _answer(self, scope: Any, _receive: Any, send: Any) -> None:
        self.reached.append(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    def ask(
        self, path: str, *pieces: bytes, method: str = "POST", kind: str = "application/json", **auth: str
    ) -> tuple[int, dict[str, str], str]:
        headers = {"host": "127.0.0.1", "content-type": kind, **{k.lower(): v for k, v in auth.items()}}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        }
        given, sent = list(pieces) or [b""], list[dict[str, Any]]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": given.pop(0), "more_body": bool(given)}

        async def send(message: Any) -> None:
            sent.append(message)

        self._registry.on_loop(lambda: self._edge(scope, receive, send))
        start, body = sent
        return (
            start["status"],
            {k.decode(): v.decode() for k, v in start["headers"]},
            body.get("body", b"").decode(),
        )


def code(answer: tuple[int, dict[str, str], str]) -> tuple[int, str]:
    return answer[0], json.loads(answer[2])["code"]


def test_the_body_arrives_parsed_in_the_scope(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)

    assert mounted.ask("/mcp", b'{"a": ', b"[1]}", **registry.auth("team", "bot"))[0] == 204

    (scope,) = mounted.reached
    assert scope[PARSED] == {"a": [1]}
    assert scope[BODY] == b'{"a": [1]}'


def test_an_empty_body_is_no_value(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)

    assert mounted.ask("/mcp", **registry.auth("team", "bot"))[0] == 204

    assert PARSED not in mounted.reached[0]


def test_nobody_without_an_identity_reaches_the_app(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)

    assert code(mounted.ask("/mcp", b"{}")) == (401, "unauthenticated")
    assert code(mounted.ask("/mcp", b"{}", Authorization="Bearer x")) == (401, "invalid_token")
    assert mounted.reached == []


@pytest.mark.parametrize(
    ("pieces", "kind", "expected"),
    [
        ((b'{"a": 1, "a": 2}',), "application/json", (400, "invalid_json")),
        ((b"{}",), "text/plain", (415, "unsupported_media_type")),
        ((b" " * 600, b" " * 600), "application/json", (413, "too_large")),
    ],
)
def test_a_body_that_its_line_does_not_allow_does_not_reach_the_app(
    registry: RunningRegistry, pieces: tuple[bytes, ...], kind: str, expected: tuple[int, str]
) -> None:
    mounted = Mounted(registry)

    assert code(mounted.ask("/mcp", *pieces, kind=kind, **registry.auth("team", "bot"))) == expected
    assert mounted.reached == []


def test_a_form_is_bounded_and_left_to_its_route(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)

    mounted.ask("/open", b"a=1", kind="text/plain")
    mounted.ask("/open", b"a=12345678901", kind="text/plain")

    assert [scope[BODY] for scope in mounted.reached] == [b"a=1", None]


def test_what_has_no_line_does_not_reach_the_app(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)
    auth = registry.auth("team", "bot")

    status, headers, _ = answer = mounted.ask("/mcp", method="PUT", **auth)
    assert (status, headers["allow"]) == (405, "POST, GET")
    assert code(answer) == (405, "method_not_allowed")
    assert code(mounted.ask("/mcp/below", **auth)) == (404, "not_found")
    assert mounted.reached == []


def test_a_body_that_no_line_takes_is_left_unread(registry: RunningRegistry) -> None:
    mounted = Mounted(registry)

    assert mounted.ask("/mcp", b"not json", method="GET", **registry.auth("team", "bot"))[0] == 204

    assert BODY not in mounted.reached[0]


def test_the_room_of_a_large_body_is_given_back(registry: RunningRegistry) -> None:
    deps = registry.registry.deps
    lines = (Line("POST", "/mcp", Access.IDENTITY, "call", Body.JSON, "body_bytes"),)
    mounted = Mounted(registry)
    mounted._edge = Edge(mounted._answer, deps, RouteTable(lines, deps.settings.limits))

    assert mounted.ask("/mcp", b" " * 20_000 + b"{}", **registry.auth("team", "bot"))[0] == 204

    assert deps.large.held == 0
