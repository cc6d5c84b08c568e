"""The table of sizes: the same requests everywhere, each in a catalog that holds what answers it."""

from collections.abc import Iterator
from typing import Any

import pytest

import bench_search
from hash_embedder import HashEmbedder

SUBSET = bench_search.BENCH / "search" / "subset"


@pytest.fixture(scope="module")
def modules() -> Iterator[list[Any]]:
    with bench_search.loaded("sizes", "folder", "vectors") as found:
        yield found


def test_every_request_is_asked_once_at_every_size_among_tools_that_answer_it(modules: list[Any]) -> None:
    sizes, folder, _ = modules
    whole = folder.pooled(folder.read(SUBSET, limit=30))

    for size in (100, 1_000):
        made = sizes.catalogs(whole, whole.queries, size)

        assert [q.text for c in made for q in c.queries] == [q.text for q in whole.queries]
        for catalog in made:
            ids = {t.tool_id for t in catalog.tools}
            assert len(ids) == len(catalog.tools) == size
            assert all(ids >= q.sought.places.keys() for q in catalog.queries)
    assert len(made) == 1


@pytest.mark.anyio
async def test_more_hits_hold_more_right_tools_and_a_slow_search_is_told_beside_its_encoding(
    modules: list[Any],
) -> None:
    sizes, folder, vectors = modules
    whole = folder.pooled(folder.read(SUBSET, limit=20))

    found = await sizes.measured(
        sizes.catalogs(whole, whole.queries, 200), vectors.Remembered([HashEmbedder()], None)
    )

    assert 0 < found["hit@1"] <= found["hit@3"] <= found["hit@5"] <= found["hit@10"] <= 1
    assert 0 < found["encoding_p50"] <= found["p50"] <= found["p95"] <= found["p99"]
    assert found["ratio"] == pytest.approx(found["p50"] / found["encoding_p50"])
    assert found["requests"] == 100
