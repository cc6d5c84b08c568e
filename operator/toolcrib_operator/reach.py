"""How many bindings reach each tool, and how many tools each binding: counted after changes, never when asked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from toolcrib_operator.publisher import Publisher
from toolcrib_operator.reconcile.bindings import matched_ids
from toolcrib_operator.waiting import wait

_TOGETHER = 2_000
"""Tools looked at between two chances for the rest of the loop; heartbeats must not wait."""


class Reach:
    """Follows a publisher's snapshot; `tools` and `bindings` are of the latest one that has been counted.

    Args:
        publisher: whose snapshot is counted.
        pause: seconds between two counts at least; longer where counting is expensive, to stay below 5 % of a core.
    """

    def __init__(self, publisher: Publisher, pause: float = 1.0) -> None:
        self.tools: Mapping[str, int] = {}
        """Tool id → bindings that grant it, whatever their dates; 0 is left out."""
        self.bindings: Mapping[str, int] = {}
        """uid → active tools within reach: those it grants, or those it denies where it only denies."""
        self._publisher = publisher
        self._pause = pause
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """There is a new revision."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Count until `stop`."""
        while not stop.is_set():
            if await wait(self._wake, 0.5):
                self._wake.clear()
                began = time.monotonic()
                await self.count()
                await wait(stop, max(self._pause, 20 * (time.monotonic() - began)))

    async def count(self) -> None:
        """Count the present snapshot."""
        snapshot = self._publisher.snapshot
        tools: Counter[str] = Counter()
        bindings: dict[str, int] = {}
        looked = 0
        for uid, binding in snapshot.bindings.items():
            ids = matched_ids(binding, snapshot)
            bindings[uid] = len(ids)
            if binding.scopes:
                tools.update(ids)
            looked += 20 + len(ids)
            if looked >= _TOGETHER:
                looked = 0
                await asyncio.sleep(0)
        self.tools, self.bindings = tools, bindings
