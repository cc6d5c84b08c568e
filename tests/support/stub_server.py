"""An HTTP server of which a test decides what is answered: whole, in parts, late or not at all."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Headers = Mapping[str, str] | tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """A request. Names of `headers` are lower case; `fields` are the headers as they came, repeated ones included."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    fields: tuple[tuple[str, str], ...]

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What is sent back; the content's length is added."""

    body: bytes = b""
    status: int = 200
    headers: Headers = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass(frozen=True)
class Request(Asked):
    """A request, and the means to answer it."""

    _handler: BaseHTTPRequestHandler

    def send(self, answer: Answer) -> None:
        """Answer with everything at once."""
        self._begin(answer.status, (*_pairs(answer.headers), ("content-length", str(len(answer.body)))))
        self.write(answer.body)

    def begin(self, headers: Headers, status: int = 200) -> None:
        """Begin an answer in parts, which `write` sends; without a length among `headers` the connection ends with it."""
        pairs = _pairs(headers)
        if not any(name.lower() == "content-length" for name, _ in pairs):
            pairs = (*pairs, ("connection", "close"))
        self._begin(status, pairs)

    def write(self, content: bytes) -> None:
        """Send this now, as it is."""
        self._handler.wfile.write(content)

    def last(self) -> None:
        """Close the connection when the function returns, whatever was sent."""
        self._handler.close_connection = True

    def cut(self) -> None:
        """Break the connection."""
        self.last()
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def gone(self, seconds: float = 0.0) -> bool:
        """Whether who asked closes the connection within `seconds`."""
        connection: socket.socket = self._handler.connection
        if not select.select([connection], [], [], seconds)[0]:
            return False
        try:
            return connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _begin(self, status: int, pairs: tuple[tuple[str, str], ...]) -> None:
        self._handler.send_response(status)
        for name, value in pairs:
            self._handler.send_header(name, value)
        self._handler.end_headers()


def _pairs(headers: Headers) -> tuple[tuple[str, str], ...]:
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, port: int, handler: type[BaseHTTPRequestHandler], connected: Callable[[], None]
    ) -> None:
        self._connected = connected
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connected()
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *asking: Any) -> None:
        """Whoever asked may be gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*asking)

    def cut_all(self) -> None:
        """As the end of a process does: connections that a client keeps for later end, too."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it is closed
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


@contextlib.contextmanager
def handling(
    handle: Callable[[Request], None],
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
    connected: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """The port of a server on 127.0.0.1, until the block ends, and all connections with it.

    Args:
        handle: answers a request; runs in a thread for each connection. Where it sends nothing, nothing is answered.
        connected: called for each connection, before anything is read.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k.lower(): v for k, v in self.headers.items()}
            handle(Request(self.command, self.path, headers, body, tuple(self.headers.items()), self))

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with _Server(port, Handler, connected) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
            server.cut_all()


def answering(
    answer: Callable[[Asked], Answer],
    tls: ssl.SSLContext | None = None,
    connected: Callable[[], None] = lambda: None,
) -> contextlib.AbstractContextManager[int]:
    """`handling`, where each request is answered at once by what `answer` says."""
    return handling(lambda request: request.send(answer(request)), tls=tls, connected=connected)
