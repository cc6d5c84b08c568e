"""Signatures: what their distance is, and that it is of the latest vectors."""

from __future__ import annotations

import numpy as np
import pytest

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.signatures import Signatures


def vectors(count: int, dimension: int, seed: int = 1) -> Vector:
    """Unit vectors as rows."""
    made = np.random.default_rng(seed).standard_normal((count, dimension), np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


def levels(rows: Vector) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Each number as -3, -1, 1 or 3."""
    large = np.abs(rows) > 1 / np.sqrt(rows.shape[1])
    return np.where(rows > 0, 1, -1) * np.where(large, 3, 1)


@pytest.mark.parametrize(("count", "dimension"), [(50, 384), (7, 5), (20, 100), (33_000, 70), (3, 1_024)])
def test_the_distance_is_the_product_of_what_two_bits_can_tell(count: int, dimension: int) -> None:
    rows, query = vectors(count, dimension), vectors(1, dimension, 2)
    signatures = Signatures(dimension)
    signatures.follow(rows)

    product = levels(rows) @ levels(query)[0]

    assert np.array_equal(9 * dimension - 2 * signatures.distances(query[0]), product)


def test_new_and_changed_rows_are_followed() -> None:
    rows, query = vectors(40, 64), vectors(1, 64, 2)[0]
    signatures = Signatures(64)
    signatures.follow(rows[:10])
    rows[3] = vectors(1, 64, 3)[0]
    signatures.changed(3)
    signatures.changed(30)  # not followed yet
    signatures.follow(rows)

    fresh = Signatures(64)
    fresh.follow(rows)

    assert np.array_equal(signatures.distances(query), fresh.distances(query))
