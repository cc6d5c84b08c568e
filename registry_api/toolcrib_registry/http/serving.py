"""Runs ASGI apps on sockets until told to stop: one uvicorn server a listener, one event loop for all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.telemetry import logs
from toolcrib_registry.http.certificates import ServedCertificate
from toolcrib_registry.http.connection_limits import ConnectionGate
from toolcrib_registry.http.connections import KEEP_ALIVE_SECONDS, Acceptor, BoundedProtocol
from toolcrib_registry.http.problems import ProblemError

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""How long requests in flight may take once a stop was asked for, unless told otherwise."""
UNSENT_BYTES = 64 * 1024
"""What the system takes of an answer beyond what the reader has room for. Linux takes up to 4 MB without a bound: what
lies there cannot be held back where a grant ends, and a reader that is slow is not noticed."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An app and where it listens; port 0 takes a free one.

    With a certificate it speaks TLS. `bound` is a socket that `bind` made before; `door` says which connections are kept.
    """

    app: ASGIApp
    host: str
    port: int
    certificate: ServedCertificate | None = None
    bound: socket.socket | None = None
    door: ConnectionGate = field(default_factory=ConnectionGate)

    def bind(self) -> socket.socket:
        """The listening socket: bound before anything starts, so that a taken port is an early error.

        Raises:
            OSError: the address is taken or not of this machine.
        """
        if self.bound is not None:
            return self.bound
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # with the protocol named asyncio sets TCP_NODELAY; without it small answers wait for 40 ms
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if unsent := getattr(socket, "TCP_NOTSENT_LOWAT", None):
                made.setsockopt(socket.IPPROTO_TCP, unsent, UNSENT_BYTES)
            made.bind((self.host.strip("[]"), self.port))
        except OSError as error:
            made.close()
            raise OSError(
                error.errno, f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            ) from error
        return made


class _CutOff:
    """Answers 503 where a request is given up because `finish_seconds` are over: uvicorn cancels it, and would send a
    plain 500. Only reads are told to try again: a call may have reached its tool."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        def noted(message: Message) -> Awaitable[None]:
            nonlocal begun
            begun = True
            return send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if begun or scope["type"] != "http":
                return
            headers = {"Retry-After": "1"} if scope["method"] in ("GET", "HEAD") else {}
            if request_id := logs.request_id.get():
                headers["X-Request-Id"] = request_id
            problem = ProblemError(
                "shutting_down", "The registry stopped before it could answer. Retry.", headers=headers
            )
            await problem.response()(scope, receive, send)


async def serve(
    listeners: Sequence[Listener],
    *,
    stopping: Callable[[], None],
    draining: Callable[[], None] | None = None,
    ready: Callable[[Sequence[int]], None] = lambda ports: None,
    stop: asyncio.Event | None = None,
    at_once: asyncio.Event | None = None,
    signals: bool = True,
    drain_seconds: float = 0.0,
    finish_seconds: float = STOP_SECONDS,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; then drain, and stop one listener after the other.

    While draining, everything is answered as before, with `Connection: close`: clients of kept-alive connections go
    elsewhere between two requests, never in the middle of one. Then each listener stops listening and finishes what
    it has begun; the last one, the operator's, does so when the others are done. A second signal ends it at once.

    Args:
        listeners: what to serve where, in the order in which they stop.
        stopping: called before the last one stops.
        draining: called when the drain begins: it ends streams that would last for ever; `stopping` where None.
        ready: called with the ports once all listen.
        stop: ends it from within.
        at_once: ends it without waiting for anything.
        signals: False where somebody else handles them, as with `stop_signals`.
        drain_seconds: how long the drain takes.
        finish_seconds: how long requests in flight may take after it, on all listeners together.
    """
    stop, at_once = stop or asyncio.Event(), at_once or asyncio.Event()
    sockets = [listener.bind() for listener in listeners]
    servers = [uvicorn.Server(_config(listener, finish_seconds)) for listener in listeners]
    following = [asyncio.create_task(x.certificate.follow()) for x in listeners if x.certificate is not None]
    with stop_signals(stop, at_once) if signals else contextlib.nullcontext():
        tasks = [
            asyncio.create_task(_run(server, bound, listener.door))
            for server, bound, listener in zip(servers, sockets, listeners, strict=True)
        ]
        try:
            while not all(s.started for s in servers) and not any(t.done() for t in tasks):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if all(s.started for s in servers):
                ready([bound.getsockname()[1] for bound in sockets])
            await _first(stop.wait(), *tasks)
        finally:
            (draining or stopping)()
            hurried = asyncio.create_task(_hurry(servers, at_once))
            if drain_seconds and not any(t.done() for t in tasks):
                log.info("stopping: draining for %g s", drain_seconds)
                for server in servers:
                    _send_away(server)
                await _first(at_once.wait(), asyncio.sleep(drain_seconds), *tasks)
            end = time.monotonic() + finish_seconds
            for server, task in zip(servers, tasks, strict=True):
                if server is servers[-1]:
                    stopping()
                # what one listener used up the next one lacks; a second it has, to say good-bye
                server.config.timeout_graceful_shutdown = max(1, math.ceil(end - time.monotonic()))
                server.should_exit = True
                await asyncio.wait([task])
            for background in (hurried, *following):
                background.cancel()
            for bound in sockets:
                bound.close()
            await asyncio.gather(*tasks)


def _send_away(server: uvicorn.Server) -> None:
    """From now on every answer says `Connection: close`.

    One that has begun cannot say so any more, and its client would send the next request into a connection that is just
    being closed: that one says it.
    """
    close = (b"connection", b"close")
    server.config.encoded_headers = [*server.config.encoded_headers, close]
    server.server_state.default_headers = [*server.server_state.default_headers, close]
    for connection in server.server_state.connections:
        cycle = getattr(connection, "cycle", None)
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False


async def _hurry(servers: Sequence[uvicorn.Server], at_once: asyncio.Event) -> None:
    await at_once.wait()
    log.warning("stop requested again: abandoning requests in progress")
    for server in servers:
        server.should_exit = server.force_exit = True


@contextlib.contextmanager
def stop_signals(stop: asyncio.Event, at_once: asyncio.Event) -> Iterator[None]:
    """Inside, the first SIGTERM or SIGINT sets `stop`, the next one `at_once`."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _first(*waited: Coroutine[Any, Any, Any] | asyncio.Task[None]) -> None:
    """Return when one of them is done; coroutines that are not are given up, tasks go on."""
    own = [asyncio.ensure_future(w) for w in waited if not isinstance(w, asyncio.Task)]
    try:
        tasks = [w for w in waited if isinstance(w, asyncio.Task)]
        await asyncio.wait([*own, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()


def _config(listener: Listener, finish_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        _CutOff(listener.app),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        # headers that anybody can send: nothing here follows them
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(finish_seconds),
        ssl_context_factory=None if listener.certificate is None else _context(listener.certificate),
    )


def _context(certificate: ServedCertificate) -> Callable[[Any, Any], ssl.SSLContext]:
    return lambda *_: certificate.context


async def _run(server: uvicorn.Server, bound: socket.socket, door: ConnectionGate) -> None:
    # what Server.serve does, without its signal handlers (two servers in one process would fight over them) and with
    # an acceptor that knows bounds
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    acceptor = Acceptor(server, bound, door)
    server.servers = [acceptor]  # type: ignore[list-item]
    acceptor.start()
    server.started = True
    if not server.should_exit:
        await server.main_loop()
    await server.shutdown(sockets=[bound])
    if cancelled := set(server.server_state.tasks):
        await asyncio.wait(cancelled, timeout=1)
