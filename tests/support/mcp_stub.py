"""An MCP endpoint of which a test decides every answer, streams and breaks included."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Wire:
    """One request, and the means to answer it. Names of headers are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    _handler: BaseHTTPRequestHandler

    @property
    def message(self) -> Any:
        """The body's value."""
        return json.loads(self.body) if self.body else None

    def answer(self, body: bytes | Mapping[str, Any], status: int = 200, **headers: str) -> None:
        """Send everything at once; a mapping as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._begin(status, {"content-type": "application/json", **headers, "content-length": str(len(raw))})
        self._handler.wfile.write(raw)

    def result(self, **result: Any) -> None:
        """Answer the request with this result."""
        self.answer({"jsonrpc": "2.0", "id": self.message["id"], "result": result})

    def stream(self) -> None:
        """Begin an event stream; it ends when the handler returns."""
        self._begin(200, {"content-type": "text/event-stream", "connection": "close"})
        self._handler.close_connection = True

    def event(self, message: Mapping[str, Any]) -> None:
        """Send a message in the stream."""
        self._handler.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self._handler.wfile.flush()

    def cut(self) -> None:
        """Break the connection without an answer."""
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def gone(self, seconds: float = 30.0) -> bool:
        """Wait until the client has closed the connection; False: it has not."""
        readable, _, _ = select.select([self._handler.connection], [], [], seconds)
        return bool(readable) and self._handler.connection.recv(1, socket.MSG_PEEK) == b""

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *asking: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*asking)


@dataclass
class McpStub:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[Wire] = field(default_factory=list)

    def of(self, method: str) -> list[Wire]:
        """The requests with this JSON-RPC method."""
        return [w for w in self.asked if w.body and w.message.get("method") == method]


@contextlib.contextmanager
def mcp_stub(answer: Callable[[Wire], None], port: int = 0) -> Iterator[McpStub]:
    """Answers every request by `answer`, which runs in a thread for each connection. At the end all connections break."""

    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k.lower(): v for k, v in self.headers.items()}
            wire = Wire(self.command, self.path, headers, body, self)
            stub.asked.append(wire)
            answer(wire)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with _Server(("127.0.0.1", port), Handler) as server:
        stub = McpStub(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
            for connection in connections:
                with contextlib.suppress(OSError):  # it is closed
                    connection.shutdown(socket.SHUT_RDWR)
