"""BM25 over the documents a caller may see, and over nothing else.

Document frequencies and the mean length are counted over the given rows at query time, so a score says nothing
about documents outside them and equals, bit for bit, the score in an index that holds only those rows.

Postings are append-only and rows are never reused: a dropped row is simply never asked for again. Once dead rows
outnumber the living, the postings are written anew. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib_registry.search.document import Document

K1 = 1.2
B = 0.5

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """BM25 of each row asked for, and the most that any document could have scored."""

    scores: Scores
    ceiling: float
    """The score of a document that is full of every word of the query; 0 for a query without words."""


class _Postings:
    """The rows that hold one term, with its weighted frequency in each."""

    __slots__ = ("_arrays", "frequencies", "rows")

    def __init__(self) -> None:
        self.rows = array("q")
        self.frequencies = array("d")
        self._arrays: tuple[Rows, Scores] | None = None

    def append(self, row: int, frequency: float) -> None:
        self.rows.append(row)
        self.frequencies.append(frequency)
        self._arrays = None

    def arrays(self) -> tuple[Rows, Scores]:
        if self._arrays is None:
            self._arrays = np.array(self.rows, np.int64), np.array(self.frequencies, np.float64)
        return self._arrays


class LexicalIndex:
    """An inverted index over numbered rows."""

    def __init__(self) -> None:
        self._postings: dict[str, _Postings] = {}
        self._lengths: Scores = np.zeros(256, np.float64)
        self._next = 0

    @property
    def next_row(self) -> int:
        """One more than the highest row that was ever added."""
        return self._next

    def add(self, doc: Document) -> int:
        """Index `doc` and return its row."""
        row = self._next
        self._next += 1
        if row >= len(self._lengths):
            self._lengths = np.concatenate([self._lengths, np.zeros(len(self._lengths), np.float64)])
        self._lengths[row] = doc.length
        for term, frequency in doc.frequencies.items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings()
            postings.append(row, frequency)
        return row

    def compact(self, living: Rows) -> None:
        """Keep only the rows `living` (ascending), numbered from 0 in that order."""
        renumbered = np.full(self._next, -1, np.int64)
        renumbered[living] = np.arange(len(living))
        kept: dict[str, _Postings] = {}
        for term, postings in self._postings.items():
            rows, frequencies = postings.arrays()
            new = renumbered[rows]
            alive = new >= 0
            if alive.any():
                shrunk = kept[term] = _Postings()
                shrunk.rows = array("q", new[alive].tolist())
                shrunk.frequencies = array("d", frequencies[alive].tolist())
        self._postings = kept
        lengths = np.zeros(max(256, len(living)), np.float64)
        lengths[: len(living)] = self._lengths[living]
        self._lengths = lengths
        self._next = len(living)

    def score(self, query: Sequence[str], rows: Rows) -> LexicalScores:
        """BM25 of `rows` for the distinct terms of `query`."""
        scores = np.zeros(len(rows), np.float64)
        total = len(rows)
        if not total or not query:
            return LexicalScores(scores, 0.0)
        lengths = self._lengths[rows]
        mean = float(lengths.sum()) / total
        damping = K1 * (1.0 - B + B * (lengths / mean)) if mean else np.full(total, K1)
        position = np.full(self._next, -1, np.int64)
        position[rows] = np.arange(total)

        ceiling = 0.0
        for term in query:
            postings = self._postings.get(term)
            seen = 0
            if postings is not None:
                all_rows, frequencies = postings.arrays()
                where = position[all_rows]
                visible = where >= 0
                where = where[visible]
                seen = len(where)
            idf = math.log(1.0 + (total - seen + 0.5) / (seen + 0.5))
            ceiling += idf * (K1 + 1.0)
            if seen:
                frequency = frequencies[visible]
                scores[where] += idf * (K1 + 1.0) * (frequency / (frequency + damping[where]))
        return LexicalScores(scores, ceiling)
