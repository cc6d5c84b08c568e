"""The connections of a listener: accepted through its door, and closed where their clients are too slow.

uvicorn closes idle connections and nothing else: a client that sends a byte now and then, or never reads its answer,
would hold its connection for ever, and with some hundred of them the whole replica. Deadlines are attributes that one
sweep looks at, and no timers: a request costs two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import select
import socket
import ssl
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolcrib_registry.http.connection_limits import PLACE, ConnectionGate, ConnectionSlot
from toolcrib_registry.http.problems import PROBLEM_JSON, ProblemError

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 75
"""An idle connection is closed after this: later than clients and proxies give it up (httpx after 5 s, aiohttp 15 s,
nginx 60 s), or a request would now and then meet a connection that is just being closed."""
MAX_HEAD = 64 * 1024
"""Bytes of request line and headers."""
BODY_RATE = 1 << 20
"""Bytes of a body that buy its sender another second: a publish of hundreds of MB takes longer than a call's body."""
TAKEN = 64 * 1024
"""Bytes of an answer that its reader takes within `send_seconds`, or it is too slow."""
GOODBYE_SECONDS = 2.0
"""How long the other side of a closed connection may take to close its own."""
_AT_ONCE = 128
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with what it lacks: a bound on request line and headers, and deadlines.

    A request is read from its first byte (of a new connection from accepting it) to the end of its body. What is
    measured is the client's slowness alone: while we do not read, its time stands still.
    """

    def __init__(self, *args: Any, door: ConnectionGate, place: ConnectionSlot, **named: Any) -> None:
        super().__init__(*args, **named)
        self._door, self._bounds, self._place = door, door.bounds, place
        self._head: int | None = 0
        self._reading, self._in_body = True, False
        self._came = self._unsent = 0
        self._due: float = place.accepted + self._bounds.header_seconds
        self._send_due: float | None = None
        self._closing = self._last = False

    def shutdown(self) -> None:
        """Asked to stop: what has begun is finished, a request that has arrived and is not read yet is answered."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and not self.transport.is_closing() and _unread(self.transport):
            self._last = True
        else:
            super().shutdown()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._joined = _JoinedWrites(transport, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.leave()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head = 0
        if not self._reading:
            self._reading = True
            self._due = self.loop.time() + self._bounds.header_seconds
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        self._in_body, self._came, self._due = True, 0, math.inf
        self._place.busy = True
        self.scope[PLACE] = self._place  # type: ignore[literal-required]
        super().on_headers_complete()
        self._joined.expect_head()
        self.cycle.transport = self._joined  # type: ignore[assignment]
        if self._last:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._came += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = self._reading = False
        # an answer that came before the end of its request
        self._due = self._idle() if self.cycle.response_complete else math.inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()
        self._place.busy, self._place.since = not self.cycle.response_complete, self.loop.time()
        if not self._reading:
            self._due = self._idle() if self.cycle.response_complete else math.inf

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
            # what arrives together with the end of the headers may be body: only what exceeds both is refused
            if self._head > MAX_HEAD + len(data):
                self._door.closed("header_bytes")
                self.transport.close()
                return
        super().data_received(data)
        if self._in_body and self._due == math.inf:
            self._due = self.loop.time() + self._bounds.body_seconds

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_due = self.loop.time() + self._bounds.send_seconds
        self._unsent = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_due = None

    def look(self, now: float, passed: float) -> None:
        """Close the connection if its client is too slow; `passed` are the seconds since the last look."""
        if not self._closing and self.transport.is_closing():
            self._closing = True
            self._unsent = self.transport.get_write_buffer_size()
            self._send_due = now + (self._bounds.send_seconds if self._unsent else GOODBYE_SECONDS)
        if self._send_due is not None and now >= self._send_due:
            left = self.transport.get_write_buffer_size()
            if not left or left > self._unsent - TAKEN:
                if left:
                    self._door.closed("answer")
                self.transport.abort()
                return
            self._unsent, self._send_due = left, now + self._bounds.send_seconds
        if self._closing:
            return
        if self._reading and (
            self.flow.read_paused or (self._in_body and self.cycle.waiting_for_100_continue)
        ):
            self._due += passed
        elif now >= (self._due + self._came / BODY_RATE if self._in_body else self._due):
            self._late()

    def _late(self) -> None:
        if not self._reading:
            self.transport.close()
        elif not self._in_body:
            self._door.closed("headers")
            self.transport.abort()
        else:
            self._door.closed("body")
            if not self.cycle.response_started:
                # the app is told that the client is gone, and what it may still send goes nowhere
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                self.transport.write(_too_slow(self._bounds.body_seconds))
            self.transport.close()

    def _idle(self) -> float:
        return self.loop.time() + KEEP_ALIVE_SECONDS


class _JoinedWrites:
    """What an answer is written to: its head goes out together with the first of its body, or alone at the end of the loop's
    turn. uvicorn writes them one by one, and each write is a system call."""

    __slots__ = ("_expecting", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""
        self._expecting = False

    def expect_head(self) -> None:
        """The next write is an answer's head."""
        self.flush()
        self._expecting = True

    def write(self, data: bytes) -> None:
        """Write, or keep a head for the next write."""
        if self._expecting:
            self._expecting, self._head = False, data
            self._loop.call_soon(self.flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write what is kept."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Close the connection once everything is written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        return self._transport.is_closing()


def _unread(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that nobody has read: closing now would reset the connection."""
    arrived = select.poll()
    arrived.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(arrived.poll(0))


def _too_slow(seconds: float) -> bytes:
    problem = ProblemError("request_timeout", f"The body did not arrive within {seconds:g} s.")
    body = problem.body()
    head = f"HTTP/1.1 408 Request Timeout\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


class Acceptor:
    """Accepts a listener's connections through its door; what uvicorn's server takes for an asyncio server.

    asyncio's own accepting lets a connection be seen only after its TLS handshake: half handshakes would pass the door.
    """

    def __init__(self, server: uvicorn.Server, bound: socket.socket, door: ConnectionGate) -> None:
        self._server, self._bound, self._door = server, bound, door
        self._loop = asyncio.get_running_loop()
        self._settling: set[asyncio.Task[None]] = set()
        self._listening = False
        bounds = door.bounds
        self._every = min(1.0, min(bounds.header_seconds, bounds.body_seconds, bounds.send_seconds) / 5)
        self._looked = self._loop.time()

    def start(self) -> None:
        """Listen, and look after what was accepted from now on."""
        self._bound.setblocking(False)
        self._bound.listen(self._server.config.backlog)
        self._listening = True
        self._loop.add_reader(self._bound.fileno(), self._accept)
        self._loop.call_later(self._every, self._look)

    def close(self) -> None:
        """Accept no more."""
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._bound.fileno())

    async def wait_closed(self) -> None:
        """Return when every accepted connection is with uvicorn, or gone."""
        if self._settling:
            await asyncio.wait(self._settling)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                made, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                log.warning("cannot accept connections on listener %s: %s", self._door.name, error.strerror)
                self._loop.remove_reader(self._bound.fileno())
                self._loop.call_later(1.0, self._again)
                return
            place = self._door.enter(address[0], self._loop.time())
            if place is None:
                made.close()
                continue
            place.connection = made
            made.setblocking(False)
            task = self._loop.create_task(self._settle(made, place))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    def _again(self) -> None:
        if self._listening:
            self._loop.add_reader(self._bound.fileno(), self._accept)

    async def _settle(self, made: socket.socket, place: ConnectionSlot) -> None:
        """Give the connection to uvicorn: over TLS after its handshake."""
        server = self._server
        context = server.config.ssl
        seconds = self._door.bounds.header_seconds
        over_tls: dict[str, Any] = {}
        if context is not None:
            over_tls = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": GOODBYE_SECONDS}
        try:
            _, protocol = await self._loop.connect_accepted_socket(
                lambda: BoundedProtocol(
                    server.config,
                    server.server_state,
                    server.lifespan.state,
                    self._loop,
                    door=self._door,
                    place=place,
                ),
                made,
                ssl=context,
                **over_tls,
            )
        except (OSError, ssl.SSLError) as error:
            place.leave()
            if context is not None and isinstance(
                error, ConnectionAbortedError
            ):  # what asyncio calls its timeout
                self._door.closed("handshake")
            with contextlib.suppress(OSError):
                made.close()
        except BaseException:
            place.leave()
            raise
        else:
            if server.should_exit:
                protocol.shutdown()  # too late to be told with the others

    def _look(self) -> None:
        now = self._loop.time()
        passed, self._looked = now - self._looked, now
        for connection in list(self._server.server_state.connections):
            connection.look(now, passed)  # type: ignore[union-attr]
        if self._listening or self._settling or self._server.server_state.connections:
            self._loop.call_later(self._every, self._look)
