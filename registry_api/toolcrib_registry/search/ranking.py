"""The ranking itself: exact, in process, over exactly the tools a caller may see.

`search.fusion` says how words and cosines become a score. Everything that enters it is computed from the visible
documents and the query alone, each document's part independently of where it lies in memory, so the answer is
byte-identical to the same ranking run over an index of the visible tools alone.

It is the registry's only ranking, over a replica's own snapshot whatever the store, and the oracle of the tests. Not
thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from toolcrib_registry.search.document import Document
from toolcrib_registry.search.entry import Clause, IndexEntry, Vector, cosines
from toolcrib_registry.search.fusion import DENSE_WEIGHT as DENSE_WEIGHT
from toolcrib_registry.search.fusion import Words, blended, hybrid, min_max, words
from toolcrib_registry.search.lexical import LexicalIndex, LexicalScope, Rows, Scores
from toolcrib_registry.search.prepared_views import PreparedViews
from toolcrib_registry.search.text import query_terms
from toolcrib_registry.search.vector_table import RESIDENT_BYTES, VectorTable

_UNLIKE = 0.0
"""Where only the nearest of many tools are known: about how near the least similar is, which sets the scale."""
_NOTHING_TOLD: Mapping[str, Vector] = {}


@dataclass(frozen=True, slots=True)
class Ranked:
    """One tool of a ranking, and of an answer."""

    entry: IndexEntry
    score: float
    """For ordering within one ranking only; in the mode `compat` the seed formula's value."""
    lexical: float
    """BM25 as a share of the most it could be for this query, 0 to 1. For a request of several parts half of it is
    the whole's share and half that of the part that the tool suits best."""
    dense: float | None
    """Cosine, for a request of several parts blended likewise; None without a query vector or without a vector of
    the tool."""
    confidence: float | None = None
    """Of an answer: the probability that it answers the request, 0 to 1; None where there were no words."""
    why: str | None = None
    """Of an answer: which words stand where, and how near the meaning is: evidence of this tool alone."""

    @property
    def tool_id(self) -> str:
        """`namespace/objectname`."""
        return self.entry.tool_id


