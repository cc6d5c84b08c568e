"""One request and its answer, over the guarded client: a POST that is answered by JSON or by a stream of events."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from toolcrib.version import __version__
from toolcrib_registry.outbound.errors import OutboundError, ProtocolViolation
from toolcrib_registry.outbound.messages import (
    NO_END,
    UNBOUNDED,
    Outbound,
    OutboundRequest,
    OutboundStream,
    retry_after,
)
from toolcrib_registry.upstream import messages
from toolcrib_registry.upstream.errors import (
    AnswerBroken,
    LoginRequired,
    NoticesTooFast,
    RefusedByRpc,
    RefusedByStatus,
    RequestTooLarge,
)
from toolcrib_registry.upstream.events import Events
from toolcrib_registry.upstream.messages import Message, Notification, Result, ServerRequest
from toolcrib_registry.upstream.servers import Asking, Bounds, Server

STREAM, JSON = "text/event-stream", "application/json"
Hear = Callable[[Notification | ServerRequest], Awaitable[None]]
"""Told what comes before an answer."""
_LARGE = 256 << 10
"""Bytes of JSON above which it is parsed in a thread."""
_ERROR_BYTES = 64 << 10
"""Read of an answer that is none: as much as an error of JSON-RPC may take."""
_BURST_SECONDS = 10.0
_END_SECONDS = 0.01
"""How long an answer waits for the end of its stream."""
_METADATA = re.compile(r'resource_metadata="([^"\\]{1,2048})"')
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class Answered:
    """A result, the header fields that came with it, and the message that it came in."""

    fields: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    text: bytes = field(repr=False)


class Exchanges:
    """Sends to servers what is encoded already.

    Args:
        outbound: the guarded client.
        bounds: of requests and answers.
        clock: monotonic seconds.
    """

    def __init__(
        self, outbound: Outbound, bounds: Bounds, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._outbound, self._bounds, self._clock = outbound, bounds, clock

    async def ask(
        self,
        server: Server,
        asking: Asking,
        body: bytes,
        id_: int,
        fields: Mapping[str, str],
        hear: Hear,
        at_most: int | None = None,
    ) -> Answered:
        """The result of the request `body`, whose id is `id_`.

        Raises:
            McpFailure, OutboundError: see `errors`.
        """
        limit = self._bounds.answer_bytes if at_most is None else at_most
        request = self._request(server, asking, "POST", body, fields, max_bytes=limit)
        async with self._outbound.open(request) as answer:
            if not 200 <= answer.status < 300:
                raise await refusal(answer, id_)
            if (kind := answer.content_type) == STREAM:
                return await self._streamed(answer, id_, hear, limit)
            if kind != JSON:
                raise AnswerBroken("the server's answer is neither JSON nor a stream of events")
            text = await _whole(answer, limit)
            value = await _parsed(text)
            # a request may be answered by an array where it could have been one (2025-03-26)
            value = value[0] if type(value) is list and len(value) == 1 else value
            found = _result(messages.read(value, id_, answer.status))
            return Answered(found.fields, answer.headers, text)

    async def tell(self, server: Server, asking: Asking, body: bytes, fields: Mapping[str, str]) -> None:
        """Send a notification, or an answer of ours.

        Raises:
            McpFailure, OutboundError: it was not accepted.
        """
        request = self._request(server, asking, "POST", body, fields, max_bytes=_ERROR_BYTES)
        async with self._outbound.open(request) as answer:
            if not 200 <= answer.status < 300:
                raise await refusal(answer, None)
            await _drained(answer)

    async def end(self, server: Server, asking: Asking, fields: Mapping[str, str]) -> None:
        """End a session (DELETE). A server may refuse that.

        Raises:
            OutboundError: it could not be told.
        """
        request = self._request(server, asking, "DELETE", None, fields, max_bytes=_ERROR_BYTES)
        async with self._outbound.open(request) as answer:
            await _drained(answer)

    @asynccontextmanager
    async def notices(
        self, server: Server, asking: Asking, method: str, body: bytes | None, fields: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """A stream of messages without an end, each parsed; `asking.seconds` is for its head alone.

        Raises:
            McpFailure, OutboundError: the server offers none.
        """
        request = self._request(server, asking, method, body, fields, max_bytes=UNBOUNDED, timeout=NO_END)
        async with asyncio.timeout(asking.seconds) as head, self._outbound.open(request) as answer:
            head.reschedule(None)
            if not 200 <= answer.status < 300:
                raise await refusal(answer, None)
            if answer.content_type != STREAM:
                raise AnswerBroken("the server answers with something else than a stream of events")
            yield self._values(answer)

    async def first_event(self, server: Server, asking: Asking) -> str | None:
        """The kind of the first event that a GET brings; None: there is no stream of events.

        Raises:
            OutboundError: nothing came in time.
        """
        request = self._request(server, asking, "GET", None, {}, max_bytes=_ERROR_BYTES)
        async with self._outbound.open(request) as answer:
            if answer.status != 200 or answer.content_type != STREAM:
                return None
            events = Events(_ERROR_BYTES)
            while piece := await answer.read():
                for event in events.feed(piece):
                    return event.kind
        return None

    def _request(
        self,
        server: Server,
        asking: Asking,
        method: str,
        body: bytes | None,
        fields: Mapping[str, str],
        *,
        max_bytes: int,
        timeout: float | None = None,
    ) -> OutboundRequest:
        if body is not None and len(body) > self._bounds.request_bytes:
            raise RequestTooLarge(self._bounds.request_bytes)
        headers = {
            "accept": STREAM if method == "GET" else f"{JSON}, {STREAM}",
            "user-agent": f"toolcrib/{__version__}",
            **fields,
            **asking.sign(method, body),
        }
        if body is not None:
            headers["content-type"] = JSON
        if asking.request_id is not None and _REQUEST_ID.fullmatch(asking.request_id):
            headers["x-request-id"] = asking.request_id
        return OutboundRequest(
            target=server.target,
            method=method,
            path=server.target.path,
            headers=headers,
            body=body,
            timeout=asking.seconds if timeout is None else timeout,
            max_bytes=max_bytes,
            owner=server.owner,
        )

    async def _streamed(self, answer: OutboundStream, id_: int, hear: Hear, limit: int) -> Answered:
        events, count = Events(limit), 0
        while piece := await answer.read():
            for event in events.feed(piece):
                count += 1
                if count > self._bounds.events:
                    raise AnswerBroken(f"more than {self._bounds.events} events came before the answer")
                if event.kind != "message" or not event.data:
                    continue
                value = await _parsed(event.data)
                for each in value if type(value) is list else (value,):
                    message = messages.read(each, id_)
                    if not isinstance(message, Notification | ServerRequest):
                        await _ended(answer)
                        return Answered(_result(message).fields, answer.headers, event.data)
                    await hear(message)
        raise AnswerBroken("the server's stream ended without an answer")

    async def _values(self, answer: OutboundStream) -> AsyncIterator[Any]:
        events, size, began = Events(self._bounds.notice_bytes), 0, self._clock()
        while piece := await answer.read():
            size += len(piece)
            if size > self._bounds.notice_burst:
                now = self._clock()
                if now - began < _BURST_SECONDS:
                    raise NoticesTooFast
                size, began = len(piece), now
            for event in events.feed(piece):
                if event.kind == "message" and event.data:
                    yield await _parsed(event.data)
            await asyncio.sleep(0)  # where more is there already, reading it does not wait


async def refusal(answer: OutboundStream, id_: int | None) -> Exception:
    """What an answer says that is no success."""
    status, headers = answer.status, answer.headers
    if status == 401:
        found = _METADATA.search(headers.get("www-authenticate", ""))
        return LoginRequired(None if found is None else found[1])
    seconds = retry_after(headers)
    if answer.content_type == JSON and 400 <= status < 500 and status not in (403, 408, 429):
        try:
            message = messages.read(messages.parsed(await _whole(answer, _ERROR_BYTES)), id_ or 0, status)
        except (AnswerBroken, ProtocolViolation):
            return RefusedByStatus(status, seconds)
        if isinstance(message, RefusedByRpc):
            return message
    return RefusedByStatus(status, seconds)


def _result(message: Message) -> Result:
    if isinstance(message, RefusedByRpc):
        raise message
    if not isinstance(message, Result):
        raise AnswerBroken("the server answered with something else than a result")
    return message


async def _parsed(text: bytes) -> Any:
    if len(text) <= _LARGE:
        return messages.parsed(text)
    return await asyncio.to_thread(messages.parsed, text)


async def _whole(answer: OutboundStream, limit: int) -> bytes:
    parts, size = list[bytes](), 0
    while piece := await answer.read():
        size += len(piece)
        if size > limit:
            raise AnswerBroken(f"the server's answer is larger than {limit} bytes")
        parts.append(piece)
    return b"".join(parts)


async def _ended(answer: OutboundStream) -> None:
    """Read the end of a stream that has brought its answer, if it comes at once: then its connection can be used again."""
    with suppress(TimeoutError, OutboundError):
        async with asyncio.timeout(_END_SECONDS):
            while await answer.read():
                pass


async def _drained(answer: OutboundStream) -> None:
    """Read to the end, so that the connection can be used again; a stream has none that is worth waiting for."""
    if answer.content_type != STREAM:
        await _whole(answer, _ERROR_BYTES)
