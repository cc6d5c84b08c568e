"""The ranking itself: exact, in process, over exactly the tools a caller may see.

`a·mm(cosine) + (1-a)·mm(BM25)`, where `mm` is min-max over the visible documents. Everything that enters a score
is computed from the visible documents and the query alone, each document's part independently of where it lies
in memory, so the answer is byte-identical to the same ranking run over an index of the visible tools alone.

It is the embedded store's ranking, the oracle of the tests, what completes a store that leaves an answer short,
and what answers while a store is away. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from toolcrib_registry.search.document import Document, document
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.lexical import LexicalIndex, Rows, Scores
from toolcrib_registry.search.text import query_terms

DENSE_WEIGHT = 0.65
"""Share of the cosine in a hybrid score; quality is flat between .5 and .7 (development data)."""
SMALL_VIEW = 200
"""Views up to this many tools are asked for in full, so that every cosine is known."""
DENSE_FLOOR = -0.15
"""Where only the most similar tools of a larger view are known: about the lowest cosine in it (-0.14 ± 0.03 with the
packaged model on the development data)."""
_GATHER_BELOW = 0.15
"""Gather visible vectors before multiplying when they are less than this share of all; else multiply all. Both
give the same numbers; this is about speed alone."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One tool of a ranking."""

    entry: IndexEntry
    score: float
    lexical: float
    """BM25 as a share of the most it could be for this query, 0 to 1."""
    dense: float | None
    """Cosine; None without a query vector or without a vector of the tool."""


