"""Clients that are slow on purpose, on raw sockets: they send next to nothing, or do not read."""

import re
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager

STEP = 0.05
"""Seconds between two bytes of a drip."""


@contextmanager
def connected(
    port: int, *, receive_buffer: int | None = None, source: str = "127.0.0.1"
) -> Iterator[socket.socket]:
    """A connection to a port of loopback, from an address of loopback."""
    with socket.socket() as made:
        made.bind((source, 0))
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(60)
        made.connect(("127.0.0.1", port))
        yield made


def drip(connection: socket.socket, data: bytes, step: float = STEP) -> bytes:
    """Send `data` byte by byte, until the other side closes or says something; what it said until it closed.

    Raises:
        AssertionError: all was sent, and nothing happened.
    """
    for byte in data:
        if select.select([connection], [], [], step)[0]:
            return rest(connection)
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return rest(connection)
    raise AssertionError(f"{len(data)} bytes were waited for, one every {step} s")


def rest(connection: socket.socket) -> bytes:
    """What comes until the other side closes; nothing where it resets the connection."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionError:
        pass
    return b"".join(pieces)


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send a request; the head of its answer, which is read to its end."""
    connection.sendall(request)
    came = b""
    while b"\r\n\r\n" not in came:
        came += connection.recv(65536)
    head, _, body = came.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"(?im)^content-length: *([0-9]+)", head)
    while len(body) < int(length):
        body += connection.recv(65536)
    return head


def closed(connection: socket.socket) -> bool:
    """Whether the other side has closed by now."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True
