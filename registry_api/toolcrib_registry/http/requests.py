"""Requests of FastAPI's routes: bodies as the edge has read and parsed them; who is asking."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from toolcrib_registry.deps import Deps
from toolcrib_registry.http.access_log import ASKER
from toolcrib_registry.http.bodies import BODY, PARSED
from toolcrib_registry.identity.authenticator import NOBODY, Asker


class ReadRequest(Request):
    """A request whose body the edge has read and parsed, as the route's line says."""

    async def body(self) -> bytes:
        """The whole body."""
        body: bytes = self.scope.get(BODY) or b""
        return body

    async def json(self) -> Any:
        """Its value."""
        return self.scope[PARSED]


class ReadRoute(APIRoute):
    """A route that takes its body from the edge."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a `ReadRequest`."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await inner(ReadRequest(request.scope, request.receive))

        return handle


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


DepsOf = Annotated[Deps, Depends(_deps)]
AskerOf = Annotated[Asker, Depends(_asker)]
