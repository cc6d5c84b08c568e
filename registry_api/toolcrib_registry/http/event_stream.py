"""Streams of a caller's view as server-sent events: a place among the streams, then events until either side ends them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from starlette.types import Receive, Send

from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.watch.slots import TooManyStreams
from toolcrib_registry.watch.stream import Dropped, ViewStream

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-store"),
    (b"vary", b"Authorization"),
    (b"x-accel-buffering", b"no"),
]


SOON = 0.02
"""Seconds within which most answers come. A task that watches costs more than most of a call, so none is made for these."""


class EventStream:
    """An answer that is a stream.

    Args:
        stream: what is sent.
        place: its place among all streams, while it lasts.
        receive: tells when the client has gone.
    """

    def __init__(self, stream: ViewStream, place: AbstractContextManager[None], receive: Receive) -> None:
        self._stream, self._place, self._receive = stream, place, receive

    async def send(self, send: Send) -> None:
        """Send it, to its end.

        Raises:
            ProblemError: there is no place.
        """
        try:
            with self._place:
                await self._send_events(send)
        except TooManyStreams:
            # the same words for either bound: nobody learns how many others watch
            raise ProblemError(
                "too_many_streams",
                "Retry later, close open streams, or poll GET /.",
                headers={"Retry-After": "30"},
            ) from None

    async def _send_events(self, send: Send) -> None:
        async def hand_over(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        left = asyncio.create_task(disconnected(self._receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._stream.run(hand_over, left)
            await send({"type": "http.response.body", "body": b""})
        except Dropped:
            pass  # without the end, which makes the server close the connection
        finally:
            left.cancel()


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class WhileThere:
    """End what is awaited inside when the client closes its connection: looked at once it has taken `SOON`.

    Raises:
        ClientGone: it did.
    """

    __slots__ = ("_inside", "_receive", "_scope", "_watching")

    def __init__(self, receive: Receive) -> None:
        self._receive, self._scope = receive, asyncio.timeout(None)
        self._watching: asyncio.TimerHandle | asyncio.Task[None]
        self._inside = True

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._watching = asyncio.get_running_loop().call_later(SOON, self._watch)

    async def __aexit__(self, *raised: Any) -> None:
        self._inside = False
        self._watching.cancel()
        try:
            await self._scope.__aexit__(*raised)
        except TimeoutError:
            raise ClientGone from None

    def _watch(self) -> None:
        task = self._watching = asyncio.create_task(disconnected(self._receive))
        task.add_done_callback(self._left)

    def _left(self, _: asyncio.Task[None]) -> None:
        if self._inside:
            self._scope.reschedule(0.0)


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
