"""The exact ranking of a large view on a server, with few of the view's vectors.

The server searches a superset of the view and tells the tools nearest to the request, with their vectors; the words
are all known here. Any other tool is at most as near as the last that was told. Ranked as if it were that near
(`reach`), it stands behind the best, and the ranking is what all vectors would give; or it stands among them, and
its own vector is fetched. The other end is asked for as well: the least similar tool sets the scale.

Where the superset hides the view (most of what the server tells is not in it), or its end cannot be told, the view's
own vectors are fetched and kept, and the view is ranked here from then on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolcrib_registry.search.entry import Part, StoreHit, StoreQuery, Vector
from toolcrib_registry.search.fusion import PART_SHARE, blended
from toolcrib_registry.search.local_index import LocalIndex
from toolcrib_registry.search.question import Question
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.store import CatalogStore

_FIRST_LIMIT = 64
_FIRST_FAR = 32
_GROWTH = 5
_ROUNDS = 3
"""The first question and two with larger limits."""
_LARGEST_LIMIT = 10_000
"""Weaviate's own (QUERY_MAXIMUM_RESULTS)."""
_LOOKS = 4
"""How often vectors that might matter are fetched before all of the view's are."""
_AHEAD = 64
"""How many places behind the last wanted are looked at: what may move up next."""
_VECTORS_PER_REQUEST = 200
_ROUNDING = 1e-5
"""More than two ways to compute a cosine may differ."""


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """A ranking, and how it came about."""

    ranked: list[Ranked]
    """Empty where the store holds nothing of the view."""
    rounds: int
    """How often the server was asked to search."""


@dataclass(slots=True)
class _Seen:
    """What the server told of a view, by bounds."""

    rounds: int = 0
    told: int = 0
    """How many tools of the view are near."""
    reach: float | None = None
    """The most that a tool which was not told can be similar; None if all were told."""
    sound: bool = False
    """Whether enough was told for the bounds to hold, at both ends."""


