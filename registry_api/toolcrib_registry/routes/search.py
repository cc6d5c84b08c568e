"""`POST /v1/search`: by meaning and words, within the caller's grants."""

from __future__ import annotations

import time

from fastapi import APIRouter

from toolcrib import tracing
from toolcrib.wire.api import SearchAnswer, SearchRequest, SearchResult
from toolcrib_registry.documentation import BEARER, BODY, problems
from toolcrib_registry.requests import AskerOf, DepsOf, StrictRoute

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["v1"])
TRIES = 4
"""How often a search is made at most: again where the caller's view changed meanwhile. Where it still does, hits that
have gone are left out."""
_SHORT = 200


@router.post(
    "/search",
    summary="Find tools by meaning",
    openapi_extra=BEARER,
    responses=problems("unauthenticated", "invalid_token", *BODY),
)
async def search(deps: DepsOf, asker: AskerOf, body: SearchRequest) -> SearchAnswer:
    """Light hits, best first, filtered before the limit. An index that is away makes it lexical and `degraded`."""
    start = time.perf_counter()
    with tracing.span("search") as span:
        for attempt in range(1, TRIES + 1):
            sight = deps.state.sight(asker.identity, bad_token=asker.problem is not None)
            found = await deps.searching.search(
                sight,
                body.query or "",
                tags=body.tags,
                servers=body.servers,
                limit=body.limit,
                min_score=body.min_score or 0.0,
                top_k_servers=body.top_k_servers,
            )
            # grants may have changed while the index was asked: the answer is of one view, that of the moment it is sent
            now = deps.state.sight(asker.identity, bad_token=asker.problem is not None)
            if now.revision == sight.revision or attempt == TRIES:
                break
        span.set({
            "toolcrib.search.mode": found.mode,
            "toolcrib.search.hits": len(found.hits),
            "toolcrib.search.degradation": found.degradation or None,
        })  # fmt: skip
    hits = tuple(
        SearchResult(
            tool_id=hit.tool_id,
            name=now.view.listed_name(hit.tool_id),
            short_desc=short(tool.description),
            server=tool.server,
            confidence=round(hit.confidence, 4),
        )
        for hit in found.hits
        if (tool := now.view.tools.get(hit.tool_id)) is not None
    )
    deps.metrics.searched(found.mode, len(hits), time.perf_counter() - start, degraded=found.degraded)
    deps.decisions.listed("search", now, found=len(hits), mode=found.mode)
    return SearchAnswer(revision=now.revision, search_mode=found.mode, degraded=found.degraded, tools=hits)


def short(description: str) -> str:
    """The first sentence or so, on one line."""
    text = " ".join(description.split())
    if len(text) <= _SHORT:
        return text
    cut = text[: _SHORT - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut) + "…"
