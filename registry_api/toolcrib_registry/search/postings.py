"""Which rows hold a term, how often, and whether in their name: columns of numbers, 18 bytes for each term of a row.

A term is known by its hash (64 bits, another one in each process), so its text takes no memory; a million terms meet
with a probability of one in 36 million. What was added lately stands in small columns of its own, so that one change
does not copy all. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]

_SHARE = 16
"""The recent columns are joined with the others once they are more than one in so many of them."""
_LEAST = 4_096
"""Terms of rows that recent columns may have in any case."""


class Found(NamedTuple):
    """The rows of one term, in the order in which they were added."""

    rows: Rows
    frequencies: Numbers
    shares: Numbers
    """What part of its name the term is, 0 where it is not in it."""


class _Columns(NamedTuple):
    """Sorted by key, those of one key in the order in which they were added."""

    keys: NDArray[np.int64]
    rows: NDArray[np.int32]
    frequencies: NDArray[np.float32]
    """Multiples of a quarter: exact in 32 bits."""
    words: NDArray[np.uint16]
    """Of how many the name consists that the term is in; 0: it is in none."""

    def joined(self, later: _Columns) -> _Columns:
        """These and `later`, which was added afterwards."""
        at = np.searchsorted(self.keys, later.keys, side="right")
        return _Columns(
            np.insert(self.keys, at, later.keys),
            np.insert(self.rows, at, later.rows),
            np.insert(self.frequencies, at, later.frequencies),
            np.insert(self.words, at, later.words),
        )

    def at(self, places: NDArray[np.bool_] | NDArray[np.int64] | slice) -> _Columns:
        """Those at some places."""
        return _Columns(self.keys[places], self.rows[places], self.frequencies[places], self.words[places])

    def of(self, key: int) -> _Columns:
        """Those of one key."""
        start, end = np.searchsorted(self.keys, key), np.searchsorted(self.keys, key, side="right")
        return self.at(slice(int(start), int(end)))


def _empty() -> _Columns:
    return _Columns(
        np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.uint16)
    )


class Postings:
    """The terms of numbered rows."""

    def __init__(self) -> None:
        self._main, self._recent = _empty(), _empty()
        self._clear()

    def _clear(self) -> None:
        self._keys, self._rows = array("q"), array("i")
        self._frequencies, self._words = array("f"), array("H")

    def __len__(self) -> int:
        return len(self._main.keys) + len(self._recent.keys) + len(self._keys)

    def add(self, row: int, terms: Iterable[tuple[str, float, int]]) -> None:
        """Add the terms of a row: each with its frequency, and the number of words of the name that it is in (0: of none)."""
        for term, frequency, words in terms:
            self._keys.append(hash(term))
            self._rows.append(row)
            self._frequencies.append(frequency)
            self._words.append(words)

    def of(self, term: str) -> Found:
        """The rows that hold `term`."""
        self.settle()
        key = hash(term)
        both, recent = self._main.of(key), self._recent.of(key)
        if len(recent.keys):
            both = both.joined(recent)
        in_name = both.words > 0
        shares = np.zeros(len(both.keys), np.float64)
        shares[in_name] = 1.0 / both.words[in_name]
        return Found(both.rows.astype(np.int64), both.frequencies.astype(np.float64), shares)

    def settle(self) -> None:
        """Take in what was added: the next question does it otherwise."""
        if not self._keys:
            return
        keys = np.array(self._keys, np.int64)
        order = np.argsort(keys, kind="stable")
        rows, words = np.array(self._rows, np.int32), np.array(self._words, np.uint16)
        added = _Columns(keys, rows, np.array(self._frequencies, np.float32), words).at(order)
        self._clear()
        self._recent = self._recent.joined(added)
        if len(self._recent.keys) > max(_LEAST, len(self._main.keys) // _SHARE):
            self._main, self._recent = self._main.joined(self._recent), _empty()

    def compact(self, renumbered: Rows) -> None:
        """Give each row its number in `renumbered`; those with -1 go."""
        self.settle()
        whole = self._main.joined(self._recent)
        rows = renumbered[whole.rows]
        kept = whole._replace(rows=rows.astype(np.int32)).at(rows >= 0)
        self._main, self._recent = kept, _empty()
