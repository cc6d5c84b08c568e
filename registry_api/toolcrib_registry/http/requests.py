"""Requests of the apps' routes: bodies bounded while they are read and parsed strictly; who is asking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from toolcrib_registry.deps import Deps
from toolcrib_registry.http import strict_json
from toolcrib_registry.http.access_log import ASKER
from toolcrib_registry.http.edge import REQUEST_ID
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.identity.authenticator import NOBODY, Asker
from toolcrib_registry.limits.large_requests import LARGE, RETRY_SECONDS, NoRoom

_JSON_TYPE = re.compile(r"application/(?:[^/;,\s]+\+)?json", re.IGNORECASE)


class StrictRequest(Request):
    """Refuses bodies that are too large (413), not announced as JSON (415) or not unambiguous JSON (400).

    A large one is read when there is room for it, which `done` gives back.
    """

    _room = 0

    @property
    def _account(self) -> str:
        identity = self.scope.get(ASKER, NOBODY).identity
        return "" if identity is None else f"{identity.issuer} {identity.subject}"

    async def _enter(self, size: int) -> None:
        try:
            await deps_of(self).large.enter(self._account, size)
        except NoRoom:
            raise ProblemError(
                "large_requests_busy",
                "Too many large requests are in progress.",
                headers={"Retry-After": str(RETRY_SECONDS), "Connection": "close"},
            ) from None
        self._room = size

    def done(self) -> None:
        """The request has been answered, or given up."""
        size, self._room = self._room, 0
        if size:
            deps_of(self).large.leave(self._account, size)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces, counted."""
        limit = deps_of(self).settings.limits.body_bytes
        declared = self.headers.get("content-length", "")
        size = int(declared) if declared.isdigit() else 0
        if size > limit:
            raise too_large(limit)
        if size >= LARGE and not self._room:
            await self._enter(size)
        size = 0
        async for piece in super().stream():
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            if size >= LARGE and not self._room:  # of a length that nobody said
                await self._enter(limit)
            yield piece

    async def body(self) -> bytes:
        """The whole body; one that is there is announced as JSON, `application/json` or `application/*+json`."""
        body = await super().body()
        kind = self.headers.get("content-type", "").partition(";")[0].strip()
        if body and not _JSON_TYPE.fullmatch(kind):
            raise ProblemError(
                "unsupported_media_type", "Send the body as JSON, with Content-Type: application/json."
            )
        return body

    async def json(self) -> Any:
        """The body, parsed strictly."""
        depth = deps_of(self).settings.limits.json_depth
        body = await self.body()
        try:
            if len(body) < LARGE:
                return strict_json.parse(body, max_depth=depth)
            async with deps_of(self).large.turn(self._account):
                strict_json.check(body, max_depth=depth)
                await asyncio.sleep(0)  # others have their turn in between
                parsed = strict_json.read(body)
                await asyncio.sleep(0)
                return parsed
        except strict_json.InvalidJson as error:
            raise ProblemError("invalid_json", f"The body is refused: {error}.") from error


class StrictRoute(APIRoute):
    """A route that reads its body through `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a `StrictRequest`."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            try:
                return await inner(strict)
            finally:
                strict.done()

        return handle


def too_large(limit: int) -> ProblemError:
    """413, naming the limit."""
    # the rest of the body is not read: the connection cannot be used again
    return ProblemError(
        "too_large", f"The body may have at most {limit} bytes.", headers={"Connection": "close"}
    )


def deps_of(request: Request) -> Deps:
    """What `create_app` was given."""
    deps: Deps = request.app.state.deps
    return deps


# FastAPI runs what is not a coroutine function in a thread: three hops a request cost more than the rest of a call


async def _deps(request: Request) -> Deps:
    return deps_of(request)


async def _asker(request: Request) -> Asker:
    """Who is asking, as the edge found out."""
    asker: Asker = request.scope.get(ASKER, NOBODY)
    return asker


async def _request_id(request: Request) -> str:
    """The id that this request goes by in logs and at the backends."""
    return str(request.scope.get(REQUEST_ID, ""))


DepsOf = Annotated[Deps, Depends(_deps)]
AskerOf = Annotated[Asker, Depends(_asker)]
RequestId = Annotated[str, Depends(_request_id)]
