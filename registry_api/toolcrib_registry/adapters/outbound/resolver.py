"""The system's resolver (`getaddrinfo`), with a bounded number of lookups that wait for a name server.

A lookup cannot be given up: its thread waits as long as `/etc/resolv.conf` says, by default 5 s twice for each name
server. So threads are made for one lookup each, do not hold up the end of the process, and half of them are kept for
names that have answered before: names that never answer cannot use up all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable

THREADS = 64
UNPROVEN = 32
"""Threads that names may use which have not answered yet."""
_PROVEN_NAMES = 4_096

GetAddrInfo = Callable[[str, int], list[str]]
"""(host, port) → IP addresses, as text; waits."""


class TooManyLookups(OSError):
    """Too many lookups wait for a name server."""

    def __init__(self) -> None:
        super().__init__("too many lookups wait for the name server")


class SystemResolver:
    """Looks names up, each time in a thread of its own. Used from one event loop only.

    Args:
        ask: what asks the system.
    """

    def __init__(self, ask: GetAddrInfo | None = None) -> None:
        self._ask = ask or getaddrinfo
        self._proven: OrderedDict[str, None] = OrderedDict()
        self._running = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of `host`.

        Raises:
            OSError: it has none, the name server said so or did not answer, or too many lookups wait (TooManyLookups).
        """
        if self._running >= (THREADS if host in self._proven else UNPROVEN):
            raise TooManyLookups
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def ended(found: list[str] | None, error: Exception | None) -> None:
            self._running -= 1
            if found:
                self._prove(host)
            if answer.done():  # nobody waits any more
                return
            if error is None:
                answer.set_result(found or [])
            else:
                answer.set_exception(error)

        def run() -> None:
            found: list[str] | None = None
            failed: Exception | None = None
            try:
                found = self._ask(host, port)
            except Exception as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended, found, failed)

        self._running += 1
        try:
            threading.Thread(target=run, name="outbound-dns", daemon=True).start()
        except RuntimeError:  # no thread can be made
            self._running -= 1
            raise TooManyLookups from None
        return await answer

    def _prove(self, host: str) -> None:
        self._proven[host] = None
        self._proven.move_to_end(host)
        if len(self._proven) > _PROVEN_NAMES:
            self._proven.popitem(last=False)


def getaddrinfo(host: str, port: int) -> list[str]:
    """The addresses that the system finds, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
