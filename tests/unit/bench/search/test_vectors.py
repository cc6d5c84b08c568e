"""Vectors of the search benchmark: encoded once a model and text, whatever becomes of the file."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bench_search
from hash_embedder import HashEmbedder
from toolcrib_registry.search.document import combined, dense_texts
from toolcrib_registry.search.entry import IndexEntry
from vector_of import vector_of

pytestmark = pytest.mark.anyio


class Counting(HashEmbedder):
    """Says what it was asked to encode."""

    def __init__(self) -> None:
        super().__init__(16)
        self.asked: list[str] = []

    async def embed_request(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return await super().embed_request(texts)

    async def embed_documents(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return await super().embed_documents(texts)


@pytest.fixture(scope="module")
def vectors() -> Iterator[Any]:
    with bench_search.loaded("vectors") as (module,):
        yield module


async def test_a_text_is_encoded_once_and_kept_for_the_next_run(vectors: Any, tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    texts = ["read a file", "write a file", "read a file"]

    one = vectors.Remembered([first], tmp_path)
    rows = await one.embed_queries(texts)
    await one.embed_queries(texts[:1])
    await one.aclose()
    two = vectors.Remembered([second], tmp_path)
    again = await two.embed_queries(texts)
    await two.embed_documents(texts[:1])
    await two.aclose()

    assert first.asked == texts[:2]
    assert second.asked == texts[:1]  # as a document it is another text
    assert np.array_equal(rows, again)
    assert np.array_equal(rows, await HashEmbedder(16).embed_request(texts))


async def test_two_embedders_share_the_work_and_each_text_keeps_its_own_vector(vectors: Any) -> None:
    both = [Counting(), Counting()]
    texts = [f"text number {i}" for i in range(201)]

    rows = await vectors.Remembered(both, None).embed_documents(texts)

    assert np.array_equal(rows, await HashEmbedder(16).embed_documents(texts))
    assert min(len(e.asked) for e in both) > 90
    assert sorted(both[0].asked + both[1].asked) == sorted(texts)


async def test_a_tool_is_embedded_as_the_index_does_it(vectors: Any) -> None:
    tool = IndexEntry(
        tool_id="n/a", digest="", namespace="n", name="readFile", server="disk", description="Reads", examples=("cat x",)
    )  # fmt: skip
    embedder = HashEmbedder(16)

    (row,) = await vectors.Remembered([embedder], None).embed_tools([tool])

    assert np.array_equal(row, combined(await embedder.embed_documents(dense_texts(tool))))


async def test_a_damaged_file_is_recreated_and_an_old_one_goes(vectors: Any, tmp_path: Path) -> None:
    (tmp_path / "hash-16.sqlite").write_bytes(b"not a database at all" * 100)
    old = tmp_path / "model-of-last-month.sqlite"
    old.touch()
    os.utime(old, (time.time() - 30 * 86_400,) * 2)

    for _ in range(2):
        embedder = Counting()
        remembered = vectors.Remembered([embedder], tmp_path)
        await vector_of(remembered, "x")
        await remembered.aclose()

    assert embedder.asked == []
    assert not old.exists()


async def test_when_time_is_measured_nothing_is_remembered(vectors: Any) -> None:
    embedder = Counting()
    remembered = vectors.Remembered([embedder], None)
    remembered.live = True

    for _ in range(3):
        await vector_of(remembered, "x")
        await remembered.embed_documents(["y"])

    assert embedder.asked == ["x", "y"] * 3