@dataclass(slots=True)
class LargeViews:
    """Ranks large views against a store that tells the nearest tools of a superset."""

    store: CatalogStore
    local: LocalIndex
    seconds: float
    """For how long a tool that had no vector is not asked for again."""
    fetched: int = 0
    """How many tools were asked for by id."""
    _absent: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Tools that the store had no vector for: digest and when it was asked."""
    _completing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def rank(self, question: Question) -> LargeAnswer:
        """The best `question.depth`, as `RankingIndex.rank` over all vectors of the view would give them.

        May be cancelled at any time: what was fetched until then is kept.

        Raises:
            StoreError: the store cannot answer.
        """
        lacking = len(await self.local.without_vector(question.view))
        if not lacking:
            return LargeAnswer(await self.here(question), 0)
        seen = await self._ask(question, lacking)
        if seen.rounds and not seen.told and seen.reach is None:
            return LargeAnswer([], seen.rounds)
        for _ in range(_LOOKS if seen.sound else 0):
            absent = self._known_absent(question)
            ranked = await self._ranked(question, question.depth + _AHEAD, seen.reach, absent)
            elsewhere = [] if seen.reach is None else _without_cosine(ranked, absent)
            if not set(elsewhere) & {r.entry.tool_id for r in ranked[: question.depth]}:
                return LargeAnswer(ranked[: question.depth], seen.rounds)
            await self._fetch(question, elsewhere)
        await self.complete(question)
        if len(await self.local.without_vector(question.view)) == len(question.view):
            return LargeAnswer([], seen.rounds)
        return LargeAnswer(await self.here(question), seen.rounds)

    async def here(self, question: Question) -> list[Ranked]:
        """The ranking with the vectors that are here; tools without one are ranked by their words."""
        return await self._ranked(question, question.depth, None, [])

    async def complete(self, question: Question) -> None:
        """Fetch what is lacking of the view's vectors. What a deadline cuts short is here for the next search."""
        async with self._completing:
            absent = set(self._known_absent(question))
            lacking = await self.local.without_vector(question.view)
            await self._fetch(question, [i for i in lacking if i not in absent])

    async def _ask(self, question: Question, lacking: int) -> _Seen:
        toward = directions(question)
        away = -np.asarray(np.mean(toward, axis=0), np.float32)
        near_limit, far_limit = max(_FIRST_LIMIT, question.depth * 3 // 2), _FIRST_FAR
        near_done = far_done = False
        seen = _Seen()
        while not (near_done and far_done) and seen.rounds < _ROUNDS:
            if near_limit + far_limit > lacking:
                # the view's own vectors are fewer than what would be asked for
                break
            seen.rounds += 1
            near, far = await _both(
                None if near_done else self._told(question, toward, near_limit),
                None if far_done else self._told(question, [away], far_limit),
            )
            if near is not None:
                own = await self._admitted(question, near)
                seen.told = len(own)
                seen.reach = None
                near_done = len(near) < near_limit
                if not near_done:
                    longest = max(float(np.linalg.norm(v)) for v in toward)
                    seen.reach = near[-1].nearness * longest + _ROUNDING
                    best = max(_similarities(question, own), default=-1.0)
                    near_done = len(own) >= question.depth and seen.reach <= best
                near_limit = min(near_limit * _GROWTH, _LARGEST_LIMIT)
            if far is not None:
                own = await self._admitted(question, far)
                far_done = len(far) < far_limit
                if not far_done:
                    least = min(_similarities(question, own), default=1.0)
                    far_done = least <= -far[-1].nearness * float(np.linalg.norm(away))
                far_limit = min(far_limit * _GROWTH, _LARGEST_LIMIT)
        seen.sound = near_done and far_done
        return seen

    async def _told(self, question: Question, vectors: Sequence[Vector], limit: int) -> list[StoreHit]:
        """The tools of the superset nearest to any of `vectors` (of any length), at most `limit`."""
        first, *others = (v / (np.linalg.norm(v) or 1.0) for v in vectors)
        return await self.store.search(
            StoreQuery(
                text="",
                vector=first,
                parts=tuple(Part("", v) for v in others),
                limit=limit,
                mode="nearest",
                within=question.pushdown,
                tags=question.tags,
                servers=question.servers,
            )
        )

    async def _admitted(self, question: Question, hits: Sequence[StoreHit]) -> list[StoreHit]:
        """Those of `hits` that are in the view in its version; their vectors are kept."""
        own = [h for h in hits if (e := question.view.get(h.tool_id)) is not None and e.digest == h.digest]
        await self.local.learn({h.tool_id: (h.digest, h.vector) for h in own if h.vector is not None})
        return own

    async def _ranked(
        self, question: Question, limit: int, reach: float | None, absent: Sequence[str]
    ) -> list[Ranked]:
        return await self.local.rank(
            question.view,
            question.text,
            question.vector,
            limit,
            parts=question.parts,
            dense_weight=question.dense_weight,
            reach=reach,
            absent=absent,
        )

    async def _fetch(self, question: Question, ids: Sequence[str]) -> None:
        for part in _in_requests(ids):
            vectors = await self.store.vectors(part)
            await self.local.learn(vectors)
            self.fetched += len(part)
            now = time.monotonic()
            for tool_id in part:
                wanted = question.view[tool_id].digest
                if vectors.get(tool_id, ("", None))[0] == wanted:
                    self._absent.pop(tool_id, None)
                else:
                    self._absent[tool_id] = (wanted, now)

    def _known_absent(self, question: Question) -> list[str]:
        """Tools of the view that the store had no vector for a moment ago."""
        recent = time.monotonic() - self.seconds
        known = [
            (i, e.digest == digest and asked >= recent)
            for i, (digest, asked) in self._absent.items()
            if (e := question.view.get(i)) is not None
        ]
        for tool_id, still in known:
            if not still:
                del self._absent[tool_id]
        return [tool_id for tool_id, still in known if still]


def directions(question: Question) -> list[Vector]:
    """Vectors whose largest product with a tool's is what `fusion.blended` makes of its cosines; never none."""
    assert question.vector is not None
    parts = [p.vector for p in question.parts if p.vector is not None]
    if not parts:
        return [question.vector]
    return [((1.0 - PART_SHARE) * question.vector + PART_SHARE * p).astype(np.float32) for p in parts]


def _similarities(question: Question, hits: Sequence[StoreHit]) -> list[float]:
    """How similar each of `hits` is to the request and its parts, as the ranking counts it."""
    vectors = [h.vector for h in hits if h.vector is not None]
    if not vectors or question.vector is None:
        return []
    rows = np.stack(vectors)
    wanted = [question.vector, *(p.vector for p in question.parts if p.vector is not None)]
    whole, *parts = (np.einsum("ij,j->i", rows, v).astype(np.float64) for v in wanted)
    found: list[float] = blended(whole, parts).tolist()
    return found


def _without_cosine(ranked: Sequence[Ranked], absent: Sequence[str]) -> list[str]:
    gone = set(absent)
    return [r.entry.tool_id for r in ranked if r.dense is None and r.entry.tool_id not in gone]


async def _both(
    near: Coroutine[Any, Any, list[StoreHit]] | None, far: Coroutine[Any, Any, list[StoreHit]] | None
) -> tuple[list[StoreHit] | None, list[StoreHit] | None]:
    """Both answers, asked for at one time."""
    waited = [asyncio.ensure_future(c) for c in (near, far) if c is not None]
    try:
        await asyncio.gather(*waited)
    finally:
        for task in waited:
            task.cancel()
    answers = iter([t.result() for t in waited])
    return (None if near is None else next(answers)), (None if far is None else next(answers))


def _in_requests(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _VECTORS_PER_REQUEST):
        yield ids[start : start + _VECTORS_PER_REQUEST]
