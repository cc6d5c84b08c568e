"""`GET /.well-known/oauth-protected-resource/mcp` and `…/mcp/direct`: where MCP clients get tokens (RFC 9728). Public."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from toolcrib.wire.api import example
from toolcrib_registry.http.documentation import problems
from toolcrib_registry.http.problems import unrouted
from toolcrib_registry.http.requests import DepsOf, ReadRoute
from toolcrib_registry.identity import resources

MAX_AGE = 300
"""Seconds for which a client may keep it: it changes with the settings alone."""


class ResourceMetadata(BaseModel):
    """RFC 9728 §2. `resource` is what the client names when it asks for a token, and the token's `aud`."""

    model_config = example(
        resource="https://toolcrib.example.com/mcp",
        resource_name="Toolcrib",
        authorization_servers=["https://login.example.com/realms/agents"],
        scopes_supported=["calculator:use"],
        bearer_methods_supported=["header"],
    )
    resource: str
    resource_name: str
    authorization_servers: list[str]
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str]


def _route(path: str) -> Callable[..., Coroutine[Any, Any, ResourceMetadata]]:
    async def metadata(deps: DepsOf, response: Response) -> ResourceMetadata:
        """404 where no issuer offers a login: clients then start none."""
        found = deps.resources[path].metadata()
        if found is None:
            raise unrouted(())
        response.headers["Cache-Control"] = f"public, max-age={MAX_AGE}"
        return ResourceMetadata.model_validate(found)

    return metadata


router = APIRouter(route_class=ReadRoute)
for _path in resources.PATHS:
    router.add_api_route(
        resources.WELL_KNOWN + _path,
        _route(_path),
        methods=["GET"],
        summary=f"Where clients of `{_path}` get tokens",
        tags=["operations"],
        response_model_exclude_none=True,
        responses=problems("not_found"),
    )
