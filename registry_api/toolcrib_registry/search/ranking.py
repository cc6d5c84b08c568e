"""The ranking itself: exact, in process, over exactly the tools a caller may see.

`search.fusion` says how words and cosines become a score. Everything that enters it is computed from the visible
documents and the query alone, each document's part independently of where it lies in memory, so the answer is
byte-identical to the same ranking run over an index of the visible tools alone.

It is the embedded store's ranking, the oracle of the tests, what completes a store that leaves an answer short,
and what answers while a store is away. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from toolcrib_registry.search.document import Document
from toolcrib_registry.search.entry import IndexEntry, Part, Vector
from toolcrib_registry.search.fusion import DENSE_WEIGHT as DENSE_WEIGHT
from toolcrib_registry.search.fusion import Words, blended, hybrid, min_max, words
from toolcrib_registry.search.lexical import LexicalIndex, LexicalScope, Rows, Scores
from toolcrib_registry.search.prepared_views import PreparedViews
from toolcrib_registry.search.signatures import Signatures
from toolcrib_registry.search.text import query_terms

SMALL_VIEW = 200
"""Views up to this many tools are asked for in full, so that every cosine is known."""
LARGE_VIEW = 20_000
"""In a larger view only the tools that may be among the best are compared number by number (`_promising`)."""
_PROMISING = 1_024
"""So many by their words, and by how near they are to each vector; or four for each that is wanted."""
_FARTHEST = 256
"""So many of the farthest are looked at too: the least similar tool is a part of the score."""
_GATHER_BELOW = 0.15
"""Gather visible vectors before multiplying when they are less than this share of all; else multiply all. Both
give the same numbers; this is about speed alone."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One tool of a ranking."""

    entry: IndexEntry
    score: float
    """For ordering within one ranking only."""
    lexical: float
    """BM25 as a share of the most it could be for this query, 0 to 1. For a request of several parts half of it is
    the whole's share and half that of the part that the tool suits best."""
    dense: float | None
    """Cosine, for a request of several parts blended likewise; None without a query vector or without a vector of
    the tool."""


