"""Search within a view: the request is understood, the view ranked exactly, the best are told with their evidence.

Words and vectors of the snapshot are here; while the vectors are not, the store tells the nearest of a cheap superset,
and only those count that are in the view in the version that the view has. Where there are none, or no vector can be
made of the request, the answer comes from the words of the snapshot and says so. (DESIGN §6, Search within a view.)

Nothing that is not in the view enters an answer: not a hit, not a count, not a score, not a reason.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from toolcrib_registry.search import seed_formula, why
from toolcrib_registry.search.calibration import FITTED_FOR
from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.confidence import confidence, confidences, least_fit
from toolcrib_registry.search.entry import Clause, IndexEntry, Pushdown, Stored, Vector
from toolcrib_registry.search.errors import EmbedderRefused, EmbedderUnavailable, ModeUnavailable
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.question import AskedMode, Question, Wanted
from toolcrib_registry.search.ranker import Ranker
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.text import QUERY_LIMIT
from toolcrib_registry.search.vector_table import RESIDENT_BYTES
from toolcrib_registry.search.vectors import Embedder
from toolcrib_registry.search.view_search import STORE_SECONDS, Degradation, ViewSearch
from toolcrib_registry.search.visible import Filter, narrowed

_NO_DEGRADATION: Degradation = ""
UsedMode: TypeAlias = Literal["hybrid", "lexical", "dense", "compat", "filter"]

LEAST_WORDS = 0.2
"""With an embedder that confidence is not fitted to, a hit fits also if it carries this share of the request's words:
what cosines are worth differs from one embedder to another, words do not. With the fitted one that would save none of
the right hits that the cut loses, and answer some nonsense that is made of real words."""
_DEPTH_PER_HIT = 10
_DEPTH_LEAST = 200
"""How deep to rank, at first, to find the best servers, or the hits that are sure enough."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits, best first, and how they were found."""

    mode: UsedMode
    """`filter`: there was no text, hits are those that pass the filters, by name."""
    hits: tuple[Ranked, ...]
    degradation: Degradation = ""
    """Why the mode is less than what was asked for; empty if it is not."""

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
        store_seconds: float = STORE_SECONDS,
        embed_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        """Search with vectors of `embedder`, those of tools from `store`, waiting for each no longer than so many seconds.

        At most `resident_bytes` of tools' vectors are held.
        """
        self._embedder = embedder
        self._embed_seconds = embed_seconds
        self._embedder_outage = Outage(clock, "the embedder")
        self._ranker = Ranker(embedder.dimension, resident_bytes)
        self._views = ViewSearch(store, self._ranker, Outage(clock, "the search index"), store_seconds)

    @property
    def state(self) -> int | None:
        """Another one after every change of what searches find; None while some vectors may still come."""
        return self._ranker.version if self._ranker.complete else None

    async def prepare(self, entries: Collection[IndexEntry]) -> bool:
        """Take in a new snapshot ahead of the first search.

        The words of `entries`, then their vectors. All others are forgotten.

        Returns:
            Whether vectors are lacking, since the store has not all of them or does not answer: `complete` them later.
        """
        await self.replace(entries)
        return await self.complete()

    async def replace(self, entries: Collection[IndexEntry]) -> None:
        """The words of a new snapshot: those of `entries`, and of nothing else."""
        self._views.resident.expect(len(entries))
        await self._ranker.retain([e.tool_id for e in entries], with_vectors=self._views.resident.fit)
        await self._ranker.follow(entries)

    async def update(self, entries: Collection[IndexEntry], gone: Collection[str], *, count: int) -> int:
        """The words of a new snapshot of `count` tools, of which only `entries` and `gone` differ from the last one.

        Returns:
            How many are held then: not `count` where something else changed meanwhile, and `replace` puts that right.
        """
        self._views.resident.expect(count)
        return await self._ranker.update(entries, gone, with_vectors=self._views.resident.fit)

    async def complete(self) -> bool:
        """Fetch the vectors that are lacking; whether some still are."""
        return await self._views.resident.fill()

    async def learn(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """The vectors of `entries`, from the one who put them into the store: they need not be fetched."""
        if vectors is None:
            return
        if self._views.resident.fit:
            await self._ranker.follow(entries)
        await self._views.resident.learn(
            [Stored(e.tool_id, e.digest, v) for e, v in zip(entries, vectors, strict=True)]
        )

    def close(self) -> None:
        """Stop the threads. Store and embedder are the caller's to close."""
        self._views.resident.close()
        self._ranker.close()

    async def search(
        self, view: Mapping[str, IndexEntry], wanted: Wanted, pushdown: Pushdown | None = None
    ) -> Answer:
        """The best tools of `view` for what is wanted.

        Args:
            view: exactly the tools that the caller may see, by tool id.
            pushdown: a superset of the view that the store can narrow down to cheaply; all, if None.

        Raises:
            ModeUnavailable: the mode needs vectors and no embedder is configured.
        """
        mode, limit, dimension = wanted.mode, wanted.limit, self._embedder.dimension
        if mode in ("dense", "compat") and dimension == 0:
            raise ModeUnavailable(mode)
        filter_ = Filter(wanted.tags, wanted.servers, wanted.namespaces, wanted.states)
        eligible = await narrowed(view, filter_)
        text = wanted.query[:QUERY_LIMIT].strip()
        if not text:
            return Answer("filter", await asyncio.to_thread(_by_name, eligible, wanted))
        if not eligible or limit < 1:
            return Answer(mode if dimension else "lexical", ())

        vector, parts, degradation = await self._understand(text, mode)
        question = Question(
            view=eligible,
            text=text,
            vector=vector,
            parts=parts,
            depth=min(len(eligible), limit),
            pushdown=_narrowed(pushdown or Pushdown(), filter_),
            mode="hybrid" if mode == "lexical" else mode,
        )
        if wanted.top_k_servers is not None:
            question, fallen = await self._of_best_servers(question, wanted.top_k_servers, limit)
            degradation = degradation or fallen
        if wanted.min_score:
            # the surest may stand anywhere where the formula ranks; else they are near the top
            deep = len(question.view) if mode == "compat" else max(_DEPTH_LEAST, _DEPTH_PER_HIT * limit)
            question = replace(question, depth=min(len(question.view), deep))
        found = await self._views.answer(question)
        answered: UsedMode = question.mode if found.with_vectors else "lexical"
        kept = await asyncio.to_thread(_sure_enough, found.ranked, answered, wanted.min_score or 0.0, limit)
        if wanted.min_score is None and mode != "compat" and not self._fits(kept, len(eligible)):
            kept = []  # emptied, not thinned out: of a request for several tools the others may look weak
        hits = await asyncio.to_thread(_with_reasons, kept, text, answered)
        return Answer(answered, hits, degradation or found.degradation)

    def _fits(self, kept: list[Ranked], count: int) -> bool:
        """Whether there is more to the hits than chance, in a view of `count` tools."""
        if not kept or kept[0].dense is None or (kept[0].confidence or 0.0) >= least_fit(count):
            return True
        return self._embedder.name != FITTED_FOR and any(r.lexical >= LEAST_WORDS for r in kept)

    async def _of_best_servers(
        self, question: Question, count: int, limit: int
    ) -> tuple[Question, Degradation]:
        """The question about the tools of the best `count` servers alone: a server is as good as its best tool.

        Where words alone could choose them, it is a question of words alone: an answer is of one kind, and says why.
        """
        size = len(question.view)
        depth = min(size, max(_DEPTH_LEAST, _DEPTH_PER_HIT * limit))
        while True:
            found = await self._views.answer(replace(question, depth=depth))
            best = list(dict.fromkeys(_server_of(r.entry) for r in found.ranked))[:count]
            if len(best) == count or depth >= size or len(found.ranked) < depth:
                break
            depth = min(size, depth * _DEPTH_PER_HIT)
        chosen = set(best)
        view = {i: e for i, e in question.view.items() if _server_of(e) in chosen}
        names = tuple(server for _, server in best if server is not None)
        # what the store is told is a superset: where tools without a server are among the chosen it cannot be narrowed
        within = _narrowed(question.pushdown, Filter(servers=names if len(names) == len(best) else ()))
        vector = question.vector if found.with_vectors else None
        narrower = replace(question, view=view, pushdown=within, depth=min(len(view), limit), vector=vector)
        return narrower, found.degradation

    async def _understand(
        self, text: str, mode: AskedMode
    ) -> tuple[Vector | None, tuple[Clause, ...], Degradation]:
        """Cut the text into what it asks for, and make a vector of the whole and of each part in one turn."""
        pieces = clauses(text) if mode != "compat" else [text]  # the formula is of the whole
        if len(pieces) < 2:
            pieces = []
        rows, degradation = None, _NO_DEGRADATION
        if mode != "lexical" and self._embedder.dimension:
            rows, degradation = await self._embed([text, *pieces])
        if rows is None:
            return None, tuple(Clause(p) for p in pieces), degradation
        return rows[0], tuple(Clause(p, row) for p, row in zip(pieces, rows[1:], strict=True)), ""

    async def _embed(self, texts: list[str]) -> tuple[Vector | None, Degradation]:
        if self._embedder_outage.keeps_away():
            return None, "embedder_unavailable"
        try:
            async with asyncio.timeout(self._embed_seconds):
                rows = await self._embedder.embed_request(texts)
        except EmbedderRefused:
            # it answered: this request is to blame, and must not take the meaning from everybody else's
            self._embedder_outage.over()
            return None, "embedder_unavailable"
        except (EmbedderUnavailable, TimeoutError) as error:
            self._embedder_outage.failed(error)
            return None, "embedder_unavailable"
        self._embedder_outage.over()
        return rows, ""


def _narrowed(within: Pushdown, filter_: Filter) -> Pushdown:
    """The superset without what the filters exclude; of `namespace/server` the server alone."""

    def both(one: frozenset[str] | None, asked: Iterable[str]) -> frozenset[str] | None:
        other = frozenset(asked)
        return one if not other else other if one is None else one & other

    return replace(
        within,
        namespaces=both(within.namespaces, (n.casefold() for n in filter_.namespaces)),
        states=both(within.states, filter_.states),
        servers=both(within.servers, (s.rpartition("/")[2].casefold() for s in filter_.servers)),
        tags=within.tags | {t.casefold() for t in filter_.tags},
    )


def _server_of(entry: IndexEntry) -> tuple[str, str | None]:
    return entry.namespace, entry.server


def _with_confidence(ranked: list[Ranked], mode: UsedMode) -> list[Ranked]:
    evidence = [(r.lexical, r.dense) for r in ranked]
    # the formula's order is not one of evidence: a hit is not less sure for standing behind another
    sure = [confidence(*e) for e in evidence] if mode == "compat" else confidences(evidence)
    return [replace(r, confidence=c) for r, c in zip(ranked, sure, strict=True)]


def _sure_enough(ranked: list[Ranked], mode: UsedMode, least: float, limit: int) -> list[Ranked]:
    """The first `limit` whose own evidence is enough: what is shown may be less than that, never less than `least`."""
    enough = ranked if not least else (r for r in ranked if confidence(r.lexical, r.dense) >= least)
    return _with_confidence(list(itertools.islice(enough, limit)), mode)


def _with_reasons(ranked: list[Ranked], text: str, mode: UsedMode) -> tuple[Ranked, ...]:
    if mode == "compat":
        words = seed_formula.words(text)
        reasons = [why.by_places(seed_formula.matches(r.entry, words), r.dense) for r in ranked]
    else:
        asked = why.asked_for(text)
        reasons = [why.by_evidence(asked, r.entry, r.dense) for r in ranked]
    return tuple(replace(r, why=reason) for r, reason in zip(ranked, reasons, strict=True))


def _by_name(view: Mapping[str, IndexEntry], wanted: Wanted) -> tuple[Ranked, ...]:
    ordered = sorted(view.values(), key=lambda e: (e.name, e.tool_id))[: max(0, wanted.limit)]
    return tuple(
        Ranked(e, 0.0, 0.0, None, why=why.by_filters(e, wanted.tags, wanted.servers)) for e in ordered
    )
