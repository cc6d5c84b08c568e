"""`/v1`: definitions in pages, one, many, and the call proxy."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from toolcrib.authorizer import Action
from toolcrib.view import AmbiguousName
from toolcrib.wire.api import (
    CallAnswer,
    CallRequest,
    DescribedTool,
    DescribeRequest,
    LoadAnswer,
    LoadError,
    LoadRequest,
    McpTool,
    ToolDefinition,
    ToolPage,
)
from toolcrib_registry.calls import service as calls
from toolcrib_registry.http import call_response, cursors, edge
from toolcrib_registry.http.documentation import BEARER, BODY, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute, RequestId

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["v1"])
TOKEN = ("unauthenticated", "invalid_token")
_PRIVATE = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}


@router.get(
    "/tools",
    response_model=ToolPage,
    summary="Definitions of the caller's tools, in pages",
    openapi_extra=BEARER,
    responses={
        200: {"headers": {"ETag": {"schema": {"type": "string"}}}},
        304: {"description": "Not modified (If-None-Match)."},
        **problems(*TOKEN, "invalid_cursor", "cursor_stale"),
    },
)
async def tools(
    deps: DepsOf,
    asker: AskerOf,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """By tool id. A cursor holds for one content of the view: 409 `cursor_stale` means to start again."""
    caller_view = await deps.state.caller_view(asker.identity, bad_token=asker.problem is not None)
    view = caller_view.view
    ids = list(view.tools)
    if cursor is not None:
        after = cursors.decode(cursor, caller_view.revision)
        ids = [i for i in ids if i > after]
    chosen, more = ids[:limit], len(ids) > limit
    page = ToolPage(
        revision=caller_view.revision,
        tools=tuple(ToolDefinition.of(view.tools[i], view.listed_name(i)) for i in chosen),
        next_cursor=cursors.encode(caller_view.revision, chosen[-1]) if more else None,
    )
    deps.metrics.discovered(caller_view.identity, "/v1/tools")
    deps.decisions.listed("list", caller_view, found=len(chosen))
    body = page.model_dump_json().encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, **_PRIVATE}
    if if_none_match is not None and edge.matches(if_none_match.encode("latin-1", "replace"), etag.encode()):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@router.get(
    "/tools/{namespace}/{name}",
    summary="One definition, by tool id",
    openapi_extra=BEARER,
    responses=problems(*TOKEN, "tool_not_found", "not_found"),
)
async def tool(
    deps: DepsOf,
    asker: AskerOf,
    namespace: Annotated[str, Path(max_length=253)],
    name: Annotated[str, Path(max_length=253)],
) -> ToolDefinition:
    """404 alike for hidden and absent."""
    tool_id = f"{namespace}/{name}"
    named = await calls.find(deps, asker, tool_id, Action.LIST)
    if named is None or named.tool.tool_id != tool_id:
        raise calls.not_found(tool_id)
    calls.note(
        deps,
        Action.LIST,
        named.caller_view.identity,
        tool_id,
        named.tool,
        named.decision,
        named.caller_view,
        "ok",
    )
    return ToolDefinition.of(named.tool, named.listed)


@router.post(
    "/describe",
    summary="One tool's schema, with sample requests",
    openapi_extra=BEARER,
    responses=problems(*TOKEN, *BODY, "tool_not_found", "ambiguous_name"),
)
async def describe(deps: DepsOf, asker: AskerOf, body: DescribeRequest) -> DescribedTool:
    """By listed name or tool id."""
    try:
        named = await calls.find(deps, asker, body.tool, Action.DESCRIBE)
    except AmbiguousName as error:
        raise calls.ambiguous(error) from error
    if named is None:
        raise calls.not_found(body.tool)
    calls.note(
        deps, Action.DESCRIBE, asker.identity, body.tool, named.tool, named.decision, named.caller_view, "ok"
    )
    return DescribedTool.of(named.tool, named.listed)


@router.post(
    "/load",
    summary="Full MCP definitions of many tools",
    openapi_extra=BEARER,
    response_model_exclude_none=True,
    responses=problems(*TOKEN, *BODY),
)
async def load(deps: DepsOf, asker: AskerOf, body: LoadRequest) -> LoadAnswer:
    """Names that mean nothing to the caller are listed under `errors`; the rest is loaded."""
    found: dict[str, McpTool] = {}
    errors: list[LoadError] = []
    caller_view = await deps.state.caller_view(asker.identity, bad_token=asker.problem is not None)
    for name in dict.fromkeys(body.tools):
        try:
            named = await calls.find(deps, asker, name, Action.LOAD)
        except AmbiguousName as error:
            several = calls.ambiguous(error)
            errors.append(
                LoadError(tool=name, code=several.code, detail=several.detail, tool_ids=error.tool_ids)
            )
            continue
        if named is None:
            missing = calls.not_found(name)
            errors.append(LoadError(tool=name, code=missing.code, detail=missing.detail))
            continue
        calls.note(
            deps, Action.LOAD, asker.identity, name, named.tool, named.decision, named.caller_view, "ok"
        )
        model_name = named.caller_view.view.model_name(named.tool.tool_id)
        found[named.tool.tool_id] = McpTool.of(named.tool, named.listed, model_name)
    return LoadAnswer(revision=caller_view.revision, tools=tuple(found.values()), errors=tuple(errors))


@router.post(
    "/call",
    summary="Call a tool",
    openapi_extra=BEARER,
    response_model=CallAnswer,
    responses=problems(
        *TOKEN,
        *BODY,
        "invalid_arguments",
        "arguments_too_complex",
        "not_permitted",
        "revoked",
        "ambiguous_name",
        "policy_stale",
        "limit_exceeded",
        "limits_unavailable",
        "audit_unavailable",
        "no_backend",
        calls=True,
    ),
)
async def call(deps: DepsOf, asker: AskerOf, request_id: RequestId, body: CallRequest) -> Response:
    """Decided first: 403 alike for denied and unknown. `result` is what the tool answered."""
    named, answer = await calls.call(deps, asker, body.tool, body.arguments, request_id)
    return call_response.sent(deps, named, call_response.wrapped(named, answer), "application/json")