class RankingIndex:
    """Entries, their terms and (where known) vectors, built up and torn down one by one."""

    def __init__(self, dimension: int = 0) -> None:
        self._dimension = dimension
        self._clear()

    def _clear(self) -> None:
        self._lexical = LexicalIndex()
        self._row_of: dict[str, int] = {}
        self._entries: list[IndexEntry | None] = []
        self._vectors: Vector = np.zeros((256 if self._dimension else 0, self._dimension), np.float32)
        self._has_vector = np.zeros(256, np.bool_)

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self._row_of

    def entries(self) -> Iterator[IndexEntry]:
        """Every entry held, in no order."""
        for row in self._row_of.values():
            entry = self._entries[row]
            if entry is not None:
                yield entry

    def get(self, tool_id: str) -> IndexEntry | None:
        """The entry of `tool_id`, if held."""
        row = self._row_of.get(tool_id)
        return None if row is None else self._entries[row]

    def vector(self, tool_id: str) -> Vector | None:
        """The vector of `tool_id`, if held: a copy."""
        row = self._row_of.get(tool_id)
        if row is None or not self._has_vector[row]:
            return None
        copy: Vector = self._vectors[row].copy()
        return copy

    def put(self, doc: Document, vector: Vector | None = None) -> None:
        """Add `doc`, or put it in the place of the entry with the same id (and of its vector)."""
        self.discard(doc.entry.tool_id)
        row = self._lexical.add(doc)
        self._entries.append(doc.entry)
        self._row_of[doc.entry.tool_id] = row
        if row >= len(self._has_vector):
            self._has_vector = np.concatenate([self._has_vector, np.zeros(len(self._has_vector), np.bool_)])
            if self._dimension:
                self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        if vector is not None and self._dimension:
            self._vectors[row] = vector
            self._has_vector[row] = True

    def discard(self, tool_id: str) -> None:
        """Forget `tool_id`; nothing happens if it is not held."""
        row = self._row_of.pop(tool_id, None)
        if row is None:
            return
        self._entries[row] = None
        self._has_vector[row] = False
        if len(self._entries) > 2 * len(self._row_of) + 1024:
            self._compact()

    def clear(self) -> None:
        """Forget everything."""
        self._clear()

    def rank(
        self,
        text: str,
        vector: Vector | None,
        ids: Iterable[str],
        *,
        limit: int,
        dense_weight: float = DENSE_WEIGHT,
    ) -> list[Ranked]:
        """The best `limit` of `ids` (unknown ones are ignored), best first, ties by tool id.

        With a vector every tool is ranked; without one, only tools that carry a word of `text`.
        `dense_weight` 1 ranks by cosine alone.
        """
        rows = self._rows(ids)
        if not len(rows) or limit < 1:
            return []
        query = query_terms(text) if dense_weight < 1.0 or vector is None else []
        lexical = self._lexical.score(query, rows)
        coverage = lexical.scores / lexical.ceiling if lexical.ceiling else lexical.scores
        if vector is None or not self._dimension:
            wanted = np.flatnonzero(lexical.scores > 0.0)
            return self._best(rows[wanted], lexical.scores[wanted], coverage[wanted], None, limit)
        cosine, known = self._cosine(vector, rows)
        fused = dense_weight * min_max(cosine) + (1.0 - dense_weight) * min_max(lexical.scores)
        return self._best(rows, fused, coverage, np.where(known, cosine, np.nan), limit)

    def fuse(
        self,
        text: str,
        cosines: Mapping[str, float],
        ids: Iterable[str],
        *,
        limit: int,
        dense_weight: float = DENSE_WEIGHT,
    ) -> list[Ranked]:
        """Rank `ids` where a store has found some and told their `cosines`; the vectors held here are not used.

        Words count exactly, over all of `ids`. Tools without a cosine are answered only if they carry a word of
        `text`: in a small view by their words alone, in a large one as the least similar. With a cosine for each of
        `ids` this is `rank`.
        """
        rows = self._rows(ids)
        if not len(rows) or limit < 1:
            return []
        lexical = self._lexical.score(query_terms(text), rows)
        coverage = lexical.scores / lexical.ceiling if lexical.ceiling else lexical.scores
        told = [None if (e := self._entries[r]) is None else cosines.get(e.tool_id) for r in rows.tolist()]
        cosine = np.array([np.nan if c is None else c for c in told], np.float64)
        known = ~np.isnan(cosine)
        if not known.any():
            wanted = np.flatnonzero(lexical.scores > 0.0)
            return self._best(rows[wanted], lexical.scores[wanted], coverage[wanted], None, limit)
        low = float(cosine[known].min())
        if not known.all() and len(rows) > SMALL_VIEW:
            low = min(low, DENSE_FLOOR)
        filled = np.where(known, cosine, low)
        high = float(filled.max())
        dense = (filled - low) / (high - low) if high > low else np.zeros_like(filled)
        words = min_max(lexical.scores)
        if len(rows) <= SMALL_VIEW:
            # all were asked for: these are not in the store yet, which says nothing against them
            dense = np.where(known, dense, words)
        fused = dense_weight * dense + (1.0 - dense_weight) * words
        wanted = np.flatnonzero(known | (lexical.scores > 0.0))
        return self._best(rows[wanted], fused[wanted], coverage[wanted], cosine[wanted], limit)

    def learn(self, tool_id: str, digest: str, vector: Vector) -> None:
        """Keep the vector of an entry that is held with this `digest`; another digest is ignored."""
        row = self._row_of.get(tool_id)
        entry = None if row is None else self._entries[row]
        if row is not None and entry is not None and entry.digest == digest and self._dimension:
            self._vectors[row] = vector
            self._has_vector[row] = True

    def has_vector(self, tool_id: str) -> bool:
        """Whether a vector of `tool_id` is held."""
        row = self._row_of.get(tool_id)
        return row is not None and bool(self._has_vector[row])

    def _rows(self, ids: Iterable[str]) -> Rows:
        rows: Rows = np.unique(np.fromiter(map(self._row_of.get, ids, repeat(-1)), np.int64))
        return rows[1:] if len(rows) and rows[0] < 0 else rows

    def _cosine(
        self, vector: Vector, rows: Rows
    ) -> tuple[Scores, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        # einsum adds up each row by itself, in one order, wherever the row lies; a matrix product may not
        used = self._vectors[: len(self._entries)]
        if len(rows) < _GATHER_BELOW * len(used):
            cosine = np.einsum("ij,j->i", used[rows], vector).astype(np.float64)
        else:
            cosine = np.einsum("ij,j->i", used, vector)[rows].astype(np.float64)
        known = self._has_vector[rows]
        if not known.all():
            cosine[~known] = cosine[known].min() if known.any() else 0.0
        return cosine, known

    def _best(
        self, rows: Rows, scores: Scores, coverage: Scores, cosine: Scores | None, limit: int
    ) -> list[Ranked]:
        if limit < len(scores):
            # keep every tie of the last place: ids decide among them below
            floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            chosen = np.flatnonzero(scores >= floor)
        else:
            chosen = np.arange(len(scores))
        ranked = []
        for i in chosen.tolist():
            entry = self._entries[int(rows[i])]
            if entry is None:
                continue
            dense = None if cosine is None or np.isnan(cosine[i]) else float(cosine[i])
            ranked.append(Ranked(entry, float(scores[i]), float(coverage[i]), dense))
        ranked.sort(key=lambda r: (-r.score, r.entry.tool_id))
        return ranked[:limit]

    def _compact(self) -> None:
        living: Rows = np.array([r for r, e in enumerate(self._entries) if e is not None], np.int64)
        self._lexical.compact(living)
        entries = [e for e in self._entries if e is not None]
        size = max(256, len(entries))
        flags = np.zeros(size, np.bool_)
        flags[: len(entries)] = self._has_vector[living]
        vectors: Vector = np.zeros((size if self._dimension else 0, self._dimension), np.float32)
        if self._dimension:
            vectors[: len(entries)] = self._vectors[living]
        self._entries = list(entries)
        self._has_vector, self._vectors = flags, vectors
        self._row_of = {e.tool_id: row for row, e in enumerate(entries)}


def min_max(scores: Scores) -> Scores:
    """`scores` stretched to 0…1; all 0 where they do not differ."""
    low, high = float(scores.min()), float(scores.max())
    if high <= low:
        return np.zeros_like(scores)
    return (scores - low) / (high - low)


def rank(
    text: str,
    vector: Vector | None,
    tools: Iterable[tuple[IndexEntry, Vector | None]],
    *,
    limit: int,
    dense_weight: float = DENSE_WEIGHT,
) -> list[Ranked]:
    """Rank `tools` for a query in one go: the definition that every other path is compared with."""
    index = RankingIndex(0 if vector is None else len(vector))
    ids = []
    for entry, own in tools:
        index.put(document(entry), own)
        ids.append(entry.tool_id)
    return index.rank(text, vector, ids, limit=limit, dense_weight=dense_weight)
