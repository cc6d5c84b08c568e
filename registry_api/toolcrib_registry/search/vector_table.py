"""The vectors of a replica's snapshot: one contiguous matrix, in memory.

Room for all of it is reserved once; a page of it takes memory when the first vector is written to it, and nothing is
ever copied to make room. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolcrib_registry.search.entry import Vector, cosines
from toolcrib_registry.search.lexical import Rows, Scores

RESIDENT_BYTES = 256 << 20
"""Room for 174,000 vectors of 384 numbers."""
_GATHER_BELOW = 0.15
"""Gather the vectors that are asked for before multiplying when they are less than this share of all; else multiply
all. Both give the same numbers; this is about speed alone."""


class VectorTable:
    """Numbered rows, each with a vector or without; one without takes no room for it."""

    def __init__(self, dimension: int, resident_bytes: int = RESIDENT_BYTES) -> None:
        self.room = resident_bytes // (4 * dimension) if dimension else sys.maxsize
        """How many vectors can be held; without end where there are none."""
        # not zeros: what is not written to takes no memory
        self._matrix: Vector = np.empty((self.room if dimension else 0, dimension), np.float32)
        self._slot_of = np.full(256, -1, np.int32)
        self._free: list[int] = []
        self._top = 0

    def __len__(self) -> int:
        return self._top - len(self._free)

    def put(self, row: int, vector: Vector) -> bool:
        """Hold the vector of `row`; False, if there is no room."""
        if row >= len(self._slot_of):
            more = np.full(max(row + 1 - len(self._slot_of), len(self._slot_of)), -1, np.int32)
            self._slot_of = np.concatenate([self._slot_of, more])
        slot = int(self._slot_of[row])
        if slot < 0:
            if not self._free and self._top >= self.room:
                return False
            if self._free:
                slot = self._free.pop()
            else:
                slot, self._top = self._top, self._top + 1
            self._slot_of[row] = slot
        self._matrix[slot] = vector
        return True

    def drop(self, row: int) -> None:
        """Forget the vector of `row`, if it has one."""
        if row < len(self._slot_of) and (slot := int(self._slot_of[row])) >= 0:
            self._slot_of[row] = -1
            self._free.append(slot)

    def has(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether each of `rows` has a vector."""
        held: NDArray[np.bool_] = self._slots(rows) >= 0
        return held

    def cosines(self, rows: Rows, vectors: Sequence[Vector]) -> list[Scores]:
        """For each of `vectors` the cosine of each of `rows` with it; NaN for a row without a vector."""
        slots = self._slots(rows)
        held = slots >= 0
        whole = bool(held.all())
        own, used = slots if whole else slots[held], self._matrix[: self._top]
        few = len(own) < _GATHER_BELOW * len(used)
        known = cosines(used[own], vectors) if few else [every[own] for every in cosines(used, vectors)]
        if whole:
            return known
        found = [np.full(len(rows), np.nan) for _ in vectors]
        for mine, numbers in zip(found, known, strict=True):
            mine[held] = numbers
        return found

    def renumber(self, rows: Rows) -> None:
        """The rows `rows` are 0, 1, 2 … from now on; no other has a vector."""
        slots = self._slots(rows)
        self._slot_of = np.full(max(256, len(rows)), -1, np.int32)
        self._slot_of[: len(rows)] = slots

    def _slots(self, rows: Rows) -> NDArray[np.int32]:
        if not len(rows) or rows.max() < len(self._slot_of):
            return self._slot_of[rows]
        known = rows < len(self._slot_of)
        slots = np.full(len(rows), -1, np.int32)
        slots[known] = self._slot_of[rows[known]]
        return slots
