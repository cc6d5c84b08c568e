"""An answer that becomes a stream once there is something to tell before it: how far a call has come, what its tool logs.

Where nothing is told, it is sent as every answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Send

from toolcrib_registry.calls.backends.port import Told
from toolcrib_registry.http.event_stream import HEADERS, ClientGone, WhileThere
from toolcrib_registry.watch.stream import KEEP_ALIVE

WAITING = 64
"""Notices that wait to be sent; then the backend waits."""

Tell = Callable[[Told], Awaitable[None]]
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
        work: what is done; it is given what to tell notices to.
        notice: an event about one.
        receive: tells when the client has gone: the work ends then.
    """

    def __init__(self, work: Work, notice: Callable[[Told], bytes], receive: Receive) -> None:
        self._work, self._notice, self._receive = work, notice, receive

    async def send(self, send: Send) -> None:
        """Do the work, and send what comes of it."""
        notices = _Notices(self._notice, send)
        try:
            async with WhileThere(self._receive):
                answered = await self._work(notices.tell)
                await notices.sent()
        except ClientGone:
            return
        finally:
            notices.stop()
        await (answered.send_event(send) if notices.begun else answered.send(send))


class _Notices:
    """The stream before the answer; it begins with the first notice."""

    def __init__(self, notice: Callable[[Told], bytes], send: Send) -> None:
        self._notice, self._send = notice, send
        self._waiting: asyncio.Queue[Told | None] = asyncio.Queue(WAITING)
        self._sending: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Whether there was a notice."""
        return self._sending is not None

    async def tell(self, told: Told) -> None:
        """Have it sent."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._run())
        await self._waiting.put(told)

    async def sent(self) -> None:
        """Return once all are sent."""
        if self._sending is not None:
            await self._waiting.put(None)
            await self._sending

    def stop(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()

    async def _run(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE):
                    told = await self._waiting.get()
            except TimeoutError:
                data = b": keep-alive\n\n"
            else:
                if told is None:
                    return
                data = self._notice(told)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


def body_only(send: Send) -> Send:
    """What sends an answer's body where its head has been sent."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.body":
            await send(message)

    return sent
