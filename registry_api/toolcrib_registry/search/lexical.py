"""BM25 over the documents a caller may see, and over nothing else, raised by how much of a name the request says.

Document frequencies and the mean length are counted over the given rows at query time, so a score says nothing
about documents outside them and equals, bit for bit, the score in an index that holds only those rows.

Postings are append-only and rows are never reused: a dropped row is simply never asked for again. Once dead rows
outnumber the living, the postings are written again. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib_registry.search.document import Document
from toolcrib_registry.search.postings import Postings

K1 = 1.5
B = 0.6
"""Quality is flat around both (development data)."""
NAME_BONUS = 0.4
"""How much more the words count of a tool whose name the request says in full: a request that has all of
`list_issues` in it means that tool rather than one that only speaks of issues (1.3 points of nDCG@5 by words)."""

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]

_FEW = 64
"""What a term adds to fewer rows is not worth remembering."""
_TERM_BYTES = 128
"""A row: what is remembered of terms for one view."""


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """The score of each row asked for, and the most that any document could have."""

    scores: Scores
    ceiling: float
    """The score of a document that is full of every word of the query and has no other in its name; 0 for a query
    without words."""


class LexicalIndex:
    """An inverted index over numbered rows."""

    def __init__(self) -> None:
        self._postings = Postings()
        self._lengths: Scores = np.zeros(256, np.float64)
        self._next = 0

    def add(self, doc: Document) -> int:
        """Index `doc` and return its row."""
        row = self._next
        self._next += 1
        if row >= len(self._lengths):
            self._lengths = np.concatenate([self._lengths, np.zeros(len(self._lengths), np.float64)])
        self._lengths[row] = doc.length
        words = len(doc.named)
        self._postings.add(row, ((t, f, words if t in doc.named else 0) for t, f in doc.frequencies.items()))
        return row

    def compact(self, living: Rows) -> None:
        """Keep only the rows `living` (ascending), numbered from 0 in that order."""
        renumbered = np.full(self._next, -1, np.int64)
        renumbered[living] = np.arange(len(living))
        self._postings.compact(renumbered)
        lengths = np.zeros(max(256, len(living)), np.float64)
        lengths[: len(living)] = self._lengths[living]
        self._lengths = lengths
        self._next = len(living)

    def scope(self, rows: Rows) -> LexicalScope:
        """`rows` (distinct) ready to be scored; good until something is added or the index is compacted."""
        return LexicalScope(self._postings, self._lengths, self._next, rows)

    def score(self, query: Sequence[str], rows: Rows) -> LexicalScores:
        """BM25 of `rows` for the distinct terms of `query`."""
        return self.scope(rows).score(query)


@dataclass(frozen=True, slots=True)
class _Added:
    """What one term does to the rows of a view."""

    most: float
    """The most that it can add to a row."""
    where: Rows
    """The places of the rows that have it, and"""
    added: Scores
    """what it adds to each."""
    named: Rows
    """The places of the rows that have it in their name, and"""
    raised: Scores
    """by how much of itself it raises the score of each."""

    @property
    def weight(self) -> int:
        """Bytes."""
        return self.where.nbytes + self.added.nbytes + self.named.nbytes + self.raised.nbytes


class LexicalScope:
    """The rows of one view, with what is the same for every query: how long they are and where each lies.

    What a term adds to the rows is remembered as well, within a bound: the terms that cost most are in many queries.
    """

    __slots__ = ("_added", "_bound", "_damping", "_fixed", "_kept", "_position", "_postings", "rows")

    def __init__(self, postings: Postings, lengths: Scores, size: int, rows: Rows) -> None:
        self.rows = rows
        self._postings = postings
        total = len(rows)
        own = lengths[rows]
        mean = float(own.sum()) / total if total else 0.0
        self._damping: Scores = K1 * (1.0 - B + B * (own / mean)) if mean else np.full(total, K1)
        self._position = np.full(size, -1, np.int32)
        self._position[rows] = np.arange(total)
        self._fixed = rows.nbytes + self._damping.nbytes + self._position.nbytes
        self._added: dict[str, _Added] = {}
        self._kept, self._bound = 0, _TERM_BYTES * total

    @property
    def weight(self) -> int:
        """Bytes that it takes now."""
        return self._fixed + self._kept

    def score(self, query: Sequence[str]) -> LexicalScores:
        """BM25 of the rows for the distinct terms of `query`, raised by the share of the name that they cover."""
        scores = np.zeros(len(self.rows), np.float64)
        if not len(self.rows) or not query:
            return LexicalScores(scores, 0.0)
        raised = np.ones(len(self.rows), np.float64)
        ceiling = 0.0
        for term in query:
            found = self._of(term)
            ceiling += found.most
            if len(found.where):
                scores[found.where] += found.added
            if len(found.named):
                raised[found.named] += found.raised
        scores *= raised
        return LexicalScores(scores, ceiling * (1.0 + NAME_BONUS))

    def _of(self, term: str) -> _Added:
        found = self._added.pop(term, None)
        if found is None:
            found = self._made(term)
            if len(found.where) < _FEW or found.weight > self._bound:
                return found
            self._kept += found.weight
            while self._kept > self._bound:
                self._kept -= self._added.pop(next(iter(self._added))).weight
        self._added[term] = found
        return found

    def _made(self, term: str) -> _Added:
        rows, frequencies, shares = self._postings.of(term)
        places = self._position[rows]
        visible = places >= 0
        where, frequency, share = places[visible].astype(np.int64), frequencies[visible], shares[visible]
        seen = len(where)
        most = math.log(1.0 + (len(self.rows) - seen + 0.5) / (seen + 0.5)) * (K1 + 1.0)
        in_name = share > 0.0
        return _Added(
            most,
            where,
            most * (frequency / (frequency + self._damping[where])),
            where[in_name],
            NAME_BONUS * share[in_name],
        )
