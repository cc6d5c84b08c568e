"""The methods that search is compared with do what their names say."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bench_search
from hash_embedder import HashEmbedder
from toolcrib_registry.search.entry import IndexEntry
from vector_of import vector_of


@pytest.fixture(scope="module")
def baselines() -> Iterator[Any]:
    with bench_search.loaded("baselines") as (module,):
        yield module


def tool(tool_id: str, description: str, **more: Any) -> IndexEntry:
    return IndexEntry(
        tool_id=tool_id, digest="", namespace="n", name=tool_id, description=description, **more
    )


def test_keyword_overlap_counts_distinct_words_and_breaks_ties_by_id(baselines: Any) -> None:
    tools = [
        tool("t3", "read a file"),
        tool("t2", "read read"),
        tool("t1", "write"),
        tool("t4", "read a mail"),
    ]

    found = baselines.Keyword(tools).rank("read a file a file", None)

    assert found == ["t3", "t4", "t2"]


def test_bm25_is_the_formula_over_raw_words(baselines: Any) -> None:
    tools = [
        tool("x", "green apples green trees"),
        tool("y", "red apples"),
        tool("z", "blue sky over all of it"),
    ]
    ranking = baselines.Bm25(tools)

    # `green` and `apples`: in one and in two of three; lengths 5, 3 and 7, the name being a word too
    def weight(documents: int, times: int, length: int) -> float:
        idf = math.log(1 + (3 - documents + 0.5) / (documents + 0.5))
        return idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / 5))

    scores: list[float] = []
    ranking.best = lambda found, least: scores.extend(found) or []
    ranking.rank("green apples", None)

    assert scores == pytest.approx([weight(1, 2, 5) + weight(2, 1, 5), weight(2, 1, 3), 0.0])


def test_the_seed_formula_adds_a_boost_for_each_word_in_each_field(baselines: Any) -> None:
    vectors = np.eye(3, dtype=np.float32)
    tools = [
        tool("weather", "tells rain", server="Weather Sky", tags=("rain",)),
        tool("mail", "sends weather letters"),
        tool("other", "nothing"),
    ]
    ranking = baselines.Seed(tools, vectors)
    scores: list[float] = []
    ranking.best = lambda found: scores.extend(found) or []

    ranking.rank("the weather, rain?", vectors[1])

    # by id: mail (cosine 1; weather in the description), other, weather (path, name, and rain in description and tags)
    assert scores == pytest.approx([1.0 + 0.05 * 2, 0.5, 0.5 + 0.05 * (5 + 3 + 2 + 1.5)])


def test_the_embedder_alone_ranks_by_cosine(baselines: Any) -> None:
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32)

    found = baselines.Dense([tool(i, "") for i in "xyz"], vectors).rank(
        "anything", np.array([0, 1], np.float32)
    )

    assert found == ["z", "y", "x"]


@pytest.mark.anyio
async def test_the_seed_formula_agrees_with_the_mode_compat_of_the_product() -> None:
    with bench_search.loaded("baselines", "folder", "product") as (baselines, folder, product):
        (tools,) = folder.read(bench_search.BENCH / "search" / "subset", limit=20, only=["azure_mcp"])
        embedder = HashEmbedder(16)
        vectors = await embedder.embed_documents([t.description for t in tools.tools])
        ranking = baselines.Seed(tools.tools, vectors)

        async with product.embedded(tools.tools, vectors, embedder) as ours:
            for query in tools.queries:
                answer = await ours.ask(query.text, "compat")

                assert answer.found == ranking.rank(query.text, await vector_of(embedder, query.text))
