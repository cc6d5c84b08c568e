"""Searches as agents of another registry ask them, within the caller's grants like every search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from toolcrib.wire.compat import FinderAnswer, FinderRequest, FinderTool, SemanticAnswer, SemanticRequest
from toolcrib_registry.deps import Deps
from toolcrib_registry.http.documentation import BEARER, BODY, Responses, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.http.view_answers import Made, ViewAnswer, encoded
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.search.compat import finder, semantic
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import Findings, find

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
    response_model=list[FinderTool] | FinderAnswer,
    responses={**_FINDER, **problems("unauthenticated", "invalid_token", *BODY, "large_requests_busy")},
)
async def intelligent_tool_finder(deps: DepsOf, asker: AskerOf, body: FinderRequest) -> Response:
    """A list for `natural_language_query`, an object with `results` for `query`."""
    return _found(deps, asker, finder.wanted(body), lambda findings: finder.answer(body, findings.hits))


@router.post(
    "/api/search/semantic",
    summary="Find tools with the fields of the MCP Gateway & Registry's semantic search",
    openapi_extra=BEARER,
    response_model=SemanticAnswer,
    responses=problems("unauthenticated", "invalid_token", *BODY, "large_requests_busy"),
)
async def semantic_search(deps: DepsOf, asker: AskerOf, body: SemanticRequest) -> Response:
    """`tools`, best first, and the same by server in `servers`."""
    return _found(deps, asker, semantic.wanted(body), lambda findings: semantic.answer(body, findings))


def _found(
    deps: Deps,
    asker: Asker,
    wanted: Wanted,
    answer: Callable[[Findings], Sequence[BaseModel] | BaseModel],
) -> Response:
    async def make(caller_view: CallerView) -> Made:
        findings = (await find(deps, asker, wanted)).within(caller_view)
        tools = [hit.tool for hit in findings.hits]
        return Made(await encoded(deps, asker, tools, lambda: _json(answer(findings))))

    return ViewAnswer(deps, asker, make)


def _json(answer: Sequence[BaseModel] | BaseModel) -> bytes:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json(by_alias=True).encode()
    # one by one: the event loop waits for each step of another thread
    return b"[%s]" % b",".join(one.model_dump_json(by_alias=True).encode() for one in answer)
