"""`POST /v1/access-requests`: an agent asks people for a tool."""

from __future__ import annotations

from fastapi import APIRouter

from toolcrib.wire.api import AccessRequestBody, AccessRequested
from toolcrib_registry.calls import access
from toolcrib_registry.http.documentation import BEARER, BODY, problems
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["access requests"])


@router.post(
    "/access-requests",
    summary="Ask people for a tool",
    openapi_extra=BEARER,
    responses=problems(
        "unauthenticated",
        "invalid_token",
        *BODY,
        "tool_not_found",
        "already_granted",
        "too_many_requests",
        "policy_stale",
        "requests_unavailable",
    ),
)
async def ask(deps: DepsOf, asker: AskerOf, body: AccessRequestBody) -> AccessRequested:
    """404 alike for a tool that does not exist and for one whose namespace takes no requests."""
    return AccessRequested(request=await access.ask(deps, asker, body.tool_id, body.why))
