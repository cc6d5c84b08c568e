"""A TCP port in front of another one, whose connections a test can silence or break, as a lost node does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Forwards connections to `target`, a port on loopback. What a test sets counts for connections open now."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._target = target
        self._silent = self._breaking = 0
        """The connections up to this number."""
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._changed = asyncio.Condition()

    @property
    def open(self) -> list[int]:
        """The connections, by number, that neither side has closed."""
        return sorted(self._writers)

    def silence(self, *, to_come: bool = False) -> None:
        """Take what comes and forward nothing: a node that is paused. `to_come`: on later connections too."""
        self._silent = sys.maxsize if to_come else self.accepted

    def break_on_request(self) -> None:
        """Close each connection when the client next sends something: a process that was killed."""
        self._breaking = self.accepted

    def cut(self) -> None:
        """Close the connections now."""
        for writer in self._writers.values():
            writer.close()

    async def closed(self, number: int) -> None:
        """Wait until connection `number` is closed."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: number not in self._writers)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        self.accepted += 1
        number = self.accepted
        self._writers[number] = writer
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._target)
            both = self._pipe(number, reader, ours, request=True), self._pipe(number, theirs, writer)
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            writer.close()
        finally:
            async with self._changed:
                del self._writers[number]
                self._changed.notify_all()

    async def _pipe(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        request: bool = False,
    ) -> None:
        try:
            while data := await reader.read(65536):
                if request and number <= self._breaking:
                    self._writers[number].close()
                    break
                if number > self._silent:
                    writer.write(data)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def relay(target: int) -> AsyncIterator[Relay]:
    """A relay to `target`; at the end all its connections are closed."""
    made = Relay(target)
    async with await asyncio.start_server(made.accept, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            made.cut()
            for number in made.open:
                await made.closed(number)