class RankingIndex:
    """Entries, their terms and (where known) vectors, built up and torn down one by one."""

    def __init__(self, dimension: int = 0, resident_bytes: int = RESIDENT_BYTES) -> None:
        """For vectors of `dimension` numbers, holding at most `resident_bytes` of them."""
        self._dimension, self._resident_bytes = dimension, resident_bytes
        self._version = 0
        self._scopes = PreparedViews()
        self._lexical = LexicalIndex()
        self._row_of: dict[str, int] = {}
        self._entries: list[IndexEntry | None] = []
        self._vectors = VectorTable(dimension, resident_bytes)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def version(self) -> int:
        """Another one after every change, also of a vector; never the same again."""
        return self._version

    @property
    def complete(self) -> bool:
        """Whether every entry has its vector here."""
        return not self._dimension or len(self._vectors) == len(self._row_of)

    @property
    def room(self) -> int:
        """How many vectors can be held."""
        return self._vectors.room

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

    def put(self, doc: Document, vector: Vector | None = None) -> None:
        """Add `doc`, or put it in the place of the entry with the same id (and of its vector)."""
        self.discard(doc.entry.tool_id)
        self._changed()
        row = self._lexical.add(doc)
        self._entries.append(doc.entry)
        self._row_of[doc.entry.tool_id] = row
        if vector is not None and self._dimension:
            self._vectors.put(row, vector)

    def discard(self, tool_id: str) -> None:
        """Forget `tool_id`; nothing happens if it is not held."""
        row = self._row_of.pop(tool_id, None)
        if row is None:
            return
        self._changed()
        self._entries[row] = None
        self._vectors.drop(row)
        if len(self._entries) > 2 * len(self._row_of) + 1024:
            self._compact()

    def learn(self, tool_id: str, digest: str, vector: Vector) -> None:
        """Keep the vector of an entry that is held with this `digest`, if there is room; another digest is ignored."""
        row = self._row_of.get(tool_id)
        entry = None if row is None else self._entries[row]
        if (
            row is not None
            and entry is not None
            and entry.digest == digest
            and self._vectors.put(row, vector)
        ):
            self._version += 1

    def unlearn(self) -> None:
        """Forget all vectors."""
        if len(self._vectors):
            self._version += 1
            self._vectors = VectorTable(self._dimension, self._resident_bytes)

    def without_vector(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are held without a vector."""
        if self.complete:
            return []
        rows = self._scope(ids).rows
        lacking = (self._entries[row] for row in rows[~self._vectors.has(rows)].tolist())
        return [e.tool_id for e in lacking if e is not None]

    def rank(
        self,
        text: str,
        vector: Vector | None,
        ids: Iterable[str],
        *,
        limit: int,
        dense_weight: float = DENSE_WEIGHT,
        parts: Sequence[Clause] = (),
        told: Mapping[str, Vector] = _NOTHING_TOLD,
        reach: float | None = None,
    ) -> list[Ranked]:
        """The best `limit` of `ids` (unknown ones are ignored), best first, ties by tool id.

        With a vector every tool that has one is ranked; one without, or all where there is no vector, only if it carries a
        word of `text`. `dense_weight` 1 ranks by cosine alone. `parts` are the things that `text` asks for, where there are
        several.

        A tool that has no vector is ranked by its words alone. `told` are vectors that are not held here, of the versions
        that are. With `reach` these were the nearest, and whatever has no vector is no nearer than that: it is ranked as if
        it were so near.
        """
        scope = self._scope(ids)
        rows = scope.rows
        if not len(rows) or limit < 1:
            return []
        said = _words(text, parts, scope) if dense_weight < 1.0 or vector is None else _silence(len(rows))
        if vector is None or not self._dimension:
            return self._best(rows, said.strength, said, None, limit, said.carried)
        vectors = [vector, *(p.vector for p in parts if p.vector is not None)]
        found = self._vectors.cosines(rows, vectors)
        if told:
            self._hear(told, rows, vectors, found)
        cosine = blended(found[0], found[1:])
        known = ~np.isnan(cosine)
        if known.all() and reach is None:
            fused = hybrid(min_max(cosine), said.strength, dense_weight)
            return self._best(rows, fused, said, cosine, limit)
        low = float(cosine[known].min()) if known.any() else 0.0
        if reach is not None:
            low = min(low, _UNLIKE)
        filled = np.where(known, cosine, low if reach is None else reach)
        high = float(filled.max())
        dense = (filled - low) / (high - low) if high > low else np.zeros_like(filled)
        if reach is None:
            # not in the index yet, which says nothing against a tool
            dense = np.where(known, dense, said.strength)
        fused = hybrid(dense, said.strength, dense_weight)
        return self._best(rows, fused, said, cosine, limit, known | said.carried)

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

    def _hear(
        self, told: Mapping[str, Vector], rows: Rows, vectors: Sequence[Vector], found: list[Scores]
    ) -> None:
        """Put the cosines of what was told in their places of `found`."""
        own = {row: v for i, v in told.items() if (row := self._row_of.get(i)) is not None}
        places = np.flatnonzero(np.isin(rows, list(own)))
        if len(places):
            heard = cosines(np.stack([own[row] for row in rows[places].tolist()]), vectors)
            for mine, numbers in zip(found, heard, strict=True):
                mine[places] = numbers

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
        self._vectors.renumber(living)
        entries = [e for e in self._entries if e is not None]
        self._entries = list(entries)
        self._row_of = {e.tool_id: row for row, e in enumerate(entries)}


def _words(text: str, parts: Sequence[Clause], scope: LexicalScope) -> Words:
    whole, *of_parts = (scope.score(query_terms(t)) for t in (text, *(p.text for p in parts)))
    return words(whole, of_parts)


def _silence(size: int) -> Words:
    nothing = np.zeros(size, np.float64)
    return Words(nothing, nothing, np.zeros(size, np.bool_))
