"""`/mcp` and `/mcp/direct` as they are documented. MCP's own specification says what the messages hold."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from toolcrib_registry.http.documentation import BEARER, BODY, documented_only, problems

router = APIRouter(tags=["mcp"])
_MESSAGE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {},
                "example": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            }
        },
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A JSON-RPC response; a stream for `subscriptions/listen`.",
        "content": {
            "application/json": {
                "schema": {},
                "example": {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
            },
            "text/event-stream": {"schema": {"type": "string"}},
        },
    },
    202: {"description": "A notification or a response was taken."},
    400: {"description": "A JSON-RPC error: the message, its header fields or its revision is not accepted."},
    404: {"description": "A JSON-RPC error (-32601): the revision has no such method (2026-07-28)."},
}
_TOKEN = ("unauthenticated", "invalid_token")


def _answers(*codes: str) -> dict[int | str, dict[str, Any]]:
    return {**problems(*_TOKEN, *BODY, *codes), **_ANSWERS}


@router.post(
    "/mcp",
    response_class=Response,
    summary="MCP: tools that find and call the caller's tools",
    openapi_extra={**BEARER, **_MESSAGE},
    responses=_answers("not_acceptable", "too_many_streams"),
)
async def meta_tools() -> Response:
    """Streamable HTTP without sessions, revisions 2025-03-26 to 2026-07-28. Each message stands alone."""
    documented_only()


@router.post(
    "/mcp/direct",
    response_class=Response,
    summary="MCP: the caller's tools by their names for models",
    openapi_extra={**BEARER, **_MESSAGE},
    responses=_answers("not_acceptable", "too_many_streams"),
)
async def direct_view() -> Response:
    """The same protocol; the list is the caller's view, in pages of 200."""
    documented_only()


@router.get(
    "/mcp/direct",
    response_class=Response,
    summary="MCP: notices of changes of the caller's list (2025 revisions)",
    openapi_extra=BEARER,
    responses={
        200: {
            "description": "`notifications/tools/list_changed`, as server-sent events.",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}\n\n',
                }
            },
        },
        **problems(*_TOKEN, "not_acceptable", "method_not_allowed", "too_many_streams"),
    },
)
async def notices() -> Response:
    """At most one a second, only where the list differs. A stream is not resumed."""
    documented_only()
