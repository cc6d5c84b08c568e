"""An HTTP server that answers what a function says, for tests of those who ask."""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request; names of headers are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What is sent back; the content's length is added."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *asking: Any) -> None:
        """Whoever asked may be gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*asking)


@contextlib.contextmanager
def answering(answer: Callable[[Asked], Answer], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server on 127.0.0.1, until the block ends. `answer` runs in a thread for each connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k.lower(): v for k, v in self.headers.items()}
            answered = answer(Asked(self.command, self.path, headers, body))
            self.send_response(answered.status)
            for name, value in answered.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
