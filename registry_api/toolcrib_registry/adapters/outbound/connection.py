"""One HTTP/1.1 connection to a backend: a request at a time, its answer parsed by llhttp, strictly.

What the connection cannot be used after is said in one place (`reusable`): an answer that is not over, one that ends
with the connection, bytes that nobody asked for. Every bound is on what has arrived, before it is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import httptools

from toolcrib_registry.outbound.errors import (
    Disconnected,
    OutboundError,
    ProtocolViolation,
)

CHUNK = 64 * 1024
"""Bytes of an answer that may wait to be read; beyond twice as many, nothing is taken from the socket."""
MAX_HEADERS = 100
MAX_LINE = 8_190
MAX_SILENT = 128 * 1024
"""Bytes in a row that are no part of a body: head, interim answers, extensions of chunks, trailers."""
_VERSIONS = ("1.1", "1.0")
_INVALID = "the response ended early or its framing is invalid"


class Connection(asyncio.Protocol):
    """Sends a request and holds what comes back. Used from one event loop only."""

    status = 0
    """Of the answer, once `head` has returned."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.headers: dict[str, str] = {}
        """Names in lower case; of repeated ones the first."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is."""
        self._error: OutboundError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._asked = self._answered = self._has_head = self._ended = False
        self._until_close = self._keeps = False
        self._pieces: deque[bytes] = deque()
        self._waiting = self._silent = self._count = 0
        self._paused = False

    # what is asked of it

    def ask(self, head: bytes, body: bytes | None) -> None:
        """Send a request; its answer is awaited by `head`, then read piece by piece.

        Raises:
            ProtocolViolation: something has arrived before.
            Disconnected: the connection is closed.
        """
        if self._error is not None:
            raise self._error
        if self._transport is None or self._transport.is_closing():
            raise Disconnected("the connection closed before a response")
        self._asked, self._answered, self._has_head, self._ended = True, False, False, False
        self._until_close = self._keeps = False
        self._silent = self._count = 0
        if body is None or len(body) <= CHUNK:
            self._transport.write(head + body if body else head)
        else:
            self._transport.writelines((head, body))

    async def head(self) -> None:
        """Return when status and headers are there.

        Raises:
            OutboundError: they will not be.
        """
        while not self._has_head:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """The next `CHUNK` bytes of the body at most, once something has arrived; empty at its end.

        Raises:
            OutboundError: it is broken or cut short.
        """
        while not self._pieces:
            if self._ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        piece = self._taken()
        self._waiting -= len(piece)
        if self._paused and self._waiting <= CHUNK and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    def _taken(self) -> bytes:
        """A reader of a stream gets no more work at a time than a chunk makes."""
        if self._waiting <= CHUNK:
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            return piece
        size, parts = 0, []
        while size < CHUNK:
            part = self._pieces.popleft()
            if left := part[CHUNK - size :]:
                self._pieces.appendleft(left)
                part = part[: CHUNK - size]
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on it."""
        transport = self._transport
        return (
            self._ended and self._keeps and self._error is None and not self._pieces
            and transport is not None and not transport.is_closing()
            # the server has answered before it had read everything
            and not transport.get_write_buffer_size()
        )  # fmt: skip

    def give_up(self, why: OutboundError) -> None:
        """Close it at once; what waits for it is told why."""
        if self._error is None:
            self._error = why
        self._wake()
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what the event loop tells it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        if self._error is not None:
            return
        if not self._asked or self._ended:
            self.give_up(ProtocolViolation("the server sent data before any request"))
            return
        self._silent += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # its texts stay behind, since they may quote what the other side sent
            self.give_up(
                ProtocolViolation("the response is not valid HTTP" if not self._has_head else _INVALID)
            )
            return
        if self._silent > MAX_SILENT and not self._ended:
            self.give_up(ProtocolViolation("the response is not valid HTTP"))
        elif self._waiting > 2 * CHUNK and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The server sends no more: what that means is `connection_lost`'s to say."""

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed."""
        if self._error is None:
            if self._has_head and self._until_close and error is None:
                self._ended = True
            elif not self._answered:
                self._error = Disconnected("the connection closed before a response")
            else:
                self._error = ProtocolViolation(_INVALID)
        self._wake()
        if not self.closed.done():
            self.closed.set_result(None)

    # what the parser tells it

    def on_message_begin(self) -> None:
        """A first byte of an answer, or of one more."""
        if self._ended:
            raise ValueError
        self._answered, self.headers = True, {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of the head's, or of the trailers, which nobody reads."""
        self._count += 1
        if self._count > MAX_HEADERS or len(name) + len(value) > MAX_LINE:
            raise ValueError
        if not self._has_head:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """The head is whole; that of an interim answer (RFC 9110, 15.2) is passed over."""
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in _VERSIONS or status == 101 or not 100 <= status < 600:
            raise ValueError
        if status < 200:
            return
        coding = self.headers.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            raise ValueError
        self.status, self._has_head = status, True
        self._until_close = coding is None and "content-length" not in self.headers

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._silent = 0
        self._waiting += len(body)
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._has_head:
            return
        self._ended = True
        self._keeps = self._parser.should_keep_alive()


def request_head(method: str, path: str, headers: Mapping[str, Any], body: bytes | None) -> bytes:
    """The bytes of a request before its body.

    Args:
        method: its method.
        path: with its query, percent-encoded.
        headers: of it, the Host among them.
        body: it is sent with its length; None: there is none.

    Raises:
        ProtocolViolation: path or headers would end a line, or are not ones that HTTP can carry.
    """
    length = len(body) if body is not None else None if method in ("GET", "HEAD", "OPTIONS") else 0
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    made = "\r\n".join(lines)
    ends = len(lines) - 1
    try:
        if (
            made.count("\n") == made.count("\r") == ends and "\0" not in made
            and path.startswith("/") and " " not in path and path.isascii()
        ):  # fmt: skip
            return f"{made}\r\n\r\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        pass
    raise ProtocolViolation("the request or the response is not valid HTTP")
