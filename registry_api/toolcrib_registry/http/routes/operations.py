"""Health and readiness: answered without a token, whatever else is going on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from toolcrib.wire.simple import Health, Part, Readiness
from toolcrib_registry.deps import Deps
from toolcrib_registry.http.documentation import problems
from toolcrib_registry.http.requests import DepsOf, ReadRoute
from toolcrib_registry.limits.counters import CountersUnavailable
from toolcrib_registry.search.errors import SearchError

_STORE_SECONDS = 1.0


async def health() -> Health:
    """The process answers."""
    return Health()


async def readyz(deps: DepsOf, response: Response) -> Readiness:
    """Whether discovery and calls are served, and why not.

    A search index that is away does not count: search answers from words meanwhile; nor does a store of counters: what
    need not be counted is served.
    """
    return _told(await readiness(deps), response)


async def readyz_with_errors(deps: DepsOf, response: Response) -> Readiness:
    """The same with the errors of the parts inside: they name hosts and addresses that agents need not know."""
    return _told(await readiness(deps, errors=True), response)


def _told(found: Readiness, response: Response) -> Readiness:
    response.status_code = 200 if found.ready else 503
    return found


async def readiness(deps: Deps, *, errors: bool = False) -> Readiness:
    """The parts and their state. `errors`: with what the parts inside said themselves."""
    state = deps.state
    age = state.policy_age()
    parts = {
        "serving": Part(
            ready=not state.draining,
            detail="draining: this replica is stopping; send new requests to another one"
            if state.draining
            else "",
        ),
        "snapshot": Part(
            ready=state.ready,
            detail="" if state.ready else "no full snapshot received from a leader since the start",
        ),
        "policy": Part(
            ready=not state.stale,
            detail=""
            if not state.stale
            else "policy_stale: no operator heartbeat"
            + ("" if age is None else f" for {age:.0f} s")
            + "; calls are refused",
        ),
        "addresses": _addresses(deps),
        "search": await _search(deps, errors),
        "limits": await _limits(deps, errors),
    }
    needed = ("serving", "snapshot", "policy", "addresses")
    return Readiness(ready=all(parts[name].ready for name in needed), parts=parts)


def _addresses(deps: Deps) -> Part:
    """In a rolling upgrade replicas of the earlier version serve until a leader publishes the addresses of Services."""
    if deps.state.unaddressed(deps.settings.backends):
        detail = "waiting up to two minutes for an operator that publishes the addresses of Services"
        return Part(ready=False, detail=detail)
    return Part(ready=True)


async def _search(deps: Deps, errors: bool) -> Part:
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            await deps.index.healthy()
    except (SearchError, TimeoutError) as error:
        said = f": {str(error)[:200] or 'no answer in time'}" if errors else ""
        return Part(ready=False, detail=f"index_unavailable{said}; search ranks by words alone")
    return Part(ready=True)


async def _limits(deps: Deps, errors: bool) -> Part:
    try:
        await deps.limits.counters.healthy()
    except CountersUnavailable as error:
        said = f": {error}" if errors else ""
        detail = f"limits_unavailable{said}; calls under a limit are refused, except of read-only tools"
        return Part(ready=False, detail=detail)
    return Part(ready=True)


def _routes(router: APIRouter, ready: Callable[..., Coroutine[Any, Any, Readiness]]) -> APIRouter:
    router.add_api_route(
        "/healthz", health, methods=["GET"], summary="Liveness", tags=["operations"], responses=problems()
    )
    router.add_api_route(
        "/readyz",
        ready,
        methods=["GET"],
        summary="Readiness, with the parts and why",
        tags=["operations"],
        responses={**problems(), 503: {"model": Readiness, "description": "Not ready; the parts say why."}},
    )
    return router


admin_router = _routes(APIRouter(route_class=ReadRoute), readyz_with_errors)
router = _routes(APIRouter(route_class=ReadRoute), readyz)
router.add_api_route(
    "/health",
    health,
    methods=["GET"],
    summary="Liveness, of the simple discovery protocol",
    tags=["discovery"],
    responses=problems(),
)
