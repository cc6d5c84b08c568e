"""How many bindings reach each tool, and how many tools each binding: counted after changes, never when asked."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.kinds.reach import matched_ids
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.timers import wait, wait_any


class ReachCounts:
    """Follows a publisher's snapshot; `tools` and `bindings` are of the latest one that has been counted.

    Args:
        publisher: whose snapshot is counted, in a thread: publishing goes on.
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
            await wait_any((self._wake, stop))
            if self._wake.is_set():
                self._wake.clear()
                began = time.monotonic()
                await self.count(stop.is_set)
                await wait(stop, max(self._pause, 20 * (time.monotonic() - began)))

    async def count(self, ended: Callable[[], bool] = lambda: False) -> None:
        """Count the present snapshot; nothing has changed if it `ended` meanwhile."""
        found = await asyncio.to_thread(_count, self._publisher.snapshot, ended)
        if found is not None:
            self.tools, self.bindings = found


def _count(snapshot: Snapshot, ended: Callable[[], bool]) -> tuple[dict[str, int], dict[str, int]] | None:
    alike: defaultdict[tuple[Any, ...], list[PublishedBinding]] = defaultdict(list)
    for binding in snapshot.bindings.values():
        alike[_terms(binding)].append(binding)
    tools: defaultdict[str, int] = defaultdict(int)
    bindings: dict[str, int] = {}
    for group in alike.values():
        if ended():
            return None
        ids = matched_ids(group[0], snapshot)
        for binding in group:
            bindings[binding.uid] = len(ids)
        if group[0].scopes:
            for tool_id in ids:
                tools[tool_id] += len(group)
    return tools, bindings


def _terms(b: PublishedBinding) -> tuple[Any, ...]:
    """All that decides which tools are within reach; a thousand agents may have the same."""
    return b.namespaces, b.scopes, b.servers, b.allow, b.deny, b.deny_scopes
