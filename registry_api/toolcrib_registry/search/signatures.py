"""Two bits for each number of a vector: which of very many vectors are worth an exact look, sixteen times cheaper.

A number counts 1, or 3 where it is larger than a vector's numbers are on average, for or against: `2·coarse + fine`
with two signs. How far two signatures are from each other is a whole number, the same wherever a row lies and whatever
else is held. Among 100,000 tools the ten nearest were always among the nearest 256 by it, the hundred nearest among the
nearest 2,048.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from toolcrib_registry.search.entry import Vector

Bits: TypeAlias = NDArray[np.uint64]
Distances: TypeAlias = NDArray[np.int32]

_BLOCK = 16_384
"""Rows compared at a time: what is in between stays in the processor's cache."""
_BYTE = 3
"""Counts of so many words of 64 bits fit into one byte."""


class Signatures:
    """The signatures of numbered rows. Not thread-safe: the owner holds a lock."""

    def __init__(self, dimension: int) -> None:
        self._words = -(-dimension // 64)
        self._large = 1.0 / math.sqrt(dimension) if dimension else 0.0
        self._coarse, self._fine = self._room(0), self._room(0)
        self._count = 0
        self._stale: set[int] = set()

    def changed(self, row: int) -> None:
        """The vector of a row that may have been followed already is another one now."""
        if row < self._count:
            self._stale.add(row)

    def follow(self, vectors: Vector) -> None:
        """Take in the rows of `vectors` that are new or changed."""
        for row in self._stale:
            self._put(row, vectors[row : row + 1])
        self._stale.clear()
        if len(vectors) > self._coarse.shape[1]:
            more = self._room(2 * len(vectors) - self._coarse.shape[1])
            self._coarse = np.concatenate([self._coarse, more], axis=1)
            self._fine = np.concatenate([self._fine, more], axis=1)
        for start in range(self._count, len(vectors), _BLOCK):
            self._put(start, vectors[start : start + _BLOCK])
        self._count = len(vectors)

    def distances(self, vector: Vector) -> Distances:
        """How far each row is from `vector`; comparable for one vector only."""
        (coarse,), (fine,) = (bits.T for bits in self._packed(vector[None, :]))
        found = np.zeros(self._count, np.int32)
        for start in range(0, self._count, _BLOCK):
            part = slice(start, min(start + _BLOCK, self._count))
            total = found[part]
            for weight, rows, own in (
                (4, self._coarse, coarse),
                (2, self._coarse, fine),
                (2, self._fine, coarse),
                (1, self._fine, fine),
            ):
                for first in range(0, self._words, _BYTE):
                    words = range(first, min(first + _BYTE, self._words))
                    apart = np.bitwise_count(rows[first, part] ^ own[first])
                    for word in words[1:]:
                        apart += np.bitwise_count(rows[word, part] ^ own[word])
                    total += np.multiply(apart, weight, dtype=np.int32)
        return found

    def _put(self, start: int, vectors: Vector) -> None:
        part = slice(start, start + len(vectors))
        self._coarse[:, part], self._fine[:, part] = self._packed(vectors)

    def _packed(self, vectors: Vector) -> tuple[Bits, Bits]:
        positive = vectors > 0
        return self._bits(positive), self._bits(positive == (np.abs(vectors) > self._large))

    def _bits(self, flags: NDArray[np.bool_]) -> Bits:
        packed = np.packbits(flags, axis=1)
        padded = np.zeros((len(flags), 8 * self._words), np.uint8)
        padded[:, : packed.shape[1]] = packed
        return padded.view(np.uint64).T

    def _room(self, count: int) -> Bits:
        return np.zeros((self._words, count), np.uint64)
