"""Standard input and output as lines for an event loop, whatever is behind them: a pipe, a file, a terminal.

Each has a thread of its own that nobody waits for at the end: a client that has stopped reading or writing holds up nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Final

from toolcrib_cli.bridge.messages import MAX_LINE

_CHUNK = 65_536
_AHEAD = 64
"""Lines that are read before the first of them is taken."""


class TooLong:
    """Stands for a line that is longer than `MAX_LINE`."""


class Lines:
    """The lines of a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._read: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue()
        threading.Thread(target=self._follow, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes | TooLong]:
        while (line := await self._read.get()) is not None:
            self._room.release()
            yield line

    def _follow(self) -> None:
        held = bytearray()
        skipping = False
        while chunk := self._chunk():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                held += part
                if skipping or len(held) > MAX_LINE:
                    self._put(TooLong())
                elif line := bytes(held).strip():
                    self._put(line)
                held.clear()
                skipping = False
            held += rest
            if len(held) > MAX_LINE:
                held.clear()
                skipping = True
        if not skipping and (line := bytes(held).strip()):
            self._put(line)
        self._tell(None)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError:
            return b""

    def _put(self, line: bytes | TooLong) -> None:
        self._room.acquire()
        self._tell(line)

    def _tell(self, line: bytes | TooLong | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._read.put_nowait, line)


class Output:
    """Writes whole lines to a file descriptor, one after the other."""

    def __init__(self, descriptor: int) -> None:
        self.closed: Final = asyncio.Event()
        """Set when nobody reads any more."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._follow, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Write a line; returns when it is written, so that who writes faster than the client reads has to wait."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put((line + b"\n", written))
        await written

    def _follow(self) -> None:
        while True:
            rest, written = self._waiting.get()
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                self._tell(self.closed.set)
                return
            self._tell(lambda done=written: done.done() or done.set_result(None))

    def _tell(self, what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]
