"""The simple discovery protocol: `/`, `/tools/{name}`, `/tools/register`, `/stats`.

Reads answer 200 with fewer tools, or 404: clients keep their old list on any other status. Enforcement is at the call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from starlette.responses import Response

from toolcrib import names
from toolcrib.authorizer import Action, has_power
from toolcrib.view import AmbiguousName
from toolcrib.wire.simple import Discovery, DiscoveryEntry, Registered, Registration, Stats
from toolcrib_registry.calls import lookup
from toolcrib_registry.http.documentation import BEARER, BODY, OPTIONAL_BEARER, documented_only, problems
from toolcrib_registry.http.problems import ProblemError, unauthenticated
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.registration import (
    AlreadyRegistered,
    RegistrationFailed,
    RegistrationForbidden,
    RegistrationRefused,
    tool_of,
)

router = APIRouter(route_class=ReadRoute, tags=["discovery"])

EXAMPLE_ENTRY = {
    "name": "calculator",
    "endpoint": "/tools/calculator",
    "scopes": ["calculator:use"],
    "description": "Compute an arithmetic expression exactly.",
    "parameters": {"expression": {"type": "string", "description": "The expression.", "required": True}},
    "returns": "The expression and its result as a number.",
    "host": "127.0.0.1",
    "port": 8080,
}
_HEADERS = {
    "ETag": {"schema": {"type": "string"}, "description": "Names the content of the answer."},
    "WWW-Authenticate": {
        "schema": {"type": "string"},
        "description": "Why the token is not accepted; the list is then empty.",
    },
}
Name = Annotated[
    str, Path(min_length=1, max_length=512, description="A listed name, a tool id, or server:tool.")
]


@router.get(
    "/",
    response_model=Discovery,
    summary="Discover the caller's tools",
    openapi_extra=OPTIONAL_BEARER,
    responses={
        200: {
            "headers": _HEADERS,
            "content": {
                "application/json": {
                    "example": {
                        "service": "toolcrib",
                        "version": "0.1.0",
                        "protocol": "MCP",
                        "authenticated": True,
                        "scopes": ["calculator:use"],
                        "total_available": 1,
                        "total_registered": 1,
                        "tools": [EXAMPLE_ENTRY],
                    }
                }
            },
        },
        304: {"description": "Not modified (If-None-Match)."},
        **problems("list_too_large", "large_requests_busy"),
    },
)
async def discover() -> Response:
    """Everything the caller may call now. Served by the edge from kept bytes; this is the same answer."""
    documented_only()


@router.get(
    "/stats",
    summary="Counts of what the caller may see",
    openapi_extra=OPTIONAL_BEARER,
    responses=problems(),
)
async def stats(deps: DepsOf, asker: AskerOf) -> Stats:
    """The caller's tools counted; the whole catalog for holders of `registry:write`."""
    caller_view = await deps.state.caller_view(asker.identity, bad_token=asker.problem is not None)
    deps.decisions.listed(Action.STATS, caller_view)
    now = deps.clock.now()
    if has_power(caller_view.identity, names.SCOPE_WRITE, caller_view.snapshot.policy, now):
        tools = [t for t in caller_view.snapshot.tools.values() if t.active]
    else:
        tools = list(caller_view.view.tools.values())
    usage = Counter(scope for tool in tools for scope in tool.scopes)
    return Stats(
        total_tools=len(tools),
        tools_by_name=tuple(discovery.listed_names(tools, caller_view.view)),
        scope_usage=dict(sorted(usage.items())),
        unique_scopes=len(usage),
    )


@router.post(
    "/tools/register",
    summary="Register a tool at run time",
    openapi_extra=BEARER,
    responses=problems(
        *BODY,
        "already_registered",
        "reserved_scope",
        "schema_unsafe",
        "hidden_text",
        "egress_refused",
        "unauthenticated",
        "invalid_token",
        "not_permitted",
        "registration_off",
        "not_durable",
        "policy_stale",
    ),
)
async def register(deps: DepsOf, asker: AskerOf, body: Registration) -> Registered:
    """For holders of `registry:write`. When this answers, the tool is durable and in the next discovery."""
    identity, state = asker.identity, deps.state
    if identity is None:
        raise unauthenticated(asker.problem)

    def allowed() -> bool:
        return has_power(identity, names.SCOPE_WRITE, state.snapshot.policy, deps.clock.now())

    forbidden = ProblemError("not_permitted", "Registering tools requires the scope registry:write.")
    if not allowed():
        raise forbidden
    if deps.registrar is None:
        raise ProblemError("registration_off", "Registration is disabled here. Apply a Tool instead.")
    if state.stale:
        raise ProblemError(
            "policy_stale",
            "The policy is stale: no operator heartbeat for too long.",
            headers={"Retry-After": "10"},
        )
    # the schema may be one that takes long to judge, and the caller may lose the power meanwhile
    async with deps.large.turn(asker.account):
        tool = await asyncio.to_thread(tool_of, body, deps.settings.runtime_namespace)
    if not allowed():
        raise forbidden
    if tool.backend is not None and deps.check_address is not None:
        deps.check_address(tool.backend, tool.namespace)
    taken = ProblemError("already_registered", f"Tool '{tool.name}' already registered")
    if tool.tool_id in state.snapshot.tools:
        raise taken
    try:
        await deps.registrar.register(tool, allowed)
    except RegistrationForbidden as error:
        raise forbidden from error
    except AlreadyRegistered as error:
        raise taken from error
    except RegistrationRefused as error:
        raise ProblemError(
            "invalid_request", str(error)[:500] or "The definition is not a valid Tool."
        ) from error
    except RegistrationFailed as error:
        detail = str(error)[:300] or "The registration could not be stored. Retry later."
        raise ProblemError("not_durable", detail, headers={"Retry-After": "5"}) from error
    seen = (await state.caller_view(identity)).view.tools
    return Registered(message=f"Tool '{tool.name}' registered successfully", total_tools=len(seen))


@router.get(
    "/tools/{name:path}",
    response_model=DiscoveryEntry,
    summary="One tool, as discovery shows it",
    openapi_extra=OPTIONAL_BEARER,
    responses={
        200: {"content": {"application/json": {"example": EXAMPLE_ENTRY}}},
        **problems("tool_not_found", "not_found", "ambiguous_name"),
    },
)
async def one(deps: DepsOf, asker: AskerOf, name: Name) -> dict[str, Any]:
    """The eight keys, or 404: the same for hidden and absent."""
    try:
        named = await lookup.find(deps, asker, name, Action.LIST)
    except AmbiguousName as error:
        raise lookup.ambiguous(error) from error
    if named is None:
        raise lookup.not_found(name)
    lookup.note(deps, Action.LIST, named, "ok")
    return discovery.entry(named.tool, named.listed, deps.settings)


@router.post(
    "/tools/{name:path}",
    response_class=Response,
    summary="Call a tool by plain HTTP",
    openapi_extra=BEARER,
    responses={
        200: {
            "description": "What the tool answered.",
            "content": {"application/json": {"schema": {}}, "text/plain": {"schema": {"type": "string"}}},
        },
        **problems(
            *BODY,
            "invalid_arguments",
            "arguments_too_complex",
            "unauthenticated",
            "invalid_token",
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
    },
)
async def call(
    name: Name,
    arguments: Annotated[
        dict[str, Any] | None, Body(description="The arguments.", examples=[{"expression": "6*7"}])
    ] = None,
) -> Response:
    """The body is the arguments; the answer is the tool's. 403 alike for denied and unknown."""
    documented_only()
