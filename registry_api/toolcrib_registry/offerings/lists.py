"""What servers list of resources and prompts, kept for a while: one request is made for all who ask."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends import breaking
from toolcrib_registry.calls.backends.authenticating import Caller
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import CallError, UpstreamProtocol
from toolcrib_registry.offerings.entries import Entry, entries
from toolcrib_registry.upstream.lists import Kind, Listed
from toolcrib_registry.upstream.servers import Asking, Server

LIST_SECONDS = 5.0
"""For which one server may hold up a list; others are listed meanwhile."""
KEPT_SECONDS = 60.0
"""For which a list is kept whose server does not say."""
LEAST_SECONDS, MOST_SECONDS = 1.0, 300.0
FAILED_SECONDS = 10.0
"""After which a server is asked again that did not answer."""
BYTES = 64 << 20
AT_A_TIME = 8
_EACH = 512
_MOST_VERSIONS = 8_192


@dataclass(slots=True)
class _Known:
    entries: tuple[Entry, ...] | None
    until: float
    weight: int
    problem: CallError | None = field(default=None)


class OfferedLists:
    """The lists, the latest used within a bound of bytes. Used from one event loop only.

    Args:
        requests: asks the servers.
        breakers: of the same servers' tools.
        clock: monotonic seconds.
        most: estimated bytes of all together.
    """

    def __init__(
        self, requests: McpRequests, breakers: Breakers, clock: Callable[[], float], most: int = BYTES
    ) -> None:
        self.requests, self.breakers, self._clock, self._most = requests, breakers, clock, most
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._running: dict[Hashable, asyncio.Task[_Known]] = {}
        self._room = asyncio.Semaphore(AT_A_TIME)
        self._versions: OrderedDict[tuple[str, Kind], int] = OrderedDict()
        self.size = 0
        self.changes = 0
        """Grows with each change that a server tells of."""

    async def of(self, part: PublishedTool, kind: Kind, caller: Caller) -> tuple[Entry, ...]:
        """What a server lists; while it does not answer, what it listed before.

        Raises:
            CallError: it has listed nothing so far, and does not now.
        """
        exchanges = part.backend is not None and part.backend.exchanges
        key = (part.tool_id, part.route_digest, kind, caller.identity.cache_key if exchanges else None)
        known = self._known.get(key)
        if known is None or known.until <= self._clock():
            task = self._running.get(key)
            if task is None:
                task = self._running[key] = asyncio.create_task(self._read(part, kind, caller, known))
                task.add_done_callback(lambda _: self._running.pop(key, None))
            known = await asyncio.shield(task)
            self._keep(key, known)
        else:
            self._known.move_to_end(key)
        if known.entries is None:
            assert known.problem is not None
            raise known.problem.with_traceback(None)
        return known.entries

    def version(self, server: str, kind: Kind) -> int:
        """Another one after each change of a server's list that it told of; 0 before the first."""
        return self._versions.get((server, kind), 0)

    def changed(self, server: str, kind: Kind) -> None:
        """The server, `namespace/name`, says that its list of a kind has changed."""
        self.changes += 1
        self._versions.pop((server, kind), None)
        self._versions[server, kind] = self.changes
        if len(self._versions) > _MOST_VERSIONS:
            self._versions.popitem(last=False)
        for key, known in self._known.items():
            if isinstance(key, tuple) and str(key[0]).startswith(f"{server}:"):
                known.until = self._clock()

    async def _read(self, part: PublishedTool, kind: Kind, caller: Caller, before: _Known | None) -> _Known:
        try:
            async with self._room:
                found = await breaking.within(self.breakers, part, lambda: self._listed(part, kind, caller))
        except CallError as problem:
            old = None if before is None else before.entries
            return _Known(
                old, self._clock() + FAILED_SECONDS, 0 if before is None else before.weight, problem
            )
        if found is None:
            return _Known((), self._clock() + KEPT_SECONDS, _EACH)
        kept, ttl_ms = found
        seconds = KEPT_SECONDS if ttl_ms is None else ttl_ms / 1000
        until = self._clock() + min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
        return _Known(kept, until, sum(_EACH + len(e.key) + len(e.rest) for e in kept))

    async def _listed(
        self, part: PublishedTool, kind: Kind, caller: Caller
    ) -> tuple[tuple[Entry, ...], int | None] | None:
        """The list, and for how many milliseconds it may be kept; None: the server has no such thing."""
        hidden: list[str] = []

        async def work(server: Server, asking: Asking) -> Listed | None:
            client = self.requests.client
            facts = await client.facts(server, asking)
            return (
                await client.listed(server, asking, kind) if kind.capability in facts.capabilities else None
            )

        found = await self.requests.made(part, None, caller, hidden, work, again=True, seconds=LIST_SECONDS)
        if found is None:
            return None
        kept, secrets = entries(kind, found.entries, part.tool_id.partition(":")[0]), Secrets.of(hidden)
        if any(secrets.repeated_in(e.key.encode() + e.rest) for e in kept):
            raise UpstreamProtocol("the server's list repeats its credential and is withheld")
        return kept, found.ttl_ms

    def _keep(self, key: Hashable, known: _Known) -> None:
        if (old := self._known.pop(key, None)) is not None:
            self.size -= old.weight
        self._known[key] = known
        self.size += known.weight
        while self.size > self._most and len(self._known) > 1:
            self.size -= self._known.popitem(last=False)[1].weight
