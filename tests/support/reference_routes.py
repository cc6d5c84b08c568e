"""The routes that the edge answers itself, as FastAPI answers them: what `http/direct.py` is held against.

Written down apart from the product: FastAPI reads and parses the body here, with a class of its own, and makes the
answer. Only the models and the services are the product's.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, FastAPI, Path, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from toolcrib.telemetry import logs
from toolcrib.wire.api import CallAnswer, CallRequest
from toolcrib.wire.search import SearchAnswer, SearchRequest, SearchResult
from toolcrib_registry.calls import service as calls
from toolcrib_registry.deps import Deps
from toolcrib_registry.http import app, route_table, strict_json
from toolcrib_registry.http.edge import Edge
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.requests import AskerOf, DepsOf, deps_of
from toolcrib_registry.http.route_table import Body as Takes
from toolcrib_registry.http.route_table import RouteTable
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import find

_JSON_TYPE = re.compile(r"application/(?:[^/;,\s]+\+)?json", re.IGNORECASE)


class StrictRequest(Request):
    """Refuses bodies that are too large (413), not announced as JSON (415) or not unambiguous JSON (400)."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces, counted."""
        limit = deps_of(self).settings.limits.body_bytes
        large = ProblemError(
            "too_large", f"The body may have at most {limit} bytes.", headers={"Connection": "close"}
        )
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise large
        size = 0
        async for piece in super().stream():
            size += len(piece)
            if size > limit:
                raise large
            yield piece

    async def body(self) -> bytes:
        """The whole body; one that is there is announced as JSON."""
        body = await super().body()
        kind = self.headers.get("content-type", "").partition(";")[0].strip()
        if body and not _JSON_TYPE.fullmatch(kind):
            raise ProblemError(
                "unsupported_media_type", "Send the body as JSON, with Content-Type: application/json."
            )
        return body

    async def json(self) -> Any:
        """The body, by the plain parsers: orjson for what is refused, json for what is read."""
        body = await self.body()
        try:
            strict_json.check(body, max_depth=deps_of(self).settings.limits.json_depth)
            try:
                orjson.loads(body)
            except orjson.JSONDecodeError as error:
                raise strict_json.InvalidJson(
                    f"line {error.lineno}, column {error.colno}: {error.msg}"
                ) from error
            return json.loads(body, object_pairs_hook=strict_json._object)
        except (strict_json.InvalidJson, RecursionError) as error:
            raise ProblemError("invalid_json", f"The body is refused: {error}.") from error


class StrictRoute(APIRoute):
    """A route that reads its body through `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a `StrictRequest`."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await inner(StrictRequest(request.scope, request.receive))

        return handle


router = APIRouter(route_class=StrictRoute)
ROUTES = (("POST", "/v1/call"), ("POST", "/tools/{name:path}"), ("POST", "/v1/search"))
"""What stands below. Not read from the product: a route that it dropped would be dropped here, too."""
_NO_STORE = {"Cache-Control": "no-store"}


@router.post("/v1/call", response_model=CallAnswer)
async def call(deps: DepsOf, asker: AskerOf, body: CallRequest) -> Response:
    """Tool and arguments in the body."""
    named, answer = await calls.call(deps, asker, body.tool, body.arguments, str(logs.request_id.get()))
    content = orjson.dumps({
        "tool_id": named.tool.tool_id,
        "content_type": answer.media_type,
        "result": orjson.Fragment(answer.raw or b"null") if answer.is_json else answer.raw.decode(),
        "elapsed": round(answer.elapsed, 6),
    })  # fmt: skip
    return Response(content, media_type="application/json", headers=_NO_STORE)


@router.post("/tools/{name:path}", response_class=Response)
async def call_by_name(
    deps: DepsOf,
    asker: AskerOf,
    name: Annotated[str, Path(min_length=1, max_length=512)],
    arguments: Annotated[dict[str, Any] | None, Body()] = None,
) -> Response:
    """The body is the arguments."""
    _, answer = await calls.call(deps, asker, name, arguments or {}, str(logs.request_id.get()))
    kind = "application/json" if answer.is_json else "text/plain"
    return Response(answer.raw or b"null", media_type=kind, headers=_NO_STORE)


@router.post("/v1/search")
async def search(deps: DepsOf, asker: AskerOf, body: SearchRequest) -> SearchAnswer:
    """Light hits."""
    wanted = Wanted(
        query=body.query or "", tags=body.tags, servers=body.servers, namespaces=body.namespaces, states=body.states,
        limit=body.limit, min_score=body.min_score, top_k_servers=body.top_k_servers, mode=body.search_mode,
    )  # fmt: skip
    findings = await find(deps, asker, wanted)
    answer = findings.answer
    tools = [
        SearchResult(
            tool_id=hit.tool.tool_id, name=hit.name, short_desc=hit.tool.description, server=hit.tool.server,
            confidence=hit.found.confidence, score=round(hit.found.score, 6) if answer.mode == "compat" else None,
            why=hit.found.why,
        )
        for hit in findings.hits
    ]  # fmt: skip
    return SearchAnswer(
        revision=findings.caller_view.revision, search_mode=answer.mode, degraded=answer.degraded,
        degradation=answer.degradation or None, tools=tuple(tools),
    )  # fmt: skip


def reference(deps: Deps) -> Edge:
    """The edge before FastAPI, which answers all: it lets in whom the product lets in, and reads no body of these routes."""
    made: FastAPI = app._bare(deps)
    made.include_router(router)
    app._agents(made, None)
    lines = [
        replace(line, body=Takes.NONE) if (line.method, line.path) in ROUTES else line
        for line in route_table.AGENTS
    ]
    return Edge(made, deps, RouteTable(lines, deps.settings.limits), direct={})
