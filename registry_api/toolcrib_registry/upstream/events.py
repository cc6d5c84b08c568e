"""Server-sent events, as they come in pieces.

HTML Living Standard, Server-sent events, 9.2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from toolcrib_registry.upstream.errors import AnswerBroken


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `kind` is `message` unless it says otherwise."""

    kind: str
    data: bytes = field(repr=False)


class Events:
    """Makes events of pieces.

    Args:
        largest: bytes of one event.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rest = bytearray()
        self._after_cr = False
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0
        self._first = True

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in `piece`.

        Raises:
            AnswerBroken: one is too large.
        """
        if self._after_cr and piece[:1] == b"\n":
            piece = piece[1:]
        if piece:
            self._after_cr = piece[-1:] == b"\r"
        *lines, last = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if self._rest:
                line = bytes(self._rest + line)
                self._rest.clear()
            if (event := self._take(line)) is not None:
                yield event
        self._rest += last
        self._bound(len(self._rest))

    def _take(self, line: bytes) -> Event | None:
        if self._first:
            self._first, line = False, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            event = Event(self._kind or "message", b"\n".join(self._data)) if self._data else None
            self._kind, self._data, self._size = "", [], 0
            return event
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            self._bound(0)
        elif name == b"event":
            self._kind = value.decode(errors="replace")[:64]
        return None

    def _bound(self, more: int) -> None:
        if self._size + more > self._largest:
            raise AnswerBroken(f"an event is larger than {self._largest} bytes")
