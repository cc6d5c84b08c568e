"""The table of routes: what it says of a request, and that it says something of each."""

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute

from toolcrib_registry.http import app, route_table
from toolcrib_registry.http.edge import Edge
from toolcrib_registry.http.route_table import Access, Body, Line, RouteTable, RouteTableError, check
from toolcrib_registry.settings import RegistrySettings

LINES = (
    Line("GET", "/things", Access.FILTERED),
    Line("POST", "/things", Access.IDENTITY, "call", Body.JSON, "body_bytes"),
    Line("GET", "/things/{name:path}", Access.IDENTITY, "describe"),
    Line("POST", "/things/new", Access.IDENTITY, "register", Body.JSON, 100),
)


def served(*lines: Line) -> FastAPI:
    made = FastAPI(openapi_url=None)

    async def nothing() -> None: ...

    for line in lines:
        made.add_api_route(line.path, nothing, methods=[line.method])
    return made


def test_the_table_and_its_routes_agree() -> None:
    check("agents", LINES, served(*LINES).routes)


def test_a_route_without_a_line_is_named() -> None:
    with pytest.raises(
        RouteTableError, match=r"routes of the agents listener: POST /things/new has no line\."
    ):
        check("agents", LINES[:3], served(*LINES).routes)


def test_a_line_without_a_route_is_named() -> None:
    with pytest.raises(RouteTableError, match=r"GET /things has a line and no route\."):
        check("agents", LINES, served(*LINES[1:]).routes)


def test_a_line_may_be_answered_by_the_edge() -> None:
    check("agents", LINES, served(*LINES[1:]).routes, also=LINES[:1])


def test_a_line_that_stands_twice_is_named() -> None:
    with pytest.raises(RouteTableError, match="GET /things is defined twice"):
        check("agents", (*LINES, LINES[0]), served(*LINES).routes)


def test_routes_of_included_routers_need_lines_with_their_prefix() -> None:
    outer = FastAPI(openapi_url=None)
    outer.include_router(served(LINES[0]).router, prefix="/v9")

    check("agents", [Line("GET", "/v9/things", Access.IDENTITY)], outer.routes)
    with pytest.raises(RouteTableError, match="GET /v9/things has no line"):
        check("agents", LINES, outer.routes)


def test_a_mounted_app_needs_a_line_at_its_path_or_below() -> None:
    routes = [Mount("/mcp", Starlette())]

    for path in ("/mcp", "/mcp/direct"):
        check("agents", [Line("POST", path, Access.IDENTITY)], routes)
    with pytest.raises(RouteTableError, match="the app mounted at /mcp has no line"):
        check("agents", [Line("POST", "/mcpx", Access.IDENTITY)], routes)


def test_what_is_neither_a_route_nor_mounted_is_refused() -> None:
    async def nothing(_: Any) -> None: ...

    with pytest.raises(RouteTableError, match="WebSocketRoute"):
        check("agents", (), [WebSocketRoute("/ws", nothing)])


def deps() -> Any:
    unused = SimpleNamespace(keys=None, now=None)
    return SimpleNamespace(
        settings=RegistrySettings(),
        oauth=None,
        admin=None,
        assertions=unused,
        clock=unused,
        offered=SimpleNamespace(requests=None),
        updates=None,
    )


@pytest.mark.parametrize(
    ("listener", "make"),
    [
        ("agents", app.create_app),
        ("admin", app.create_admin_listener),
        ("metrics", app.create_metrics_listener),
    ],
)
def test_a_listener_whose_routes_and_lines_differ_is_not_made(
    listener: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(deps())
    lines = getattr(route_table, listener.upper())
    last = lines[-1]

    monkeypatch.setattr(route_table, listener.upper(), lines[:-1])
    with pytest.raises(RouteTableError, match=f"routes of the {listener} listener: {last} has no line"):
        make(deps())

    extra = Line("GET", "/more", Access.PUBLIC)
    monkeypatch.setattr(route_table, listener.upper(), (*lines, extra))
    with pytest.raises(
        RouteTableError, match=f"routes of the {listener} listener: GET /more has a line and no route"
    ):
        make(deps())


def test_an_edge_that_shall_answer_a_route_without_a_line_is_not_made() -> None:
    async def nothing(_: Any) -> Any: ...

    table = RouteTable(LINES, RegistrySettings().limits)

    Edge(FastAPI(), deps(), table, {("GET", "/things"): nothing})
    with pytest.raises(RouteTableError, match="GET /thing is answered past the app and has no line"):
        Edge(FastAPI(), deps(), table, {("GET", "/things"): nothing, ("GET", "/thing"): nothing})


def test_literal_paths_come_before_patterns_and_patterns_by_their_method() -> None:
    table = RouteTable(LINES, RegistrySettings().limits)

    def line(method: str, path: str) -> Line | None:
        rule = table.find(method, path).rule
        return None if rule is None else rule.line

    assert line("POST", "/things/new") is LINES[3]
    assert line("GET", "/things/new") is LINES[2]
    assert table.find("GET", "/things/a/b").params == {"name": "a/b"}
    assert line("DELETE", "/things") is line("GET", "/other") is line("GET", "/things\n") is None
    assert line("GET", "/things/a\n") is None
    assert table.methods("/things\n") == ()


def test_what_a_path_takes_is_known_where_the_method_is_not() -> None:
    table = RouteTable(LINES, RegistrySettings().limits)

    near = table.find("DELETE", "/things").near
    assert near is not None
    assert near.line is LINES[0]
    assert table.methods("/things") == ("GET", "POST")
    assert table.methods("/other") == ()


def test_a_limit_is_bytes_or_a_setting() -> None:
    table = RouteTable(LINES, RegistrySettings(limits={"body_bytes": 2048}).limits)

    limits = [found.limit for path in ("/things", "/things/new") if (found := table.find("POST", path).rule)]
    assert limits == [2048, 100]
