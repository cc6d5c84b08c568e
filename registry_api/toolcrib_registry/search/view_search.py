"""One search of one view: ask the store, keep what the view admits, complete what is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from toolcrib_registry.search import seed_formula
from toolcrib_registry.search.entry import StoreHit, StoreQuery
from toolcrib_registry.search.errors import StoreError
from toolcrib_registry.search.held import Held
from toolcrib_registry.search.large_view import LargeViews
from toolcrib_registry.search.local_index import LocalIndex
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.question import Question as Question
from toolcrib_registry.search.question import QuestionMode as QuestionMode
from toolcrib_registry.search.ranking import SMALL_VIEW, Ranked
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.visible import ids_of

STORE_SECONDS = 2.0
"""How long one search waits for the store."""
_ABSENT_SECONDS = 0.25
"""For how long a tool that the store had no vector of is not asked for again: it must be found by meaning within a
second of the store's acknowledgement, and answers are kept for up to half of that."""

Degradation: TypeAlias = Literal["", "store_unavailable", "index_empty", "embedder_unavailable"]


@dataclass(slots=True)
class Timings:
    """Seconds spent in one search."""

    embed: float = 0.0
    store: float = 0.0
    rank: float = 0.0


@dataclass(slots=True)
class Found:
    """The ranking, and how it came about."""

    ranked: list[Ranked]
    with_vectors: bool
    degradation: Degradation = ""
    rounds: int = 0


@dataclass(slots=True)
class ViewSearch:
    """Answers questions from a store and, where it is short or away, from the snapshot's own index."""

    store: CatalogStore
    local: LocalIndex
    outage: Outage
    seconds: float
    """How long to wait for the store in one search."""
    _large: LargeViews = field(init=False)
    _held: Held = field(init=False)

    def __post_init__(self) -> None:
        self._large = LargeViews(self.store, self.local, _ABSENT_SECONDS)
        self._held = Held(self.store)

    async def answer(self, question: Question, timings: Timings) -> Found:
        """Rank the view for the question. Never raises for a store that fails."""
        if question.vector is None:
            return await self._by_words(question, timings, "")
        # all of the view's vectors are here: whether the store answers makes no difference, and nothing is learnt of it
        here = self._is_large(question) and not await self.local.without_vector(question.view)
        if not here and self.outage.keeps_away():
            return await self._by_words(question, timings, "store_unavailable")
        asked = question
        if question.mode == "compat":
            # no store knows the formula: it is taken over the evidence of every tool of the view
            asked = replace(question, mode="hybrid", depth=len(question.view))
        start, fetched = time.perf_counter(), self._large.fetched
        try:
            async with asyncio.timeout(self.seconds):
                found = await self._found(asked, timings)
        except (StoreError, TimeoutError) as error:
            if isinstance(error, TimeoutError) and self._large.fetched > fetched:
                # it answers, there is just more to fetch than the time allows: the next search goes on from there
                self.outage.over()
            else:
                self.outage.failed(error)
            return await self._by_words(question, timings, "store_unavailable")
        finally:
            timings.store += time.perf_counter() - start
        if not here:
            self.outage.over()
        if not found.ranked:
            return await self._by_words(question, timings, "index_empty", found.rounds)
        if question.mode == "compat":
            # not under the store's deadline: how long it takes says nothing about the store
            found.ranked = await asyncio.to_thread(_by_formula, question, found.ranked)
        return found

    def _is_large(self, question: Question) -> bool:
        """Whether the store is asked for the nearest tools, not for all of the view."""
        return len(question.view) > SMALL_VIEW and not self.store.exact

    async def _by_words(
        self, question: Question, timings: Timings, why: Degradation, rounds: int = 0
    ) -> Found:
        start = time.perf_counter()
        ranked = await self.local.rank(
            question.view, question.text, None, question.depth, parts=question.parts
        )
        timings.rank += time.perf_counter() - start
        return Found(ranked, False, why, rounds)

    async def _found(self, question: Question, timings: Timings) -> Found:
        """The ranking with vectors; empty where the store holds nothing of the view."""
        size = len(question.view)
        if self._is_large(question):
            answer = await self._large.rank(question)
            return Found(answer.ranked, True, rounds=answer.rounds)
        if size > SMALL_VIEW and await self._held.whole(question.view):
            hits = await self._by_ids(question, question.depth)
            if len(hits) >= question.depth:
                return Found(_as_ranked(question, hits), True, rounds=1)
        hits = await self._by_ids(question, size)
        if not hits or (self.store.exact and len(hits) == size):
            return Found(_as_ranked(question, hits), True, rounds=1)
        start = time.perf_counter()
        ranked = await self.local.fuse(
            question.view,
            question.text,
            {h.tool_id: h.dense for h in hits.values() if h.dense is not None},
            question.depth,
            parts=question.parts,
            part_cosines={h.tool_id: h.parts for h in hits.values()},
            dense_weight=question.dense_weight,
        )
        timings.rank += time.perf_counter() - start
        return Found(ranked, True, rounds=1)

    async def _by_ids(self, question: Question, limit: int) -> dict[str, StoreHit]:
        query = StoreQuery(
            text=question.text,
            vector=question.vector,
            limit=limit,
            parts=question.parts,
            # where the store is not exact all are asked for, and their words count here
            mode="hybrid" if self.store.exact and question.mode == "hybrid" else "dense",
            ids=ids_of(question.view),
        )
        return _admitted(question, await self.store.search(query))


def _by_formula(question: Question, ranked: Sequence[Ranked]) -> list[Ranked]:
    """The seed formula over what was found out about the view."""
    evidence = {r.entry.tool_id: r for r in ranked}
    cosines = {i: r.dense for i, r in evidence.items() if r.dense is not None}
    best = seed_formula.best(question.view, cosines, question.text, question.depth)
    return [
        Ranked(e, score, evidence[e.tool_id].lexical if e.tool_id in evidence else 0.0, dense)
        for e, score, dense in best
    ]


def _as_ranked(question: Question, hits: dict[str, StoreHit]) -> list[Ranked]:
    best = list(hits.values())[: question.depth]
    return [Ranked(question.view[h.tool_id], h.score, h.lexical or 0.0, h.dense) for h in best]


def _admitted(question: Question, hits: Sequence[StoreHit]) -> dict[str, StoreHit]:
    admitted = {}
    for hit in hits:
        entry = question.view.get(hit.tool_id)
        if entry is not None and entry.digest == hit.digest:
            admitted[hit.tool_id] = hit
    return admitted
