"""A tool's backend that answers when it is told to, and notices who has gone away."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlowBackend:
    """`port` takes requests; each waits for `answer`, or for the caller's end."""

    def __init__(self) -> None:
        self.began: queue.Queue[str] = queue.Queue()
        """The path of each request, when it has come."""
        self.given_up: queue.Queue[str] = queue.Queue()
        """The path of each request whose connection was closed before the answer."""
        self.body = b'{"secret": "the answer"}'
        self._go = threading.Event()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                backend.began.put(self.path)
                while not backend._go.wait(0.005):
                    if _gone(self.connection):
                        backend.given_up.put(self.path)
                        self.close_connection = True
                        return
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(backend.body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(backend.body)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port: int = self.server.server_address[1]

    def hold(self) -> None:
        """Let requests wait again."""
        self._go.clear()

    def answer(self) -> None:
        """Let all requests be answered, and those that come later at once."""
        self._go.set()


def _gone(connection: socket.socket) -> bool:
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


@contextlib.contextmanager
def slow_backend() -> Iterator[SlowBackend]:
    """A backend that runs until the block ends."""
    backend = SlowBackend()
    thread = threading.Thread(
        target=backend.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield backend
    finally:
        backend.answer()
        backend.server.shutdown()
        thread.join(60)
        backend.server.server_close()
