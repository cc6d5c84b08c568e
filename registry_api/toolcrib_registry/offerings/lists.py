"""What servers list of resources and prompts, kept for a while: one request is made for all who ask."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from toolcrib import names
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends import breaking
from toolcrib_registry.calls.backends.authenticating import Caller
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.backends.routes import judged_in_turn
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import CallError, UpstreamProtocol, UpstreamTimeout
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.offerings.entries import Entry, entries
from toolcrib_registry.upstream.lists import CHANGING, Kind, Listed
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
"""Lists of one namespace's servers that are read at one time."""
_EACH = 512
_MOST_VERSIONS = 8_192


_Key = tuple[str, str, Kind, tuple[Any, ...] | None]
"""Id and route of the part, what is listed, and whose own list it is (None: everybody's)."""


class _Usable(NamedTuple):
    """The entries that are passed on, and for how many milliseconds they may be kept (None: the server does not say)."""

    entries: tuple[Entry, ...]
    ttl_ms: int | None


@dataclass(slots=True)
class _Known:
    """A list, and until when it is not read again; `problem` is why it could not be."""

    entries: tuple[Entry, ...] | None
    until: float
    weight: int
    problem: CallError | None = None


class OfferedLists:
    """The lists, the latest used within a bound of bytes. Used from one event loop only.

    Args:
        requests: asks the servers.
        breakers: of the same servers' tools.
        large: turns of large lists and answers.
        clock: monotonic seconds.
        most: estimated bytes of all together.
    """

    def __init__(
        self,
        requests: McpRequests,
        breakers: Breakers,
        large: LargeRequests,
        clock: Callable[[], float],
        most: int = BYTES,
    ) -> None:
        self.requests, self.breakers, self.large, self._clock, self._most = (
            requests,
            breakers,
            large,
            clock,
            most,
        )
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._running: dict[_Key, asyncio.Task[_Known]] = {}
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._versions: OrderedDict[tuple[str, Kind], int] = OrderedDict()
        self.size = 0
        self.changes = 0
        """Grows with each change that a server tells of."""

    async def of(self, part: PublishedTool, kind: Kind, caller: Caller) -> tuple[Entry, ...]:
        """What a server lists, within `LIST_SECONDS`; while it does not answer, what it listed before.

        Raises:
            CallError: it has listed nothing so far, and does not now.
        """
        exchanges = part.backend is not None and part.backend.exchanges
        key = (part.tool_id, part.route_digest, kind, caller.identity.cache_key if exchanges else None)
        known = self._known.get(key)
        if known is None or known.until <= self._clock():
            known = await self._latest(key, part, kind, caller, known)
        else:
            self._known.move_to_end(key)
        if known.entries is None:
            assert known.problem is not None
            raise known.problem.with_traceback(None)
        return known.entries

    async def _latest(
        self, key: _Key, part: PublishedTool, kind: Kind, caller: Caller, before: _Known | None
    ) -> _Known:
        """The list as it is read now, for all who wait for it; it is read to its end if nobody waits any more."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._read(key, part, kind, caller, before))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        done, _ = await asyncio.wait({task}, timeout=LIST_SECONDS)  # its turn may come later than that
        if done:
            return task.result()
        if before is not None and before.entries is not None:
            return before
        raise UpstreamTimeout(f"the server's list did not come within {LIST_SECONDS:g} s")

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
        for (part_id, *_), known in self._known.items():
            if names.server_of_part(part_id) == server:
                known.until = self._clock()

    def _changes_of(self, part: PublishedTool) -> tuple[int, ...]:
        """Other numbers after each change that the part's server told of."""
        server = names.server_of_part(part.tool_id)
        return tuple(self.version(server, kind) for kind in CHANGING)

    async def _read(
        self, key: _Key, part: PublishedTool, kind: Kind, caller: Caller, before: _Known | None
    ) -> _Known:
        # a namespace with servers that hang holds up its own alone
        room = self._rooms.setdefault(part.namespace, asyncio.Semaphore(AT_A_TIME))
        changes = self._changes_of(part)
        try:
            async with room:
                found = await breaking.within(self.breakers, part, lambda: self._listed(part, kind, caller))
            seconds = KEPT_SECONDS if found.ttl_ms is None else found.ttl_ms / 1000
            weight = sum(_EACH + len(e.key) + len(e.rest) for e in found.entries)
            known = _Known(found.entries, min(max(seconds, LEAST_SECONDS), MOST_SECONDS), weight)
        except CallError as problem:
            old, weight = (None, 0) if before is None else (before.entries, before.weight)
            known = _Known(old, FAILED_SECONDS, weight, problem)
        # what changed while it was read is read again
        known.until = self._clock() + (known.until if changes == self._changes_of(part) else 0.0)
        self._keep(key, known)
        return known

    async def _listed(self, part: PublishedTool, kind: Kind, caller: Caller) -> _Usable:
        """The usable entries; none where the server has no such thing."""
        hidden: list[str] = []

        async def work(server: Server, asking: Asking) -> Listed | None:
            client = self.requests.client
            if kind.capability not in (await client.facts(server, asking)).capabilities:
                return None
            return await client.listed(server, asking, kind)

        found = await self.requests.made(part, None, caller, hidden, work, again=True, seconds=LIST_SECONDS)
        if found is None:
            return _Usable((), None)
        judge = partial(_usable, kind, found, names.server_of_part(part.tool_id), tuple(hidden))
        return await judged_in_turn(judge, found.size, caller.identity, self.large)

    def _keep(self, key: _Key, known: _Known) -> None:
        if (old := self._known.pop(key, None)) is not None:
            self.size -= old.weight
        self._known[key] = known
        self.size += known.weight
        while self.size > self._most and len(self._known) > 1:
            self.size -= self._known.popitem(last=False)[1].weight


def _usable(kind: Kind, found: Listed, server: str, hidden: tuple[str, ...]) -> _Usable:
    """The usable entries of a list.

    Raises:
        UpstreamProtocol: it is longer than what is read of it, or repeats what was sent to authenticate.
    """
    if found.cut is not None:
        raise UpstreamProtocol(f"the server's list is not passed on: {found.cut}")
    kept, secrets = entries(kind, found.entries, server), Secrets.of(hidden)
    if any(secrets.repeated_in(entry.key.encode() + entry.rest) for entry in kept):
        raise UpstreamProtocol("the server's list repeats its credential and is withheld")
    return _Usable(kept, found.ttl_ms)
