"""`/metrics`, on a listener of its own: who may reach that one may read all of it, without a token."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from toolcrib.telemetry.exposition import CONTENT_TYPE
from toolcrib_registry.http.requests import DepsOf

router = APIRouter(tags=["operations"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(deps: DepsOf) -> Response:
    """Prometheus text format; no token."""
    await deps.index.observe()
    if deps.metrics.full:  # otherwise they are counted already
        deps.refusals.settle()
    deps.metrics.sweep()
    # tens of thousands of series at most: agents are answered meanwhile
    text = await asyncio.to_thread(deps.metrics.exposition)
    return Response(text, headers={"content-type": CONTENT_TYPE})
