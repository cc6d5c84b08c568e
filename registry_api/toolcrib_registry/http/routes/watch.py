"""`GET /v1/watch`: live updates of the caller's view."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib_registry.http.documentation import BEARER, problems
from toolcrib_registry.http.problems import ProblemError, unauthenticated
from toolcrib_registry.http.requests import AskerOf, DepsOf, ReadRoute
from toolcrib_registry.watch.slots import TooManyStreams
from toolcrib_registry.watch.stream import Dropped, WatchStream

router = APIRouter(route_class=ReadRoute, prefix="/v1", tags=["v1"])


_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-store"),
    (b"vary", b"Authorization"),
    (b"x-accel-buffering", b"no"),
]


class _Stream(Response):
    """A response that is a `WatchStream`."""

    def __init__(self, stream: WatchStream, place: AbstractContextManager[None]) -> None:
        super().__init__()
        self._stream, self._place = stream, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._place:
                await self._send_events(receive, send)
        except TooManyStreams:
            # the same words for either bound: nobody learns how many others watch
            raise ProblemError(
                "too_many_streams",
                "Try again later, close streams that you have open, or poll GET /.",
                headers={"Retry-After": "30"},
            ) from None

    async def _send_events(self, receive: Receive, send: Send) -> None:
        async def hand_over(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        left = asyncio.create_task(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._stream.run(hand_over, left)
            await send({"type": "http.response.body", "body": b""})
        except Dropped:
            pass  # without the end, which makes the server close the connection
        finally:
            left.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
    return _Stream(WatchStream(deps, asker.identity, tokens), deps.streams.place(asker.identity))
