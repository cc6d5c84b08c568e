"""Catalogs that are grown for the scale benchmark, and the load generator's turns."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

import bench_search
from toolcrib_registry.search.entry import IndexEntry


@pytest.fixture
def grown() -> Iterator[ModuleType]:
    with bench_search.loaded("grown") as (module,):
        yield module


def test_a_grown_catalog_is_the_same_every_time_with_tools_that_differ(grown: ModuleType) -> None:
    real = [
        IndexEntry(
            tool_id=f"x/{i}", digest="", namespace="x", name=f"tool{i}", server=f"s{i}",
            description=f"Does {i}. Then more of {i}.", parameters={"one": "a", "two": f"b{i}"},
        )
        for i in range(6)
    ]  # fmt: skip
    vectors = np.eye(6, 16, dtype=np.float32)

    entries, rows = grown.grown(real, vectors, 200)
    again, same = grown.grown(real, vectors, 200)

    assert entries == again
    assert np.array_equal(rows, same)
    assert len({e.tool_id for e in entries}) == len({e.name for e in entries}) == 200
    assert [e.description for e in entries[:6]] == [e.description for e in real]
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    carrying = {s: sum(f"{s}:use" in e.scopes for e in entries) for s in grown.SHARES}
    assert carrying == {"all": 200, "tenth": 20, "hundredth": 2}
