"""An answer that becomes a stream once there is something to tell before it: how far a call has come.

Where nothing is told, it is sent as every answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive, Send

from toolcrib_registry.calls.backends.port import Progress
from toolcrib_registry.http.event_stream import HEADERS, disconnected
from toolcrib_registry.watch.stream import KEEP_ALIVE

WAITING = 64
"""Notices that wait to be sent; then the backend waits."""

Tell = Callable[[Progress], Awaitable[None]]
Work = Callable[[Tell], Awaitable["Answered"]]


class Answered:
    """What the work came to: how it is sent by itself, and how as the last event of a stream."""

    async def send(self, send: Send) -> None:
        """Send it as a whole answer."""
        raise NotImplementedError

    async def send_event(self, send: Send) -> None:
        """Send it as a stream's last event, and end the stream."""
        raise NotImplementedError


class ProgressStream:
    """The answer.

    Args:
        work: what is done; it is given what to tell progress to.
        notice: an event about progress.
        receive: tells when the client has gone: the work ends then.
    """

    def __init__(self, work: Work, notice: Callable[[Progress], bytes], receive: Receive) -> None:
        self._work, self._notice, self._receive = work, notice, receive

    async def send(self, send: Send) -> None:
        """Do the work, and send what comes of it."""
        told: asyncio.Queue[Progress] = asyncio.Queue(WAITING)
        working = asyncio.ensure_future(self._work(told.put))
        gone = asyncio.create_task(disconnected(self._receive))
        try:
            await self._send(send, told, working, gone)
        finally:
            gone.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])

    async def _send(
        self,
        send: Send,
        told: asyncio.Queue[Progress],
        working: asyncio.Future[Answered],
        gone: asyncio.Task[None],
    ) -> None:
        begun = False
        while not (working.done() and told.empty()):
            next_one = asyncio.create_task(told.get())
            try:
                waited: list[asyncio.Future[Any]] = [working, gone, next_one]
                await asyncio.wait(waited, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                if next_one.done():
                    data = self._notice(next_one.result())
                elif not working.done() and begun:
                    data = b": keep-alive\n\n"
                else:
                    continue
            finally:
                next_one.cancel()
            if not begun:
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": data, "more_body": True})
        answered = working.result()
        await (answered.send_event(send) if begun else answered.send(send))


def body_only(send: Send) -> Send:
    """What sends an answer's body where its head has been sent."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.body":
            await send(message)

    return sent
