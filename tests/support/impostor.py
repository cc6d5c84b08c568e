"""Another program at a local mode's address: it keeps every byte that it is sent, and answers as a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

LARGEST = 1024 * 1024


@dataclass
class Impostor:
    """Address of the listener, and the bytes that arrived, a text for each connection."""

    url: str = ""
    received: list[bytearray] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Port of its address."""
        return int(self.url.rpartition(":")[2])

    @property
    def all(self) -> bytes:
        """Every byte."""
        return b"\n".join(map(bytes, self.received))


@contextlib.contextmanager
def impostor(answer: Callable[[int, bytes], bytes | None], port: int = 0) -> Iterator[Impostor]:
    """Listens until the end. `answer` gets the connection's number and each request's head; None: it closes."""
    with socket.create_server(("127.0.0.1", port)) as server:
        made = Impostor(f"http://127.0.0.1:{server.getsockname()[1]}")
        open_now: list[socket.socket] = []

        def follow(connection: socket.socket, held: bytearray, number: int) -> None:
            with connection, contextlib.suppress(OSError):
                done = 0
                while received := connection.recv(65_536):
                    held += received
                    assert len(held) < LARGEST
                    while (end := held.find(b"\r\n\r\n", done)) >= 0:
                        answered = answer(number, bytes(held[done:end]))
                        done = end + 4
                        if answered is None:
                            return
                        connection.sendall(answered)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    open_now.append(connection)
                    made.received.append(held := bytearray())
                    args = (connection, held, len(made.received))
                    threading.Thread(target=follow, args=args, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for each in open_now:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def http(body: bytes, status: str = "200 OK") -> bytes:
    """A whole answer that keeps the connection open."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
