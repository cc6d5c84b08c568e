"""`/v0.1/servers`: the caller's servers in the form of the MCP registry API. Read only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Path, Query
from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from toolcrib.authorizer import Action
from toolcrib.wire.api import example
from toolcrib_registry.deps import Deps
from toolcrib_registry.http import cursors
from toolcrib_registry.http.access_log import PRIVATE
from toolcrib_registry.http.documentation import BEARER, problems
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.http.view_answers import Made, ViewAnswer, encoded, matches
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy import servers
from toolcrib_registry.policy.servers import LATEST, Document
from toolcrib_registry.policy.state import CallerView

router = APIRouter(route_class=ReadRoute, prefix="/v0.1", tags=["registry API"])
TOKEN = ("unauthenticated", "invalid_token")


_FILES = {
    "name": "dev.toolcrib.heist/files",
    "description": "2 tools of files in heist, served at dev.toolcrib/toolcrib",
    "title": "heist/files",
    "version": "0.0.0-v1f2e3d4c5b6a",
}
_LISTED = servers.listed(_FILES)


class ServerJson(BaseModel):
    """A server.json document; `remotes` are the addresses that a client can connect to."""

    schema_: str | None = Field(default=None, alias="$schema")
    name: str
    description: str
    title: str | None = None
    version: str
    remotes: list[dict[str, str]] | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")


class ServerAnswer(BaseModel):
    """A server, and what the registry adds."""

    model_config = example(**_LISTED)
    server: ServerJson
    meta: dict[str, Any] = Field(alias="_meta")


class ServersMetadata(BaseModel):
    """How many are on this page, and where the next one begins."""

    count: int
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class ServerPage(BaseModel):
    """A page of servers."""

    model_config = example(servers=[_LISTED], metadata={"count": 1})
    servers: list[ServerAnswer]
    metadata: ServersMetadata


@router.get(
    "/servers",
    response_model=ServerPage,
    summary="The caller's servers, as the MCP registry API lists them",
    openapi_extra=BEARER,
    responses={
        200: {"headers": {"ETag": {"schema": {"type": "string"}}}},
        304: {"description": "Not modified (If-None-Match)."},
        **problems(*TOKEN, "invalid_cursor", "cursor_stale", "large_requests_busy"),
    },
)
async def listed(
    deps: DepsOf,
    asker: AskerOf,
    limit: Annotated[int, Query(ge=1, le=100)] = 30,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
    search: Annotated[str, Query(max_length=256, description="Part of a name, in any case.")] = "",
    updated_since: Annotated[
        AwareDatetime | None,
        Query(description="Tools have no dates, so nothing is left out: no change is missed."),
    ] = None,
    version: Annotated[
        str | None, Query(max_length=255, description="`latest`, or exactly this one.")
    ] = None,
    include_deleted: Annotated[bool, Query(description="Nothing deleted is kept.")] = False,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """By name. Servers of visible tools, and Toolcrib's own, the one with `remotes`."""
    del updated_since, include_deleted

    def chosen(found: Mapping[str, Document], caller_view: CallerView) -> dict[str, Any]:
        after = "" if cursor is None else cursors.decode(cursor, caller_view.revision)
        part = search.lower()
        names = [n for n in found if n > after and part in n.lower() and _is(found[n], version or LATEST)]
        page = names[:limit]
        following = cursors.encode(caller_view.revision, page[-1]) if len(names) > limit else None
        metadata = {"count": len(page), **({"nextCursor": following} if following else {})}
        return {"servers": [servers.listed(found[n]) for n in page], "metadata": metadata}

    return _answer(deps, asker, if_none_match, chosen)


@router.get(
    "/servers/{namespace}/{server}/versions",
    response_model=ServerPage,
    summary="The versions of one server: the present one",
    openapi_extra=BEARER,
    responses=problems(*TOKEN, "not_found"),
)
async def versions(
    deps: DepsOf,
    asker: AskerOf,
    namespace: Annotated[str, Path(max_length=253)],
    server: Annotated[str, Path(max_length=253)],
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """A name is two segments, also with its slash encoded. 404 alike for hidden and absent."""

    def chosen(found: Mapping[str, Document], _: CallerView) -> dict[str, Any]:
        document = _one(found, namespace, server, LATEST)
        return {"servers": [servers.listed(document)], "metadata": {"count": 1}}

    return _answer(deps, asker, if_none_match, chosen)


@router.get(
    "/servers/{namespace}/{server}/versions/{version}",
    response_model=ServerAnswer,
    summary="One server, by version or `latest`",
    openapi_extra=BEARER,
    responses=problems(*TOKEN, "not_found"),
)
async def one(
    deps: DepsOf,
    asker: AskerOf,
    namespace: Annotated[str, Path(max_length=253)],
    server: Annotated[str, Path(max_length=253)],
    version: Annotated[str, Path(max_length=255)],
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """404 alike for hidden and absent, and for a version that is not the present one."""

    def chosen(found: Mapping[str, Document], _: CallerView) -> dict[str, Any]:
        return servers.listed(_one(found, namespace, server, version))

    return _answer(deps, asker, if_none_match, chosen)


def _is(document: Document, version: str) -> bool:
    return version in (LATEST, document["version"])


def _one(found: Mapping[str, Document], namespace: str, server: str, version: str) -> Document:
    document = found.get(f"{namespace}/{server}")
    if document is None or not _is(document, version):
        raise ProblemError("not_found", "Unknown server or version.")
    return document


def _answer(
    deps: Deps,
    asker: Asker,
    none_match: str | None,
    chosen: Callable[[Mapping[str, Document], CallerView], Document],
) -> ViewAnswer:
    """What is `chosen` of the caller's servers, which are found in a thread where the view is large."""

    async def make(caller_view: CallerView) -> Made:
        view = caller_view.view
        count = 0

        def encode() -> bytes:
            nonlocal count
            answer = chosen(servers.of(view, deps.settings.own_url), caller_view)
            count = len(answer["servers"]) if "servers" in answer else 1
            return orjson.dumps(answer)

        def record(seen: CallerView) -> None:
            deps.metrics.discovered(seen.identity, "/v0.1/servers")
            deps.decisions.listed(Action.LIST, seen, found=count)

        body = await encoded(deps, asker, view.tools.values(), encode)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
        unchanged = none_match is not None and matches(none_match.encode("latin-1", "replace"), etag)
        return Made(body, ((b"etag", etag), *PRIVATE), unchanged, record)

    return ViewAnswer(deps, asker, make)
