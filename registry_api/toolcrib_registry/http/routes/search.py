"""`POST /v1/search`: by meaning and words, within the caller's grants."""

from __future__ import annotations

from fastapi import APIRouter

from toolcrib.wire.search import SearchAnswer, SearchRequest, SearchResult
from toolcrib_registry.http.documentation import BEARER, BODY, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.search.engine import Wanted
from toolcrib_registry.search.service import Hit, find

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["v1"])
_SHORT = 200


@router.post(
    "/search",
    summary="Find tools by meaning",
    openapi_extra=BEARER,
    responses=problems("unauthenticated", "invalid_token", *BODY),
)
async def search(deps: DepsOf, asker: AskerOf, body: SearchRequest) -> SearchAnswer:
    """Light hits, best first, filtered before the limit. An index that is away makes it lexical and `degraded`."""
    wanted = Wanted(
        query=body.query or "",
        tags=body.tags,
        servers=body.servers,
        namespaces=body.namespaces,
        states=body.states,
        limit=body.limit,
        min_score=body.min_score,
        top_k_servers=body.top_k_servers,
        mode=body.search_mode,
    )
    findings = await find(deps, asker, wanted)
    answer = findings.answer
    return SearchAnswer(
        revision=findings.caller_view.revision,
        search_mode=answer.mode,
        degraded=answer.degraded,
        degradation=answer.degradation or None,
        tools=tuple(_result(hit, answer.mode == "compat") for hit in findings.hits),
    )


def _result(hit: Hit, with_score: bool) -> SearchResult:
    return SearchResult(
        tool_id=hit.tool.tool_id,
        name=hit.name,
        short_desc=short(hit.tool.description),
        server=hit.tool.server,
        confidence=hit.found.confidence,
        score=round(hit.found.score, 6) if with_score else None,
        why=hit.found.why,
    )


def short(description: str) -> str:
    """The first sentence or so, on one line."""
    text = " ".join(description.split())
    if len(text) <= _SHORT:
        return text
    cut = text[: _SHORT - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut) + "…"
