"""The addresses of `egress.forbidden`'s host names: what may not be called by name may not be called by address either.

An allowed host that resolves to the store's address would otherwise lead there, wherever that address counts as
public: an external store, or a cluster whose Services have public addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

from toolcrib_registry.outbound import addresses
from toolcrib_registry.outbound.addresses import Address

REFRESH_SECONDS = 30.0
LOOKUP_SECONDS = 2.0
RETRY_SECONDS = 2.0
"""When to look again where a name has no known address yet: until then it is not closed by address."""


class ForbiddenNames:
    """What these names resolve to, at most `REFRESH_SECONDS` old while calls are made.

    Args:
        names: as they are asked of DNS, with a final dot.
        resolve: (host, port) → IP addresses, as text.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        names: Sequence[str],
        resolve: Callable[[str, int], Awaitable[list[str]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.addresses: frozenset[Address] = frozenset()
        self._names, self._resolve, self._clock = tuple(names), resolve, clock
        self._known: dict[str, frozenset[Address]] = {}
        self._due = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    @property
    def known(self) -> bool:
        """Whether the names have been looked up once; calls wait for that."""
        return not self._names or self._due > float("-inf")

    async def refresh(self) -> None:
        """Look the names up if it is time. Only the first look is waited for."""
        if not self._names or self._clock() < self._due:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        if not self.known:
            await asyncio.shield(self._looking)

    async def close(self) -> None:
        """Give up a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        await asyncio.gather(*(self._look_up(name) for name in self._names))
        self.addresses = frozenset().union(*self._known.values())
        self._due = self._clock() + (
            REFRESH_SECONDS if len(self._known) == len(self._names) else RETRY_SECONDS
        )

    async def _look_up(self, name: str) -> None:
        # a name that cannot be resolved just now keeps the addresses that it had
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await self._resolve(name, 0)
            self._known[name] = frozenset(addresses.unwrap(ip_address(ip)) for ip in found)
