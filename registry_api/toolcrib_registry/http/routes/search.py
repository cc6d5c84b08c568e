"""`POST /v1/search` as it is documented."""

from __future__ import annotations

from fastapi import APIRouter

from toolcrib.wire.search import SearchAnswer, SearchRequest
from toolcrib_registry.http.documentation import BEARER, BODY, documented_only, problems

router = APIRouter(prefix="/v1", tags=["v1"])


@router.post(
    "/search",
    summary="Find tools by meaning",
    openapi_extra=BEARER,
    responses=problems("unauthenticated", "invalid_token", *BODY),
)
async def search(body: SearchRequest) -> SearchAnswer:
    """Light hits, best first, filtered before the limit. An index that is away makes it lexical and `degraded`."""
    documented_only()
