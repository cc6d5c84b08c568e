"""A tool's backend that answers when it is told to, and notices who has gone away."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from stub_server import Answer, Request, handling


class SlowBackend:
    """`port` takes requests; each waits for `answer`, or for the caller's end."""

    def __init__(self) -> None:
        self.port = 0
        self.began: queue.Queue[str] = queue.Queue()
        """The path of each request, when it has come."""
        self.given_up: queue.Queue[str] = queue.Queue()
        """The path of each request whose connection was closed before the answer."""
        self.body = b'{"secret": "the answer"}'
        self.only: frozenset[str] = frozenset()
        """Paths that wait; empty: all do."""
        self._go = threading.Event()

    def hold(self) -> None:
        """Let requests wait again."""
        self._go.clear()

    def answer(self) -> None:
        """Let all requests be answered, and those that come later at once."""
        self._go.set()

    def handle(self, request: Request) -> None:
        """Answer one request when it is time, on a connection of its own."""
        self.began.put(request.path)
        held = request.path in self.only if self.only else True
        while held and not self._go.wait(0.005):
            if request.gone():
                self.given_up.put(request.path)
                request.last()
                return
        request.send(Answer(self.body, headers={"content-type": "application/json", "connection": "close"}))


@contextlib.contextmanager
def slow_backend() -> Iterator[SlowBackend]:
    """A backend that runs until the block ends."""
    backend = SlowBackend()
    with handling(backend.handle) as backend.port:
        try:
            yield backend
        finally:
            backend.answer()
