"""`/v1`: definitions in pages, one, many; and the call proxy as it is documented."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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
    LoadRequest,
    ToolDefinition,
    ToolPage,
    with_tools,
)
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls import definitions, lookup
from toolcrib_registry.http import cursors
from toolcrib_registry.http.access_log import PRIVATE
from toolcrib_registry.http.documentation import BEARER, BODY, documented_only, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.http.view_answers import Made, ViewAnswer, encoded, matches
from toolcrib_registry.policy.state import CallerView, definition_bytes

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["v1"])
TOKEN = ("unauthenticated", "invalid_token")
PAGE_BYTES = 8 << 20
"""Texts and schemas of the tools of one page: one with more ends earlier than `limit` says."""


@router.get(
    "/tools",
    response_model=ToolPage,
    summary="Definitions of the caller's tools, in pages",
    openapi_extra=BEARER,
    responses={
        200: {"headers": {"ETag": {"schema": {"type": "string"}}}},
        304: {"description": "Not modified (If-None-Match)."},
        **problems(*TOKEN, "invalid_cursor", "cursor_stale", "large_requests_busy"),
    },
)
async def tools(
    deps: DepsOf,
    asker: AskerOf,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The visible tools by id, in pages; large tools make a page end before `limit`.

    A cursor holds for one content of the view: 409 `cursor_stale` means to start again.
    """

    async def make(caller_view: CallerView) -> Made:
        view, revision = caller_view.view, caller_view.revision
        after = "" if cursor is None else cursors.decode(cursor, revision)
        chosen, more = _page([i for i in view.tools if i > after], view.tools, limit)

        def encode() -> bytes:
            following = cursors.encode(revision, chosen[-1]) if more else None
            page = ToolPage(revision=revision, tools=(), next_cursor=following)
            return with_tools(page, (ToolDefinition.of(view.tools[i], view.listed_name(i)) for i in chosen))

        def record(seen: CallerView) -> None:
            deps.metrics.discovered(seen.identity, "/v1/tools")
            deps.decisions.listed(Action.LIST, seen, found=len(chosen))

        body = await encoded(deps, asker, [view.tools[i] for i in chosen], encode)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
        unchanged = if_none_match is not None and matches(if_none_match.encode("latin-1", "replace"), etag)
        return Made(body, ((b"etag", etag), *PRIVATE), unchanged, record)

    return ViewAnswer(deps, asker, make)


def _page(ids: list[str], tools: Mapping[str, PublishedTool], limit: int) -> tuple[list[str], bool]:
    """The first of `ids` that a page takes, one at least, and whether more follow."""
    size = 0
    for count, tool_id in enumerate(ids[:limit]):
        size += definition_bytes(tools[tool_id])
        if count and size > PAGE_BYTES:
            return ids[:count], True
    return ids[:limit], len(ids) > limit


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
    named = await lookup.find(deps, asker, tool_id, Action.LIST)
    if named is None or named.tool.tool_id != tool_id:
        raise lookup.not_found(tool_id)
    lookup.note(deps, Action.LIST, named, "ok")
    return ToolDefinition.of(named.tool, named.listed)


@router.post(
    "/describe",
    summary="One tool's schema, with sample requests",
    openapi_extra=BEARER,
    responses=problems(*TOKEN, *BODY, "tool_not_found", "ambiguous_name"),
)
async def describe(deps: DepsOf, asker: AskerOf, body: DescribeRequest) -> DescribedTool:
    """By listed name, tool id or server:tool."""
    try:
        named = await lookup.find(deps, asker, body.tool, Action.DESCRIBE)
    except AmbiguousName as error:
        raise lookup.ambiguous(error) from error
    if named is None:
        raise lookup.not_found(body.tool)
    lookup.note(deps, Action.DESCRIBE, named, "ok")
    return DescribedTool.of(named.tool, named.listed)


@router.post(
    "/load",
    summary="Full MCP definitions of many tools",
    openapi_extra=BEARER,
    response_model=LoadAnswer,
    responses=problems(*TOKEN, *BODY, "large_requests_busy"),
)
async def load(deps: DepsOf, asker: AskerOf, body: LoadRequest) -> Response:
    """Names that mean nothing to the caller are listed under `errors`; the rest is loaded."""

    async def make(caller_view: CallerView) -> Made:
        loaded = await definitions.load(deps, asker, body.tools, caller_view)

        def encode() -> bytes:
            made = LoadAnswer(revision=caller_view.revision, tools=(), errors=loaded.errors)
            return with_tools(made, loaded.definitions(), exclude_none=True)

        def record(_: CallerView) -> None:
            loaded.record(deps)

        return Made(await encoded(deps, asker, loaded.tools, encode), record=record)

    return ViewAnswer(deps, asker, make)


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
        "confirmation_needed",
        "confirmation_rejected",
        "confirmation_unavailable",
        "policy_stale",
        "limit_exceeded",
        "limits_unavailable",
        "audit_unavailable",
        "no_backend",
        calls=True,
    ),
)
async def call(body: CallRequest) -> Response:
    """Decided first: 403 alike for denied and unknown. `result` is what the tool answered."""
    documented_only()
