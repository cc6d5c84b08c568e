"""One search of one view: by the vectors that are here, completed by the store where some are not."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from toolcrib_registry.search import seed_formula
from toolcrib_registry.search.entry import IndexEntry, Stored, Vector, cosines
from toolcrib_registry.search.errors import StoreError
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.question import Question
from toolcrib_registry.search.ranker import Ranker
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.resident_vectors import FEW, ResidentVectors
from toolcrib_registry.search.store import CatalogStore

STORE_SECONDS = 2.0
"""How long one search waits for the store."""
_FIRST_LIMIT = 64
_GROWTH = 4
_AGAIN = 3
"""How often a search fetches vectors that were here when it began and are not any more."""
_LARGEST_LIMIT = 10_000
"""Weaviate's own (QUERY_MAXIMUM_RESULTS)."""
_MOST_NEAREST = 1_000
"""However many are wanted: behind so many nearest tools words alone decide."""
_MORE = 8
"""Asked for beyond what is wanted: the last ones of a full answer do not count."""
_ROUNDING = 1e-5
"""By how much a store's cosines may differ from ours."""

Degradation: TypeAlias = Literal["", "store_unavailable", "index_empty", "embedder_unavailable"]


@dataclass(slots=True)
class Found:
    """The ranking, and how it came about."""

    ranked: list[Ranked]
    with_vectors: bool
    degradation: Degradation = ""


@dataclass(frozen=True, slots=True)
class _Told:
    """What the store told of a view for one search."""

    vectors: dict[str, Vector]
    """By tool id, of the versions that the view has."""
    reach: float | None = None
    """A tool of the view that neither was told nor is here is at most so near; None: it is nowhere."""


@dataclass(slots=True)
class ViewSearch:
    """Answers questions from the ranker's vectors and, until they are here, from what the store tells."""

    store: CatalogStore
    ranker: Ranker
    outage: Outage
    seconds: float
    """How long to wait for the store in one search."""
    resident: ResidentVectors = field(init=False)

    def __post_init__(self) -> None:
        self.resident = ResidentVectors(self.store, self.ranker, self.outage)

    async def answer(self, question: Question) -> Found:
        """Rank the view for the question. Never raises for a store that fails."""
        if question.vector is None:
            return await self._by_words(question)
        asked = question
        if question.mode == "compat":
            # the formula is taken over the evidence of every tool of the view
            asked = replace(question, mode="hybrid", depth=len(question.view))
        found = await self._found(asked)
        if found.with_vectors and question.mode == "compat":
            found.ranked = await asyncio.to_thread(_by_formula, question, found.ranked)
        return found

    async def _found(self, question: Question) -> Found:
        ranked, lacking = await self.ranker.rank_whole(question)
        if not lacking:
            # whether the store answers makes no difference, and nothing is learnt of it
            return Found(ranked, True)
        versions = {i: question.view[i].digest for i in lacking}
        due = self.resident.due(versions) if self.resident.fit else versions
        known = self.resident.fit and len(lacking) < len(question.view)
        if known and len(due) > FEW and len(self.resident.due(versions, again=False)) <= FEW:
            # the store did not have them: it is being filled, and there is nothing to wait for
            self.resident.fill_soon()
            due = {}
        begun = time.monotonic()
        told = await self._asked(question, due) if due else _Told({})
        ranked, lacking = await self.ranker.rank_whole(question)
        for _ in range(_AGAIN):
            # a search of another version of the view may have taken vectors away meanwhile
            missed = {i: question.view[i].digest for i in lacking if i not in versions}
            if told is None or told.reach is not None or not missed or len(missed) > FEW:
                break
            if time.monotonic() - begun > self.seconds:
                break
            versions |= missed
            more = await self._asked(question, missed)
            told = None if more is None else _Told({**told.vectors, **more.vectors})
            ranked, lacking = await self.ranker.rank_whole(question)
        if not lacking:
            return Found(ranked, True)
        here = len(question.view) - len(lacking)
        if told is None and 2 * here < len(question.view):
            return await self._by_words(question, "store_unavailable")
        told = told or _Told({})
        if not here and not told.vectors:
            return await self._by_words(question, "index_empty")
        return Found(await self.ranker.rank(question, told.vectors, told.reach), True)

    async def _by_words(self, question: Question, why: Degradation = "") -> Found:
        return Found(await self.ranker.rank(replace(question, vector=None)), False, why)

    async def _asked(self, question: Question, due: Mapping[str, str]) -> _Told | None:
        """What the store says of those of the view that are not here; None, if it says nothing."""
        if self.outage.keeps_away():
            return None
        try:
            async with asyncio.timeout(self.seconds):
                told = await self._told(question, due)
        except (StoreError, TimeoutError) as error:
            self.outage.failed(error)
            return None
        self.outage.over()
        return told

    async def _told(self, question: Question, due: Mapping[str, str]) -> _Told | None:
        if len(due) > FEW:
            self.resident.fill_soon()
            return await self._nearest(question)
        return _Told({s.tool_id: s.vector for s in await self.resident.fetch(due)})

    async def _nearest(self, question: Question) -> _Told | None:
        """The nearest tools of the view: of ever more of the superset, until enough of them are in the view.

        What is told depends on the view alone, not on what else is stored. None: too much else is nearer.
        """
        parts = [p.vector for p in question.parts if p.vector is not None]
        wanted = [v for v in (question.vector, *parts) if v is not None]
        enough = min(question.depth, _MOST_NEAREST)
        limit = max(_FIRST_LIMIT, enough + _MORE)
        while True:
            found = await self.store.nearest(np.stack(wanted), limit, question.pushdown)
            all_told = len(found) < limit
            own = await asyncio.to_thread(_own, question.view, found, wanted, all_told)
            if len(own) >= enough:
                first = own[:enough]
                return _Told({s.tool_id: s.vector for _, s in first}, first[-1][0])
            if all_told:
                return _Told({s.tool_id: s.vector for _, s in own})
            if limit >= _LARGEST_LIMIT:
                return None
            limit = min(limit * _GROWTH, _LARGEST_LIMIT)


def _own(
    view: Mapping[str, IndexEntry], found: Sequence[Stored], wanted: Sequence[Vector], all_told: bool
) -> list[tuple[float, Stored]]:
    """Those of `found` that are in the view with their cosines, nearest first, ties by id: a prefix of one order.

    Unless the store told all, those about as near as its last are left out: it may have kept others like them back.
    """

    def near(some: Sequence[Stored]) -> list[float]:
        each: list[float] = np.max(cosines(np.stack([s.vector for s in some]), wanted), axis=0).tolist()
        return each

    own = [s for s in found if (e := view.get(s.tool_id)) is not None and e.digest == s.digest]
    if not own:
        return []
    least = -math.inf if all_told else near(found[-1:])[0] + _ROUNDING
    return sorted(
        ((n, s) for n, s in zip(near(own), own, strict=True) if n > least),
        key=lambda o: (-o[0], o[1].tool_id),
    )


def _by_formula(question: Question, ranked: Sequence[Ranked]) -> list[Ranked]:
    """The seed formula over what was found out about the view."""
    evidence = {r.entry.tool_id: r for r in ranked}
    cosines = {i: r.dense for i, r in evidence.items() if r.dense is not None}
    best = seed_formula.best(question.view, cosines, question.text, question.depth)
    return [
        Ranked(e, score, evidence[e.tool_id].lexical if e.tool_id in evidence else 0.0, dense)
        for e, score, dense in best
    ]
