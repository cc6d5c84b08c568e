"""Connections that wait for their next request."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable

from toolcrib_registry.adapters.outbound.connection import Connection
from toolcrib_registry.outbound.errors import Unreachable

KEEPALIVE_SECONDS = 1.5
"""Shorter than common servers' (gunicorn closes idle connections after 2 s): a call that may not be retried should
not meet a connection that is just being closed."""

Place = tuple[str, ssl.SSLContext | None]
"""What a connection can be used for: the rule that allowed it, where it leads, and whose certificates it trusts."""
_STOPPING = "the registry is stopping"


class Pool:
    """Keeps connections by place, for `KEEPALIVE_SECONDS`. Used from one event loop only."""

    def __init__(self) -> None:
        self._idle: dict[Place, deque[tuple[float, Connection]]] = {}
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, place: Place) -> Connection | None:
        """The one used last, if one waits that may be used."""
        waiting = self._idle.get(place)
        while waiting:
            until, connection = waiting.pop()
            if connection.reusable and until > asyncio.get_running_loop().time():
                return connection
            # something has arrived on it unasked, the server has closed it, or its time is over
            connection.give_up(Unreachable("unused"))
        return None

    async def make(self, dial: Callable[[], Awaitable[Connection]]) -> Connection:
        """A new one, closed with the pool."""
        connection = await dial()
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def put(self, place: Place, connection: Connection) -> None:
        """Keep it for the next request; closed where it cannot be used again."""
        if not connection.reusable:
            connection.give_up(Unreachable("unused"))
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(place, deque()).append((loop.time() + KEEPALIVE_SECONDS, connection))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEPALIVE_SECONDS, self._swept)

    async def close(self) -> None:
        """Close all of them and wait until they are."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        each = list(self._open)
        for connection in each:
            connection.give_up(Unreachable(_STOPPING))
        await asyncio.gather(*(connection.closed for connection in each))

    def _swept(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for place, waiting in list(self._idle.items()):
            while waiting and (waiting[0][0] <= now or not waiting[0][1].reusable):
                waiting.popleft()[1].give_up(Unreachable("unused"))
            if not waiting:
                del self._idle[place]
        self._sweep = loop.call_later(KEEPALIVE_SECONDS, self._swept) if self._idle else None
