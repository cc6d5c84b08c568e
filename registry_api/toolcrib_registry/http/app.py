"""The three applications: what agents reach, what the operator reaches, and what Prometheus reaches.

Built from explicit lists of routes; reads no environment and opens no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from toolcrib_registry.deps import Deps
from toolcrib_registry.failures import Failure
from toolcrib_registry.http import direct, documentation, mcp, route_table
from toolcrib_registry.http.access_log import CODE
from toolcrib_registry.http.edge import AdminEdge, Edge, OnePort
from toolcrib_registry.http.problems import ProblemError, broken, invalid, problem_of
from toolcrib_registry.http.route_table import Line, RouteTable
from toolcrib_registry.http.routes import (
    access_requests,
    access_review,
    admin,
    assertion_keys,
    catalog,
    compat,
    metrics,
    oauth,
    operations,
    resource_metadata,
    search,
    servers,
    simple,
    watch,
)
from toolcrib_registry.http.routes import mcp as mcp_routes
from toolcrib_registry.identity.issuer import ClientTokens
from toolcrib_registry.mcp.calling import Calls
from toolcrib_registry.mcp.direct_view import DirectView
from toolcrib_registry.mcp.meta_tools import MetaTools
from toolcrib_registry.mcp.offered import Offered
from toolcrib_registry.mcp.request_state import SealedStates
from toolcrib_registry.mcp.requests import Endpoint
from toolcrib_registry.mcp.sessions import Sessions
from toolcrib_registry.mcp.tool_list import ToolLists
from toolcrib_registry.offerings.service import Offerings

BY_THE_EDGE = (Line("HEAD", "/", route_table.Access.FILTERED),)
"""What the edge answers and no app has a route for."""
AGENTS_TEXT = """Tools for AI agents: discovered at run time, within the caller's grants.

Send a bearer token. What a caller may not see does not exist for it: reads of a denied and of an unknown tool
answer alike (404), calls of either too (403). Errors are problem documents (RFC 9457) with a stable `code`."""


def create_agents_app(deps: Deps) -> FastAPI:
    """The agents' application without the edge: what the OpenAPI document is made of."""
    return _with_routes(_agents(_bare(deps), deps.oauth))


def openapi_documents(clients: ClientTokens | None = None) -> tuple[dict[str, Any], ...]:
    """The OpenAPI documents of the agents', the admin and the metrics listener, without a registry behind them."""
    return _agents(FastAPI(), clients).openapi(), _admin(FastAPI()).openapi(), _metrics(FastAPI()).openapi()


def create_app(deps: Deps) -> ASGIApp:
    """The agents' listener.

    Raises:
        RouteTableError: a route has no line in the table, or a line no route.
    """
    app, lines = create_agents_app(deps), agents_lines(deps)
    route_table.check("agents", lines, app.routes, also=BY_THE_EDGE)
    answered = {**direct.ROUTES, **mcp.routes(mcp_endpoints(deps))}
    return Edge(app, deps, RouteTable(lines, deps.settings.limits), answered)


def mcp_endpoints(deps: Deps) -> tuple[Endpoint, ...]:
    """What is served to clients of MCP, at which paths."""
    settings = deps.settings.mcp
    calls = Calls(deps, SealedStates(deps.assertions.keys, deps.clock.now))
    offered, sessions = Offered(deps, Offerings(deps, deps.offered, deps.updates), calls), Sessions()
    return (
        MetaTools(
            deps,
            calls,
            offered,
            sessions,
            split_calls=settings.split_calls,
            compatible_names=settings.compatible_names,
            request_access=settings.request_access,
        ),
        DirectView(deps, ToolLists(settings.list_bytes), calls, offered, sessions),
    )


def agents_lines(deps: Deps) -> tuple[Line, ...]:
    """The agents' listener's lines: the local issuer's too, where it is."""
    return route_table.AGENTS if deps.oauth is None else (*route_table.AGENTS, *route_table.OAUTH)


