"""Search within a view: the store's answer decided against the view, completed where it is short.

A view of up to 200 tools is sent to the store as ids. For a larger one a cheap superset is pushed down, only hits
that are in the view in the version that the view has are kept, and a larger limit is asked for, at most twice; what
is still short is ranked here, exactly, over the view's own vectors. While the store is away, or no vector can be
made, the answer comes from the words of the snapshot and says so. (DESIGN §6, Search within a view.)

Nothing that is not in the view enters an answer: not a hit, not a count, not a score.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolcrib_registry.ports import CatalogStore, Embedder
from toolcrib_registry.search.confidence import confidence
from toolcrib_registry.search.entry import (
    IndexEntry,
    Pushdown,
    Vector,
    has_tags,
    is_of_server,
)
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.local_index import LocalIndex
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.text import QUERY_LIMIT
from toolcrib_registry.search.view_search import Degradation, Question, Timings, ViewSearch

SearchMode: TypeAlias = Literal["hybrid", "lexical", "filter"]

_DEPTH_EXACT = 2_000
_DEPTH_PER_HIT = 10
_DEPTH_LEAST = 200
"""How deep to rank where hits are filtered after ranking: an exact store is cheap to ask for many."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One tool of an answer."""

    entry: IndexEntry
    confidence: float
    """The probability that it answers the request, 0 to 1."""
    score: float
    """For ordering within this answer only."""
    lexical: float
    dense: float | None

    @property
    def tool_id(self) -> str:
        """`namespace/objectname`."""
        return self.entry.tool_id


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Hits, best first, and how they were found."""

    mode: SearchMode
    """`filter`: there was no text, hits are those that pass the filters, by name."""
    hits: tuple[SearchHit, ...]
    degradation: Degradation = ""
    """Why the mode is less than what is configured; empty if it is not."""
    rounds: int = 0
    """How often the store was asked."""
    timings: Timings = field(default_factory=Timings)

    @property
    def degraded(self) -> bool:
        """Whether the answer is less good than it could be."""
        return bool(self.degradation)


class Searcher:
    """Searches views. One a process; it is safe to call from many tasks."""

    def __init__(
        self,
        store: CatalogStore,
        embedder: Embedder,
        *,
        store_seconds: float = 2.0,
        embed_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Search in `store` with vectors of `embedder`, waiting for each no longer than so many seconds."""
        self._store = store
        self._embedder = embedder
        self._embed_seconds = embed_seconds
        self._embedder_outage = Outage(clock, "the embedder")
        self._local = LocalIndex(embedder.dimension)
        self._views = ViewSearch(store, self._local, Outage(clock, "the search index"), store_seconds)

    async def prepare(self, entries: Collection[IndexEntry]) -> None:
        """Take in the words of `entries` ahead of the first search, and forget all others: a new snapshot is here."""
        await self._local.retain([e.tool_id for e in entries])
        await self._local.follow(entries)

    def close(self) -> None:
        """Stop the threads. Store and embedder are the caller's to close."""
        self._local.close()

    async def search(
        self,
        view: Mapping[str, IndexEntry],
        query: str = "",
        *,
        tags: tuple[str, ...] = (),
        servers: tuple[str, ...] = (),
        limit: int = 10,
        min_score: float = 0.0,
        top_k_servers: int | None = None,
        pushdown: Pushdown | None = None,
    ) -> SearchAnswer:
        """The best `limit` tools of `view` for `query`, filtered before the limit is applied.

        Args:
            view: exactly the tools that the caller may see, by tool id.
            query: the request in words; only its first 2,000 characters count. Without one, `tags` and `servers`
                alone decide and nothing is embedded.
            tags: the tool carries all of them, ignoring case.
            servers: the tool is of one of them (`name` or `namespace/name`), ignoring case.
            min_score: the least confidence of a hit.
            top_k_servers: keep only tools of the best so many servers.
            pushdown: a superset of the view that the store can narrow down to cheaply; all, if None.
        """
        timings = Timings()
        eligible = view
        if tags or servers:
            eligible = {i: e for i, e in view.items() if has_tags(e, tags) and is_of_server(e, servers)}
        text = query[:QUERY_LIMIT].strip()
        depth = limit
        if min_score > 0.0 or top_k_servers is not None:
            depth = max(_DEPTH_EXACT if self._store.exact else _DEPTH_LEAST, _DEPTH_PER_HIT * limit)
        depth = min(len(eligible), depth) if limit > 0 else 0
        if not eligible or depth < 1:
            return SearchAnswer("hybrid" if text else "filter", (), timings=timings)
        if not text:
            ordered = sorted(eligible.values(), key=lambda e: (e.name, e.tool_id))
            hits = [SearchHit(e, 1.0, 1.0, 0.0, None) for e in ordered]
            return SearchAnswer("filter", _cut(hits, limit, min_score, top_k_servers), timings=timings)

        vector, degradation = await self._embed(text, timings)
        found = await self._views.answer(
            Question(
                view=eligible,
                text=text,
                vector=vector,
                depth=depth,
                pushdown=pushdown or Pushdown(),
                tags=tags,
                servers=servers,
            ),
            timings,
        )
        hits = [
            SearchHit(r.entry, confidence(r.lexical, r.dense), r.score, r.lexical, r.dense)
            for r in found.ranked
        ]
        return SearchAnswer(
            "hybrid" if found.with_vectors else "lexical",
            _cut(hits, limit, min_score, top_k_servers),
            degradation or found.degradation,
            found.rounds,
            timings,
        )

    async def _embed(self, text: str, timings: Timings) -> tuple[Vector | None, Degradation]:
        if self._embedder.dimension == 0:
            return None, ""
        if self._embedder_outage.keeps_away():
            return None, "embedder_unavailable"
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._embed_seconds):
                vector = (await self._embedder.embed_queries([text]))[0]
        except (EmbedderUnavailable, TimeoutError) as error:
            self._embedder_outage.failed(error)
            return None, "embedder_unavailable"
        finally:
            timings.embed += time.perf_counter() - start
        self._embedder_outage.over()
        return vector, ""


def _cut(
    hits: list[SearchHit], limit: int, min_score: float, top_k_servers: int | None
) -> tuple[SearchHit, ...]:
    kept = [h for h in hits if h.confidence >= min_score]
    if top_k_servers is not None:
        servers = list(dict.fromkeys((h.entry.namespace, h.entry.server) for h in kept))
        best = set(servers[: max(0, top_k_servers)])
        kept = [h for h in kept if (h.entry.namespace, h.entry.server) in best]
    return tuple(kept[:limit])
