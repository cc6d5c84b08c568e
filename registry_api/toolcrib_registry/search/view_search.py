"""One search of one view: ask the store, keep what the view admits, complete what is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolcrib_registry.ports import CatalogStore
from toolcrib_registry.search.entry import IndexEntry, Part, Pushdown, StoreHit, StoreQuery, Vector
from toolcrib_registry.search.errors import StoreError
from toolcrib_registry.search.local_index import LocalIndex
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.ranking import SMALL_VIEW, Ranked
from toolcrib_registry.search.visible import ids_of

Degradation: TypeAlias = Literal["", "store_unavailable", "index_empty", "embedder_unavailable"]
QuestionMode: TypeAlias = Literal["hybrid", "dense", "compat"]

_FIRST_LIMIT = 64
_GROWTH = 5
_ROUNDS = 3
"""The first question and two with larger limits."""
_LARGEST_LIMIT = 10_000
"""Weaviate's own (QUERY_MAXIMUM_RESULTS)."""
_VECTORS_PER_REQUEST = 200


@dataclass(slots=True)
class Timings:
    """Seconds spent in one search."""

    embed: float = 0.0
    store: float = 0.0
    rank: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a view. `view` is filtered by `tags` and `servers` already."""

    view: Mapping[str, IndexEntry]
    text: str
    vector: Vector | None
    depth: int
    """How many tools are wanted."""
    pushdown: Pushdown
    tags: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    """The things that `text` asks for, where there are several."""
    mode: QuestionMode = "hybrid"
    """`dense` ranks by cosine alone, `compat` by the seed formula; without a vector words decide in every mode."""


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
    _absent: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Tools that the store had no vector for: digest and when it was asked."""

    async def answer(self, question: Question, timings: Timings) -> Found:
        """Rank the view for the question. Never raises for a store that fails."""
        if question.vector is None:
            return await self._by_words(question, timings, "")
        if self.outage.keeps_away():
            return await self._by_words(question, timings, "store_unavailable")
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self.seconds):
                hits, rounds = await self._ask(question)
        except (StoreError, TimeoutError) as error:
            self.outage.failed(error)
            return await self._by_words(question, timings, "store_unavailable")
        finally:
            timings.store += time.perf_counter() - start
        self.outage.over()
        if not hits:
            return await self._by_words(question, timings, "index_empty", rounds)
        return Found(await self._ranked(question, hits, timings), True, "", rounds)

    async def _by_words(
        self, question: Question, timings: Timings, why: Degradation, rounds: int = 0
    ) -> Found:
        start = time.perf_counter()
        ranked = await self.local.rank(question.view, question.text, None, question.depth)
        timings.rank += time.perf_counter() - start
        return Found(ranked, False, why, rounds)

    async def _ask(self, question: Question) -> tuple[dict[str, StoreHit], int]:
        """The store's hits that are in the view in its version, best first, and how often it was asked."""
        size = len(question.view)
        if size <= SMALL_VIEW:
            return await self._by_ids(question, size), 1
        if self.store.exact:
            hits = await self._by_ids(question, question.depth)
            if len(hits) >= question.depth:
                return hits, 1
            return await self._by_ids(question, size), 2
        limit = max(_FIRST_LIMIT, question.depth * 3 // 2)
        hits, rounds = {}, 0
        while rounds < _ROUNDS:
            rounds += 1
            limit = min(limit, _LARGEST_LIMIT)
            answer = await self.store.search(
                StoreQuery(
                    text=question.text,
                    vector=question.vector,
                    limit=limit,
                    within=question.pushdown,
                    tags=question.tags,
                    servers=question.servers,
                )
            )
            hits = _admitted(question, answer)
            if len(hits) >= question.depth or len(answer) < limit or limit == _LARGEST_LIMIT:
                break
            limit *= _GROWTH
        return hits, rounds

    async def _by_ids(self, question: Question, limit: int) -> dict[str, StoreHit]:
        query = StoreQuery(
            text=question.text, vector=question.vector, limit=limit, ids=ids_of(question.view)
        )
        return _admitted(question, await self.store.search(query))

    async def _ranked(self, question: Question, hits: dict[str, StoreHit], timings: Timings) -> list[Ranked]:
        complete = len(hits) >= min(question.depth, len(question.view))
        if self.store.exact and (
            len(hits) == len(question.view) or (complete and len(question.view) > SMALL_VIEW)
        ):
            return [
                Ranked(question.view[h.tool_id], h.score, h.lexical or 0.0, h.dense)
                for h in list(hits.values())[: question.depth]
            ]
        if not complete and not self.store.exact and len(question.view) > SMALL_VIEW:
            await self._fetch_vectors(question, timings)
            start = time.perf_counter()
            ranked = await self.local.rank(question.view, question.text, question.vector, question.depth)
        else:
            start = time.perf_counter()
            cosines = {h.tool_id: h.dense for h in hits.values() if h.dense is not None}
            ranked = await self.local.fuse(question.view, question.text, cosines, question.depth)
        timings.rank += time.perf_counter() - start
        return ranked

    async def _fetch_vectors(self, question: Question, timings: Timings) -> None:
        """Bring the view's vectors here. What a deadline cuts short is there for the next search."""
        start = time.perf_counter()
        now = time.monotonic()
        missing = []
        for tool_id in await self.local.without_vector(question.view):
            digest, asked = self._absent.get(tool_id, ("", 0.0))
            if digest != question.view[tool_id].digest or now - asked > self.seconds:
                missing.append(tool_id)
        try:
            async with asyncio.timeout(self.seconds):
                for part in _parts(missing):
                    vectors = await self.store.vectors(part)
                    await self.local.learn(vectors)
                    for tool_id in part:
                        wanted = question.view[tool_id].digest
                        if vectors.get(tool_id, ("", None))[0] == wanted:
                            self._absent.pop(tool_id, None)
                        else:
                            self._absent[tool_id] = (wanted, now)
        except (StoreError, TimeoutError) as error:
            self.outage.failed(error)
        timings.store += time.perf_counter() - start


def _admitted(question: Question, hits: Sequence[StoreHit]) -> dict[str, StoreHit]:
    admitted = {}
    for hit in hits:
        entry = question.view.get(hit.tool_id)
        if entry is not None and entry.digest == hit.digest:
            admitted[hit.tool_id] = hit
    return admitted


def _parts(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _VECTORS_PER_REQUEST):
        yield ids[start : start + _VECTORS_PER_REQUEST]
