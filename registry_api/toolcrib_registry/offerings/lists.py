"""Servers' lists of resources and prompts, kept for a while: by caller where `owner` says so, else one for all.

A list that is not fresh is read again behind the answer. How long the answer waits for it depends on what is held (`Patience`);
a server that failed last time is not waited for.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from toolcrib import names
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends import breaking
from toolcrib_registry.calls.backends.authenticating import Caller, owner
from toolcrib_registry.calls.backends.mcp.requests import McpRequests
from toolcrib_registry.calls.backends.routes import judged_in_turn
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import CallError, UpstreamProtocol, UpstreamTimeout
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.offerings.entries import Entry, entries
from toolcrib_registry.upstream.lists import CHANGING, Kind, Listed
from toolcrib_registry.upstream.protocol import STATELESS
from toolcrib_registry.upstream.servers import Asking, Server

LIST_SECONDS = 5.0
"""For which one server may hold up a list; others are listed meanwhile."""
SOON_SECONDS = 0.5
"""For which an answer waits for a list that it can do without."""
KEPT_SECONDS = 60.0
"""For which a list is kept whose server does not say."""
LEAST_SECONDS, MOST_SECONDS = 1.0, 300.0
FAILED_SECONDS = 10.0
"""After which a server is asked again that did not answer."""
HELD_SECONDS = 300.0
"""For which an expired list, or the failure to read one, still stands for the server while it is read again."""
BYTES = 64 << 20
AT_A_TIME = 8
"""Lists of one namespace's servers that are read at one time. One server's take at most half of these places."""
_EACH = 512
_MOST_VERSIONS = 8_192


_Base = tuple[str, str, Kind]
"""Id and route of the part, and what is listed."""
_Owner = tuple[Any, ...] | None
"""The caller whose own list it is, as `owner` names it (None: everybody's)."""
_Key = tuple[str, str, Kind, _Owner]


class Patience(NamedTuple):
    """Seconds that an answer waits for a list, at most `LIST_SECONDS`.

    Attributes:
        first: where no list is held, or only one that expired long ago.
        changed: where its server has said that the held list changed.
        expired: where the held list has expired.
    """

    first: float
    changed: float
    expired: float


LISTING = Patience(math.inf, math.inf, SOON_SECONDS)
"""For showing a list."""
AT_HAND = Patience(SOON_SECONDS, 0.0, 0.0)
"""For looking up a key: most need the list of one server only."""
WHOLE = Patience(math.inf, math.inf, math.inf)
"""For looking up a key that the lists at hand do not have."""


class _Usable(NamedTuple):
    """The entries that are passed on, the milliseconds for which they may be kept (None: not stated), and whether for one caller alone."""

    entries: tuple[Entry, ...]
    ttl_ms: int | None
    private: bool


@dataclass(slots=True)
class _Known:
    """A list, and until when it is fresh.

    Attributes:
        entries: None: it was never read.
        owner: the caller whose own list it is; None: everybody's.
        problem: why the latest try to read it failed.
        changed: the server has said since that it changed.
    """

    entries: tuple[Entry, ...] | None
    until: float
    weight: int
    owner: _Owner
    problem: CallError | None = None
    changed: bool = False


class _Reading(NamedTuple):
    """A list in the course of being read, and when that began."""

    task: asyncio.Task[_Known]
    began: float


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
        self._running: dict[_Key, _Reading] = {}
        self._private: OrderedDict[_Base, None] = OrderedDict()
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._versions: OrderedDict[tuple[str, Kind], int] = OrderedDict()
        self.size = 0
        self.changes = 0
        """Grows with each change that a server tells of."""

    async def of(
        self, part: PublishedTool, kind: Kind, caller: Caller, patience: Patience = LISTING
    ) -> tuple[Entry, ...]:
        """Return the list of a server for a caller; while it does not answer in time, what it listed before.

        Raises:
            CallError: it has listed nothing so far, and does not now.
        """
        base = (part.tool_id, part.route_digest, kind)
        for _ in range(2):  # a server says only in its answer that its lists are private
            whose = owner(part.backend, caller, private=base in self._private)
            known = await self._shown((*base, whose), part, caller, patience)
            if known.owner is None or known.owner == caller.identity.cache_key:
                break
        else:
            raise UpstreamProtocol("the server's list is another caller's")
        if known.entries is None:
            assert known.problem is not None
            raise known.problem.with_traceback(None)
        return known.entries

    async def close(self) -> None:
        """Stop reading lists."""
        tasks = [reading.task for reading in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shown(self, key: _Key, part: PublishedTool, caller: Caller, patience: Patience) -> _Known:
        """The held list, or the next one if it comes in time. The next one is read to its end even if nobody waits for it."""
        now, before = self._clock(), self._known.get(key)
        if before is not None:
            self._known.move_to_end(key)
            if now < before.until:
                return before
        reading = self._running.get(key)
        if reading is None:
            task = asyncio.create_task(self._read(key, part, caller, before))
            task.add_done_callback(lambda _: self._running.pop(key, None))
            reading = self._running[key] = _Reading(task, now)
        seconds = _seconds(before, now, patience)
        left = LIST_SECONDS if seconds > LIST_SECONDS else seconds - (now - reading.began)
        if left > 0:
            done, _ = await asyncio.wait({reading.task}, timeout=left)
            if done:
                return reading.task.result()
        if before is not None:
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
                known.until, known.changed = self._clock(), True

    def _changes_of(self, part: PublishedTool) -> tuple[int, ...]:
        """Other numbers after each change that the part's server told of."""
        server = names.server_of_part(part.tool_id)
        return tuple(self.version(server, kind) for kind in CHANGING)

    async def _read(self, key: _Key, part: PublishedTool, caller: Caller, before: _Known | None) -> _Known:
        *_, kind, whose = key
        # servers that hang delay only their own namespace, and one of them leaves room for the others there
        place, server = part.namespace, names.server_of_part(part.tool_id)
        room = self._rooms.setdefault(place, asyncio.Semaphore(AT_A_TIME))
        turn = self._rooms.setdefault(server, asyncio.Semaphore(AT_A_TIME // 2))
        changes = self._changes_of(part)
        try:
            async with turn, room:
                found = await breaking.within(self.breakers, part, lambda: self._listed(part, kind, caller))
            whose = owner(part.backend, caller, private=found.private)
            self._note_private(key[:3], found.private)
            seconds = KEPT_SECONDS if found.ttl_ms is None else found.ttl_ms / 1000
            weight = _EACH + sum(_EACH + len(e.key) + len(e.rest) for e in found.entries)
            known = _Known(found.entries, min(max(seconds, LEAST_SECONDS), MOST_SECONDS), weight, whose)
        except CallError as problem:
            old, weight = (None, _EACH) if before is None else (before.entries, before.weight)
            known = _Known(old, FAILED_SECONDS, weight, whose, problem)
        # what changed while it was read is read again
        known.changed = changes != self._changes_of(part)
        known.until = self._clock() + (0.0 if known.changed else known.until)
        self._drop(key)
        self._keep((*key[:3], whose), known)
        return known

    def _note_private(self, base: _Base, private: bool) -> None:
        """Remember whether a server's lists are for one caller alone, for the next caller."""
        self._private.pop(base, None)
        if private:
            self._private[base] = None
            if len(self._private) > _MOST_VERSIONS:
                self._private.popitem(last=False)

    async def _listed(self, part: PublishedTool, kind: Kind, caller: Caller) -> _Usable:
        """The usable entries; none where the server has no such thing."""
        hidden: list[str] = []

        async def work(server: Server, asking: Asking) -> Listed:
            client = self.requests.client
            facts = await client.facts(server, asking)
            if kind.capability not in facts.capabilities:
                return Listed((), facts, private=facts.version == STATELESS)
            return await client.listed(server, asking, kind)

        found = await self.requests.made(part, None, caller, hidden, work, again=True, seconds=LIST_SECONDS)
        judge = partial(_usable, kind, found, names.server_of_part(part.tool_id), tuple(hidden))
        return await judged_in_turn(judge, found.size, caller.identity, self.large)

    def _keep(self, key: _Key, known: _Known) -> None:
        self._drop(key)
        self._known[key] = known
        self.size += known.weight
        while self.size > self._most and len(self._known) > 1:
            self.size -= self._known.popitem(last=False)[1].weight

    def _drop(self, key: _Key) -> None:
        if (old := self._known.pop(key, None)) is not None:
            self.size -= old.weight


def _seconds(known: _Known | None, now: float, patience: Patience) -> float:
    """Seconds to wait for the next list."""
    if known is None or now >= known.until + HELD_SECONDS:
        return patience.first
    if known.changed:
        return patience.changed
    return patience.expired if known.problem is None else 0.0


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
    return _Usable(kept, found.ttl_ms, found.private)
