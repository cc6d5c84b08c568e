"""Searches as agents of another registry ask them, within the caller's grants like every search."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from toolcrib.wire.compat import FinderAnswer, FinderRequest, FinderTool, SemanticAnswer, SemanticRequest
from toolcrib_registry.http.documentation import BEARER, BODY, Responses, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.search.compat import finder, semantic
from toolcrib_registry.search.service import find

router = APIRouter(route_class=ReadRoute, tags=["compatible"])
_FOUND: dict[str, Any] = {
    "first": {
        "summary": "For natural_language_query",
        "value": [
            {
                "tool_name": "calculator",
                "tool_parsed_description": {"main": "Compute an arithmetic expression exactly."},
                "tool_schema": {"type": "object"},
                "service_path": "/heist",
                "service_name": "heist",
                "overall_similarity_score": 0.87,
            }
        ],
    }
}
_FINDER: Responses = {200: {"content": {"application/json": {"examples": _FOUND}}}}


@router.post(
    "/v1/compat/intelligent_tool_finder",
    summary="Find tools with the arguments and answers of intelligent_tool_finder",
    openapi_extra=BEARER,
    responses={**_FINDER, **problems("unauthenticated", "invalid_token", *BODY)},
)
async def intelligent_tool_finder(
    deps: DepsOf, asker: AskerOf, body: FinderRequest
) -> list[FinderTool] | FinderAnswer:
    """A list for `natural_language_query`, an object with `results` for `query`."""
    findings = await find(deps, asker, finder.wanted(body))
    return finder.answer(body, findings.hits)


@router.post(
    "/api/search/semantic",
    summary="Find tools with the fields of the MCP Gateway & Registry's semantic search",
    openapi_extra=BEARER,
    responses=problems("unauthenticated", "invalid_token", *BODY),
)
async def semantic_search(deps: DepsOf, asker: AskerOf, body: SemanticRequest) -> SemanticAnswer:
    """`tools`, best first, and the same by server in `servers`."""
    return semantic.answer(body, await find(deps, asker, semantic.wanted(body)))
