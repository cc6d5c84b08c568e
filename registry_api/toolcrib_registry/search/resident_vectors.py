"""Brings the vectors of a replica's snapshot from the store, once each: searches then need the store no more.

All of the snapshot's or none: where they would take more than `search.resident_bytes` nothing is held, and searches ask
the store for the nearest tools instead.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.search.entry import Stored
from toolcrib_registry.search.errors import StoreError
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.ranker import Ranker
from toolcrib_registry.search.store import CatalogStore

log = logging.getLogger(__name__)

FEW = 200
"""So many vectors are fetched while a search waits; for more the store is asked for the nearest, and they come behind it."""
_BATCH = 1_000
_ABSENT_SECONDS = 0.25
"""For how long a tool that the store had no vector of is not asked for again: it must be found by meaning within a
second of the store's acknowledgement, and answers are kept for up to half of that."""


@dataclass(slots=True)
class ResidentVectors:
    """Keeps the ranker's vectors in step with the store."""

    store: CatalogStore
    ranker: Ranker
    outage: Outage
    fit: bool = field(init=False)
    """Whether all vectors of the snapshot may be held."""
    _absent: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Tools that the store had no vector for: digest and when it was asked."""
    _filling: asyncio.Task[None] | None = None
    _large: Trouble = field(default_factory=lambda: Trouble(log))

    def __post_init__(self) -> None:
        self.fit = self.ranker.room > 0

    def expect(self, count: int) -> None:
        """So many tools are in the snapshot from now on."""
        self.fit = count <= self.ranker.room
        if self.fit:
            self._large.over("the vectors of all tools fit into search.resident_bytes again")
        else:
            self._large.failed(
                "%d tools: their vectors do not fit into search.resident_bytes (room for %d); searches in views of more "
                "than %d tools rank by meaning only the nearest that the store returns",
                count, self.ranker.room, FEW,
            )  # fmt: skip

    async def fetch(self, wanted: Mapping[str, str]) -> list[Stored]:
        """The vectors of `wanted` (tool id to digest), which the ranker keeps if they fit.

        Raises:
            StoreError: the store cannot answer.
        """
        found = [s for s in await self.store.get(wanted.keys()) if wanted.get(s.tool_id) == s.digest]
        await self.learn(found)
        now = time.monotonic()
        for tool_id in wanted.keys() - {s.tool_id for s in found}:
            self._absent[tool_id] = wanted[tool_id], now
        return found

    async def learn(self, stored: Sequence[Stored]) -> None:
        """The store has these: they are kept if they fit, and asked for again where they are forgotten."""
        for one in stored:
            self._absent.pop(one.tool_id, None)
        if self.fit:
            await self.ranker.learn(stored)

    def due(self, wanted: Mapping[str, str], *, again: bool = True) -> dict[str, str]:
        """Those of `wanted` that the store was never asked for; and, if `again`, those that it did not have a while ago."""
        recent = time.monotonic() - _ABSENT_SECONDS if again else -math.inf
        return {
            tool_id: digest
            for tool_id, digest in wanted.items()
            if (known := self._absent.get(tool_id)) is None or known[0] != digest or known[1] < recent
        }

    async def fill(self) -> bool:
        """Fetch all that are lacking; whether some still are, since the store has not all of them or does not answer."""
        if self._filling is not None:
            await asyncio.shield(self._filling)  # maybe of an earlier snapshot
        self.fill_soon()
        if self._filling is not None:
            await asyncio.shield(self._filling)
        return self.fit and not self.ranker.complete

    def fill_soon(self) -> None:
        """The same, for a caller that does not wait for it."""
        if self.fit and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill())

    def close(self) -> None:
        """Fetch nothing more."""
        if self._filling is not None:
            self._filling.cancel()

    async def _fill(self) -> None:
        if not self.fit or self.ranker.complete:
            return
        lacking = await self.ranker.lacking()
        self._absent = {i: known for i, known in self._absent.items() if lacking.get(i) == known[0]}
        try:
            for part in _parts(list(self.due(lacking))):
                if self.outage.keeps_away():
                    return
                await self.fetch({i: lacking[i] for i in part})
                self.outage.over()
        except StoreError as error:
            self.outage.failed(error)


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]