class RankingIndex:
    """Entries, their terms and (where known) vectors, built up and torn down one by one."""

    def __init__(self, dimension: int = 0, *, large: int = LARGE_VIEW, promising: int = _PROMISING) -> None:
        self._dimension = dimension
        self._large, self._least = large, promising
        self._version = 0
        self._scopes = PreparedViews()
        self._clear()

    def _clear(self) -> None:
        self._changed()
        self._lexical = LexicalIndex()
        self._row_of: dict[str, int] = {}
        self._entries: list[IndexEntry | None] = []
        self._vectors: Vector = np.zeros((256 if self._dimension else 0, self._dimension), np.float32)
        self._has_vector = np.zeros(256, np.bool_)
        self._signatures = Signatures(self._dimension)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def version(self) -> int:
        """Another one after every change, also of a vector; never the same again."""
        return self._version

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
        self._changed()
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
        self._changed()
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
        parts: Sequence[Part] = (),
        reach: float | None = None,
        absent: Iterable[str] = (),
    ) -> list[Ranked]:
        """The best `limit` of `ids` (unknown ones are ignored), best first, ties by tool id.

        With a vector every tool is ranked; without one, only tools that carry a word of `text`.
        `dense_weight` 1 ranks by cosine alone. `parts` are the things that `text` asks for, where there are several.

        A tool that has no vector yet is ranked by its words alone. With `reach`, one without a vector here counts as
        that similar, which is the most that it can be where its vector is elsewhere, and at least by its words;
        `absent` are those that have none anywhere.
        """
        scope = self._scope(ids)
        rows = scope.rows
        if not len(rows) or limit < 1:
            return []
        said = _words(text, parts, scope) if dense_weight < 1.0 or vector is None else _silence(len(rows))
        if vector is None or not self._dimension:
            return self._best(rows, said.strength, said, None, limit, said.carried)
        vectors = [vector, *(p.vector for p in parts if p.vector is not None)]
        if len(rows) > self._large and reach is None:
            few = self._promising(vectors, rows, said, limit)
            rows, said = rows[few], Words(said.strength[few], said.share[few], said.carried[few])
        whole, *of_parts = self._cosines(vectors, rows)
        cosine, known = blended(whole, of_parts), self._has_vector[rows]
        if known.all():
            dense = min_max(cosine)
        else:
            nowhere = ~known if reach is None else ~known & np.isin(rows, self._rows(absent))
            least = cosine[known].min() if known.any() else 0.0
            cosine[~known] = least if reach is None else reach
            cosine[nowhere] = least
            dense = min_max(cosine)
            # not in the index yet, which says nothing against a tool; and what is not known to be elsewhere may be nowhere
            dense[~known] = np.maximum(dense, said.strength)[~known]
            dense[nowhere] = said.strength[nowhere]
        fused = hybrid(dense, said.strength, dense_weight)
        return self._best(rows, fused, said, np.where(known, cosine, np.nan), limit)

    def fuse(
        self,
        text: str,
        cosines: Mapping[str, float],
        ids: Iterable[str],
        *,
        limit: int,
        dense_weight: float = DENSE_WEIGHT,
        parts: Sequence[Part] = (),
        part_cosines: Mapping[str, tuple[float, ...]] | None = None,
    ) -> list[Ranked]:
        """Rank `ids` where a store has found some and told their `cosines`; the vectors held here are not used.

        Words count exactly, over all of `ids`. Tools without a cosine are answered only if they carry a word of
        `text`, and by their words alone. With a cosine for each of `ids` this is `rank`. `part_cosines` are those with
        the vectors of `parts`, in their order; a tool without them counts by the whole request.
        """
        scope = self._scope(ids)
        rows = scope.rows
        if not len(rows) or limit < 1:
            return []
        told = [None if (e := self._entries[r]) is None else cosines.get(e.tool_id) for r in rows.tolist()]
        cosine = np.array([np.nan if c is None else c for c in told], np.float64)
        known = ~np.isnan(cosine)
        said = _words(text, parts, scope) if dense_weight < 1.0 or not known.any() else _silence(len(rows))
        if not known.any():
            return self._best(rows, said.strength, said, None, limit, said.carried)
        if part_cosines:
            cosine = blended(cosine, self._told(part_cosines, rows, cosine))
        low = float(cosine[known].min())
        filled = np.where(known, cosine, low)
        high = float(filled.max())
        dense = (filled - low) / (high - low) if high > low else np.zeros_like(filled)
        # all were asked for: these are not in the store yet, which says nothing against them
        dense = np.where(known, dense, said.strength)
        fused = hybrid(dense, said.strength, dense_weight)
        return self._best(rows, fused, said, cosine, limit, known | said.carried)

    def learn(self, tool_id: str, digest: str, vector: Vector) -> None:
        """Keep the vector of an entry that is held with this `digest`; another digest is ignored."""
        row = self._row_of.get(tool_id)
        entry = None if row is None else self._entries[row]
        if row is not None and entry is not None and entry.digest == digest and self._dimension:
            self._version += 1
            self._vectors[row] = vector
            self._has_vector[row] = True
            self._signatures.changed(row)

    def without_vector(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are held without a vector."""
        rows = self._scope(ids).rows
        lacking = (self._entries[row] for row in rows[~self._has_vector[rows]].tolist())
        return [e.tool_id for e in lacking if e is not None]

    def _changed(self) -> None:
        self._version += 1
        self._scopes.clear()

    def _scope(self, ids: Iterable[str]) -> LexicalScope:
        """The rows of `ids`; those of a frozen set are remembered until the index changes."""
        found = self._scopes.get(ids)
        if found is None:
            found = self._lexical.scope(self._rows(ids))
            self._scopes.put(ids, found)
        return found

    def _rows(self, ids: Iterable[str]) -> Rows:
        rows: Rows = np.unique(np.fromiter(map(self._row_of.get, ids, repeat(-1)), np.int64))
        return rows[1:] if len(rows) and rows[0] < 0 else rows

    def _promising(self, vectors: Sequence[Vector], rows: Rows, said: Words, limit: int) -> Rows:
        """The places of `rows` that a ranking of very many comes down to: those that carry the words best, and by
        their signatures those likest to each vector and those least like it. Ties are kept: it is the same choice
        wherever the rows lie."""
        count = max(self._least, 4 * limit)
        known = self._has_vector[rows]
        if count >= len(rows) or not known.any():
            return np.arange(len(rows))
        chosen = said.carried & (said.strength >= _nth_largest(said.strength, count))
        self._signatures.follow(self._vectors[: len(self._entries)])
        for vector in vectors:
            apart = self._signatures.distances(vector)[rows]
            counted = np.bincount(apart[known]).cumsum()
            near = np.searchsorted(counted, count)
            far = np.searchsorted(counted, counted[-1] - min(count, _FARTHEST), side="right")
            chosen |= known & ((apart <= near) | (apart >= far))
        return np.flatnonzero(chosen)

    def _cosines(self, vectors: Sequence[Vector], rows: Rows) -> list[Scores]:
        """The cosine of each row with each of `vectors`; without meaning where a row has no vector."""
        # einsum adds up each row by itself, in one order, wherever the row lies; a matrix product may not
        used = self._vectors[: len(self._entries)]
        if len(rows) < _GATHER_BELOW * len(used):
            gathered = used[rows]
            return [np.einsum("ij,j->i", gathered, v).astype(np.float64) for v in vectors]
        return [np.einsum("ij,j->i", used, v)[rows].astype(np.float64) for v in vectors]

    def _told(self, part_cosines: Mapping[str, tuple[float, ...]], rows: Rows, whole: Scores) -> list[Scores]:
        """What a store told of each part, by the rows; the whole's where it told nothing."""
        count = max(map(len, part_cosines.values()), default=0)
        table = np.repeat(whole[:, None], count, axis=1)
        for at, row in enumerate(rows.tolist()):
            entry = self._entries[row]
            own = () if entry is None else part_cosines.get(entry.tool_id, ())
            if len(own) == count:
                table[at] = own
        return list(table.T)

    def _best(
        self,
        rows: Rows,
        scores: Scores,
        said: Words,
        cosine: Scores | None,
        limit: int,
        wanted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None = None,
    ) -> list[Ranked]:
        chosen = np.arange(len(rows)) if wanted is None else np.flatnonzero(wanted)
        if limit < len(chosen):
            # keep every tie of the last place: ids decide among them below
            among = scores[chosen]
            floor = np.partition(among, len(among) - limit)[len(among) - limit]
            chosen = chosen[among >= floor]
        ranked = []
        for i in chosen.tolist():
            entry = self._entries[int(rows[i])]
            if entry is None:
                continue
            dense = None if cosine is None or np.isnan(cosine[i]) else float(cosine[i])
            ranked.append(Ranked(entry, float(scores[i]), float(said.share[i]), dense))
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
        self._signatures = Signatures(self._dimension)
        self._row_of = {e.tool_id: row for row, e in enumerate(entries)}


def _words(text: str, parts: Sequence[Part], scope: LexicalScope) -> Words:
    whole, *of_parts = (scope.score(query_terms(t)) for t in (text, *(p.text for p in parts)))
    return words(whole, of_parts)


def _nth_largest(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]], n: int) -> float:
    return float(np.partition(numbers, len(numbers) - n)[len(numbers) - n])


def _silence(size: int) -> Words:
    nothing = np.zeros(size, np.float64)
    return Words(nothing, nothing, np.zeros(size, np.bool_))
