"""The indexing service behind `/v1/admin/index`: embed, write, read back, and say what is really there.

The store's digest of an entry is the fingerprint of all that a search depends on (scopes and state too). The
operator knows the published digest: it is told that one where the fingerprint fits the snapshot, and the foreign
fingerprint, which equals nothing, where it does not. So a stale entry looks stale to it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from toolcrib.telemetry import logs, tracing
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.search.entries import EntryCache
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.errors import SearchError, StoreRejected
from toolcrib_registry.search.index.document_vectors import DocumentVectors, Made
from toolcrib_registry.search.store import CatalogStore

log = logging.getLogger(__name__)

NOT_HERE = "not in this replica's snapshot"
NOT_READ_BACK = "written, but not found when read back"
ASKED_SECONDS = 120.0
"""An operator asks every half minute; one that has not for so long asks another replica, and this one knows nothing."""


Learn: TypeAlias = Callable[[Sequence[IndexEntry], Vector | None], Awaitable[None]]


async def _nobody(entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
    """Nobody wants to know."""


class IndexService:
    """Keeps the search index. One request at a time; discovery and calls never wait for it."""

    def __init__(
        self,
        store: CatalogStore,
        vectors: DocumentVectors,
        state: PolicyState,
        entries: EntryCache,
        metrics: Metrics,
        clock: Clock,
        learn: Learn = _nobody,
    ) -> None:
        """`learn` is told of entries that are in the store, with their vectors."""
        self._store = store
        self._learn = learn
        self._vectors = vectors
        self._state = state
        self._entries = entries
        self._metrics = metrics
        self._clock = clock
        self._asked = -math.inf
        self._known: dict[str, str] = {}
        """Tool id to the fingerprint that was last read back from the store."""
        self._lock = asyncio.Lock()
        self._untidy = logs.Trouble(log)

    async def apply(self, request: IndexRequest) -> IndexAnswer:
        """Bring what `request` names in and out of the index.

        Raises:
            EpochFenced: the sender no longer leads.
            SearchError: store or embedder cannot do it now; some may be in, repeat the request.
        """
        counts = {
            "toolcrib.index.upserts": len(request.upsert),
            "toolcrib.index.removals": len(request.remove),
        }
        with tracing.span("index batch", counts) as span:
            answer = await self._apply(request)
            span.set({"toolcrib.index.failed": len(answer.failed)})
        log.info(
            "index batch: %d in, %d out, %d failed",
            len(answer.indexed), len(request.remove), len(answer.failed),
            extra=logs.about(indexed=len(answer.indexed), removed=len(request.remove), failed=len(answer.failed)),
        )  # fmt: skip
        return answer

    async def _apply(self, request: IndexRequest) -> IndexAnswer:
        async with self._lock:
            self._state.fence(request.epoch)
            self._asked = self._clock.elapsed()
            if request.remove:
                await self._store.remove(request.remove)
                self._forget(request.remove)
                self._metrics.index_changed()
            tools = self._state.snapshot.indexed
            wanted = {i: self._entries.of(tools[i]) for i in dict.fromkeys(request.upsert) if i in tools}
            failed = {i: NOT_HERE for i in request.upsert if i not in tools}
            written, refused = await self._write(list(wanted.values()))
            failed |= refused
            found = await self._store.confirm(wanted.keys() - failed.keys())
            self._forget(wanted.keys() - failed.keys() - found.keys())
            self._known |= found
        good = {i for i, digest in found.items() if i in wanted and digest == wanted[i].digest}
        failed |= dict.fromkeys(wanted.keys() - failed.keys() - good, NOT_READ_BACK)
        await self._vectors.remember([wanted[i] for i in good], forget=request.remove)
        await self._learn(*written.of(good))
        return IndexAnswer(indexed={i: tools[i].digest for i in sorted(good)}, failed=failed)

    async def inventory(self) -> IndexInventory:
        """Everything in the store, compared with the snapshot.

        Raises:
            SearchError: the store cannot answer now.
        """
        self._asked = self._clock.elapsed()
        held = await self._store.inventory()
        self._known = dict(held)
        tools = self._state.snapshot.indexed
        # a large catalog takes a moment: not on the event loop
        shown, fresh = await asyncio.to_thread(self._compared, held, tools)
        await self._vectors.remember(fresh)
        if tools and len(fresh) == len(tools):
            try:
                await self._store.tidy()
            except SearchError as error:
                self._untidy.failed("%s; entries of former identities stay in the search index", error)
            else:
                self._untidy.over("the search index can be cleaned up again")
        return IndexInventory(identity=self._store.identity.key, tools=shown)

    async def healthy(self) -> None:
        """Return if the store can answer now.

        Raises:
            SearchError: it cannot; the message says why.
        """
        await self._store.healthy()

    async def observe(self, seconds: float = 1.0) -> None:
        """Ask the store, for at most `seconds`, and keep in the metrics whether it answered, and what it lacks."""
        try:
            async with asyncio.timeout(seconds):
                await self.healthy()
        except (SearchError, TimeoutError):
            self._metrics.index_healthy.set(0)
        else:
            self._metrics.index_healthy.set(1)
        tools = self._state.snapshot.indexed
        fresh = math.nan
        if self._clock.elapsed() - self._asked <= ASKED_SECONDS:
            fresh = await asyncio.to_thread(self._fresh, tools)
        self._metrics.indexed.set(fresh)
        self._metrics.index_lag.set(len(tools) - fresh)

    def _fresh(self, tools: Mapping[str, PublishedTool]) -> int:
        known = self._known
        return sum(i in known and known.get(i) == self._entries.of(tool).digest for i, tool in tools.items())

    def _forget(self, tool_ids: Collection[str]) -> None:
        for tool_id in tool_ids:
            self._known.pop(tool_id, None)

    def _compared(
        self, held: Mapping[str, str], tools: Mapping[str, PublishedTool]
    ) -> tuple[dict[str, str], list[IndexEntry]]:
        shown = dict(held)
        fresh = []
        for tool_id, digest in held.items():
            tool = tools.get(tool_id)
            if tool is not None and (entry := self._entries.of(tool)).digest == digest:
                shown[tool_id] = tool.digest
                fresh.append(entry)
        return shown, fresh

    async def _write(self, wanted: Sequence[IndexEntry]) -> tuple[Made, dict[str, str]]:
        """What was made, and which of `wanted` cannot be in the store, with the reasons."""
        made = await self._vectors.of(wanted)
        self._metrics.index_embedded.inc(made.embedded)
        self._metrics.index_reused.inc(made.reused)
        failed = dict(made.refused)
        # embedding takes its time: what is gone by now may have been removed already, by another replica
        tools = self._state.snapshot.indexed
        rows = [i for i, entry in enumerate(made.entries) if entry.tool_id in tools]
        failed |= {e.tool_id: NOT_HERE for e in made.entries if e.tool_id not in tools}
        if rows:
            entries, vectors = [made.entries[i] for i in rows], made.vectors
            try:
                await self._store.put(entries, None if vectors is None else vectors[rows])
            except StoreRejected as error:
                failed |= error.reasons
            self._metrics.index_written.inc(len(wanted) - len(failed))
            self._metrics.index_changed()
        return made, failed
