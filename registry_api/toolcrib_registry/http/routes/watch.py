"""`GET /v1/watch`: live updates of the caller's view."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib_registry.http.documentation import BEARER, problems
from toolcrib_registry.http.event_stream import EventStream
from toolcrib_registry.http.problems import unauthenticated
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.watch.stream import WatchStream

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["v1"])


class _Stream(Response):
    """An `EventStream` as the answer of a route."""

    def __init__(self, stream: WatchStream, place: AbstractContextManager[None]) -> None:
        super().__init__()
        self._stream, self._place = stream, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await EventStream(self._stream, self._place, receive).send(send)


@router.get(
    "/watch",
    response_class=Response,
    summary="Watch the caller's view (server-sent events)",
    openapi_extra=BEARER,
    responses={
        200: {
            "description": "`snapshot`, then `added`, `changed`, `removed`; `end` when the token is good no more.",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 41d0…\nevent: removed\ndata: {"revision":"41d0…","tool_id":"heist/calculator"}\n\n',
                }
            },
        },
        **problems("unauthenticated", "invalid_token", "too_many_streams"),
    },
)
async def watch(deps: DepsOf, asker: AskerOf, request: Request) -> Response:
    """Each event is decided when it is sent; ids name the content of the view."""
    if asker.identity is None:
        raise unauthenticated(asker.problem)
    tokens = [value for name, value in request.scope["headers"] if name == b"authorization"]
    return _Stream(WatchStream(deps, asker.identity, deps.agents, tokens), deps.streams.place(asker.identity))
