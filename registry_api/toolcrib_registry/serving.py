"""Runs ASGI apps on sockets until told to stop: one uvicorn server a listener, one event loop for all."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolcrib_registry.settings import Tls

STOP_SECONDS = 10
"""How long requests in flight may take once a stop was asked for."""
MAX_HEAD = 64 * 1024
"""Bytes of request line and headers."""

NO_TLS = Tls()


@dataclass(frozen=True, slots=True)
class Listener:
    """An app and where it listens; port 0 takes a free one. `bound` is a socket that `bind` made before."""

    app: ASGIApp
    host: str
    port: int
    tls: Tls = NO_TLS
    bound: socket.socket | None = None

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
            made.bind((self.host.strip("[]"), self.port))
        except OSError as error:
            made.close()
            raise OSError(
                error.errno, f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            ) from error
        return made


class _BoundedHeaders(HttpToolsProtocol):
    """uvicorn's protocol with a bound on request line and headers, which it lacks: the connection is closed."""

    _head: int | None = 0

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
            # what arrives together with the end of the headers may be body: only what exceeds both is refused
            if self._head > MAX_HEAD + len(data):
                self.transport.close()
                return
        super().data_received(data)


async def serve(
    listeners: Sequence[Listener],
    *,
    stopping: Callable[[], None],
    ready: Callable[[Sequence[int]], None] = lambda ports: None,
    stop: asyncio.Event | None = None,
    signals: bool = True,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`.

    Args:
        listeners: what to serve where.
        stopping: called before connections are drained: it ends streams that would last for ever.
        ready: called with the ports once all listen.
        stop: ends it from within.
        signals: False where somebody else handles them.
    """
    stop = stop or asyncio.Event()
    sockets = [listener.bind() for listener in listeners]
    servers = [uvicorn.Server(_config(listener)) for listener in listeners]
    loop = asyncio.get_running_loop()
    if signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(_run(server, bound)) for server, bound in zip(servers, sockets, strict=True)]
    try:
        while not all(s.started for s in servers) and not any(t.done() for t in tasks):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if all(s.started for s in servers):
            ready([bound.getsockname()[1] for bound in sockets])
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    finally:
        stopping()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        for bound in sockets:
            bound.close()


def _config(listener: Listener) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        http=_BoundedHeaders,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=listener.tls.cert_file,
        ssl_keyfile=listener.tls.key_file,
    )


async def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    # what Server.serve does, without its signal handlers: two servers in one process would fight over them
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[bound])
    if server.should_exit:
        return
    await server.main_loop()
    await server.shutdown(sockets=[bound])
