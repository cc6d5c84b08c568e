"""That the World is complete: the lists of a takeover, and proofs that a silent watch misses nothing.

A watch can be silent because nothing happens, or because it is dead. After some silence a metadata-only list
compares resourceVersions; differences are repaired from a real list. A kind that cannot be listed is never empty.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from toolcrib.telemetry import logs
from toolcrib_operator.errors import ClusterUnavailable, NotListable
from toolcrib_operator.ports import ClusterReader
from toolcrib_operator.settings import WatchSettings
from toolcrib_operator.timers import Backoff, wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)


class Resync:
    """Lists what the World must know, and keeps the account of what is proven."""

    def __init__(
        self,
        world: World,
        reader: ClusterReader,
        *,
        kinds: Sequence[str] | None = None,
        polled: Sequence[str] = (),
        settings: WatchSettings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problems: dict[str, str] = {}
        self.repairs = 0
        self._troubles: dict[str, logs.Trouble] = {}
        self._world, self._reader = world, reader
        self._kinds = world.watched if kinds is None else tuple(kinds)
        self._polled = tuple(polled)
        self._settings = settings or WatchSettings()
        self._monotonic = monotonic
        self._proven: dict[str, float] = {}

    def heard(self, kind: str) -> None:
        """The watch of a kind has delivered something."""
        self._proven[kind] = self._monotonic()

    def proven(self) -> bool:
        """Whether every kind was heard of or compared recently enough for a heartbeat."""
        oldest = self._monotonic() - self._settings.unproven_after
        return all(self._proven.get(kind, float("-inf")) >= oldest for kind in self._kinds)

    def age(self) -> float:
        """Seconds since every kind was known to be complete; 0 while that is recent enough for a heartbeat."""
        if self.proven():
            return 0.0
        return self._monotonic() - min((self._proven.get(kind, 0.0) for kind in self._kinds), default=0.0)

    async def list_all(self, stop: asyncio.Event) -> bool:
        """List every kind once, however long it takes; False if stopped before."""
        done = await asyncio.gather(*(self._list_until(kind, stop) for kind in (*self._kinds, *self._polled)))
        return all(done)

    async def run(self, stop: asyncio.Event) -> None:
        """Prove silent kinds, and read Secrets, until `stop`."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(self._prove_forever(kind, stop))
            for kind in self._polled:
                group.create_task(self._poll(kind, stop))

    async def _list_until(self, kind: str, stop: asyncio.Event) -> bool:
        backoff = Backoff(0.25, 5.0)
        while not stop.is_set():
            try:
                await self._list(kind)
                return True
            except ClusterUnavailable as error:
                self._trouble(kind, error)
                await wait(stop, backoff.next())
        return False

    async def _list(self, kind: str) -> None:
        asked = self._monotonic()
        listing = await self._reader.list(kind)
        # parsing thousands of objects would hold the loop
        await asyncio.to_thread(self._world.replace, kind, listing.objects, listing.resource_version)
        self._proven[kind] = max(asked, self._proven.get(kind, asked))
        if listing.problem:
            self._trouble(kind, ClusterUnavailable(listing.problem))
        else:
            self._fine(kind)

    async def _prove_forever(self, kind: str, stop: asyncio.Event) -> None:
        backoff = Backoff(0.5, 5.0)
        while not stop.is_set():
            silence = self._monotonic() - self._proven.get(kind, float("-inf"))
            if silence < self._settings.prove_after:
                await wait(stop, self._settings.prove_after - silence)
                continue
            try:
                await self._prove(kind)
                backoff.reset()
            except ClusterUnavailable as error:
                self._trouble(kind, error)
                await wait(stop, backoff.next())

    async def _prove(self, kind: str) -> None:
        asked = self._monotonic()
        there = await self._reader.versions(kind)
        if there != self._world.versions(kind):
            # mostly an event under way; if the watch is dead, the list is the repair
            self.repairs += 1
            log.info("%s: the watch missed a change; listing", kind)
            await self._list(kind)
        self._proven[kind] = max(asked, self._proven.get(kind, asked))
        self._fine(kind)

    async def _poll(self, kind: str, stop: asyncio.Event) -> None:
        while not await wait(stop, self._settings.secrets):
            try:
                await self._list(kind)
            except ClusterUnavailable as error:
                self._trouble(kind, error)

    def _trouble(self, kind: str, error: ClusterUnavailable) -> None:
        level = logging.ERROR if isinstance(error, NotListable) else logging.WARNING
        self._troubles.setdefault(kind, logs.Trouble(log)).failed(
            "%s; keeping what was read before", error, level=level, extra=logs.about(kind=kind)
        )
        self.problems[kind] = str(error)

    def _fine(self, kind: str) -> None:
        self.problems.pop(kind, None)
        if (trouble := self._troubles.get(kind)) is not None:
            trouble.over("%s can be listed again", kind, extra=logs.about(kind=kind))
