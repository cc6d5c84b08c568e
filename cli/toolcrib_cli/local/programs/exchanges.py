"""What a program says to one request, or unasked: whole JSON messages in order, bounded, with an end."""

from __future__ import annotations

import asyncio
from collections import deque

_MOST = 1_000
_MOST_BYTES = 16 << 20


class Exchange:
    """Messages for one who reads them.

    Args:
        otherwise: the message that takes the place of an end without an answer; None: the end is an error.
    """

    def __init__(self, otherwise: bytes | None = None) -> None:
        self._otherwise = otherwise
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self.over = False
        """Nothing comes any more."""

    def put(self, message: bytes, *, last: bool = False) -> None:
        """One message; of too many that nobody reads, the last ones are dropped, but never an answer."""
        if self.over:
            return
        if last or (len(self._messages) < _MOST and self._size + len(message) <= _MOST_BYTES):
            self._messages.append(message)
            self._size += len(message)
        self.over = last
        self._wake.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing comes any more, because of `error`."""
        if self.over:
            return
        if self._otherwise is not None:
            self.put(self._otherwise, last=True)
            return
        self._error, self.over = error, True
        self._wake.set()

    async def next(self) -> bytes:
        """The next message; empty at the end. Raises the error of the end."""
        while not self._messages:
            if self.over:
                if self._error is not None:
                    raise self._error
                return b""
            self._wake.clear()
            await self._wake.wait()
        message = self._messages.popleft()
        self._size -= len(message)
        return message