def create_admin_app(deps: Deps) -> FastAPI:
    """The admin application without its edge: the operator's channel, and the probes."""
    return _with_routes(_admin(_bare(deps)))


def create_admin_listener(deps: Deps) -> ASGIApp:
    """The admin listener.

    Raises:
        RouteTableError: as `create_app`.
    """
    app = create_admin_app(deps)
    route_table.check("admin", route_table.ADMIN, app.routes)
    table = RouteTable(route_table.ADMIN, deps.settings.limits)
    return AdminEdge(app, table, deps.admin, deps.settings.admin_subjects)


def create_metrics_app(deps: Deps) -> FastAPI:
    """The metrics application without its edge: `/metrics` alone."""
    return _with_routes(_metrics(_bare(deps)))


def create_metrics_listener(deps: Deps) -> ASGIApp:
    """The metrics listener.

    Raises:
        RouteTableError: as `create_app`.
    """
    app = create_metrics_app(deps)
    route_table.check("metrics", route_table.METRICS, app.routes)
    return AdminEdge(app, RouteTable(route_table.METRICS, deps.settings.limits))


def create_one_port_app(deps: Deps) -> ASGIApp:
    """All of them on one port, for the local mode."""
    return OnePort(
        create_app(deps), create_admin_listener(deps), create_metrics_listener(deps), deps.settings
    )


def _with_routes(app: FastAPI) -> FastAPI:
    """Have the models of all routes made now: FastAPI makes those of included routers when a request is matched.

    That one would be late, and warnings of the whole process are off meanwhile, which is no business of two threads.
    """
    nowhere = {"type": "http", "method": "GET", "path": "", "root_path": "", "headers": [], "app": app}
    for route in app.routes:
        route.matches(dict(nowhere))
    return app


def _agents(app: FastAPI, clients: ClientTokens | None) -> FastAPI:
    routers = [
        operations.router, simple.router, catalog.router, search.router, compat.router, watch.router,
        mcp_routes.router, access_review.router, access_requests.router, assertion_keys.router, resource_metadata.router, servers.router,
    ]  # fmt: skip
    if clients is not None:
        routers.append(oauth.router(clients))
    for router in routers:
        app.include_router(router)
    documentation.document(app, title="Toolcrib registry", description=AGENTS_TEXT)
    return app


def _admin(app: FastAPI) -> FastAPI:
    app.include_router(operations.admin_router)
    app.include_router(admin.router)
    documentation.document(
        app, title="Toolcrib registry, admin", description="For the operator.", extra_models=admin.BODIES
    )
    return app


def _metrics(app: FastAPI) -> FastAPI:
    app.include_router(metrics.router)
    documentation.document(app, title="Toolcrib registry, metrics", description="For Prometheus.")
    return app


def _bare(deps: Deps) -> FastAPI:
    handlers: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
        ProblemError: _problem,
        Failure: _failed,
        HTTPException: _http_exception,
        RequestValidationError: _invalid,
        Exception: _broken,
    }
    app = FastAPI(
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=handlers,
    )
    app.state.deps = deps
    return app


async def _problem(request: Request, error: ProblemError) -> Response:
    return _answer(request, error)


async def _failed(request: Request, error: Failure) -> Response:
    """What a service raised."""
    return _answer(request, problem_of(error))


def _answer(request: Request, error: ProblemError) -> Response:
    request.scope[CODE] = error.code
    return error.response()


async def _http_exception(request: Request, error: HTTPException) -> Response:
    """What the framework raises by itself."""
    problem = ProblemError(
        "invalid_request", "The request is not valid HTTP.", status=error.status_code, headers=error.headers
    )
    return _answer(request, problem)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else body.field_info.annotation
    return _answer(request, invalid(error.errors(), getattr(model, "model_fields", ())))


async def _broken(request: Request, error: Exception) -> Response:
    return _answer(request, broken())  # Starlette raises it again, and the server logs the traceback
