"""A large view on a server: the ranking that all vectors would give, with few of them fetched."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reference_ranking import rank
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.entry import (
    IndexEntry,
    IndexIdentity,
    Part,
    Pushdown,
    StoreHit,
    StoreQuery,
    Vector,
)
from toolcrib_registry.search.fusion import blended
from toolcrib_registry.search.large_view import LargeViews, directions
from toolcrib_registry.search.local_index import LocalIndex
from toolcrib_registry.search.outage import Outage
from toolcrib_registry.search.question import Question
from toolcrib_registry.search.view_search import Timings, ViewSearch

pytestmark = [pytest.mark.anyio, pytest.mark.guarantee]

DIMENSION = 16
IDENTITY = IndexIdentity("random", DIMENSION)
WORDS = [
    f"{a}{b}" for a in ("ba", "ko", "mi", "tu", "zel") for b in ("lor", "nix", "pan", "rus", "vok", "dem")
]
CHANCE = random.Random(20261122)
NOISE = np.random.default_rng(20261122)


def unit(count: int) -> Vector:
    """Random directions, as rows."""
    rows = NOISE.standard_normal((count, DIMENSION), np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


TOOLS = [
    IndexEntry(
        tool_id=f"ns/tool-{i:04d}",
        digest=f"d{i}",
        namespace="ns",
        name=f"tool_{i}",
        description=" ".join(CHANCE.choices(WORDS, k=6)),
        scopes=("quarter:use",) if i % 4 == 0 else (),
    )
    for i in range(1_600)
]
VECTORS = unit(len(TOOLS))
VECTORS[1:40] = VECTORS[0]
"""Forty tools that a vector cannot tell apart."""


class Server(EmbeddedStore):
    """Tells only the nearest tools, and counts what it is asked."""

    exact = False

    def __init__(self, path: Path, identity: IndexIdentity) -> None:
        super().__init__(path, identity)
        self.asked: list[StoreQuery] = []
        self.fetched: list[str] = []
        self.slow = False

    async def search(self, query: StoreQuery) -> list[StoreHit]:
        """What is nearest; nothing else is asked."""
        assert query.mode == "nearest"
        self.asked.append(query)
        return await super().search(query)

    async def vectors(self, ids: Collection[str]) -> dict[str, tuple[str, Vector]]:
        """At most 200 at a time."""
        assert len(ids) <= 200
        self.fetched += ids
        if self.slow and len(self.fetched) > 200:
            await asyncio.Event().wait()
        return await super().vectors(ids)


@pytest.fixture(scope="module")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """All tools."""
    store = await Server.open(tmp_path_factory.mktemp("server"), IDENTITY)
    assert isinstance(store, Server)
    await store.upsert(TOOLS, VECTORS)
    yield store
    await store.aclose()


@pytest.fixture
def server(filled: Server) -> Server:
    """All tools, and nothing asked yet."""
    filled.asked, filled.fetched, filled.slow = [], [], False
    return filled


@pytest.fixture
def local() -> Iterator[LocalIndex]:
    """A process's own index."""
    index = LocalIndex(DIMENSION)
    yield index
    index.close()


def question(
    tools: Collection[IndexEntry], parts: int = 0, depth: int = 10, scope: str | None = None
) -> Question:
    """A request of random words and meaning, sometimes just what some tool says."""
    said = [" ".join(CHANCE.choices(WORDS, k=4)) for _ in range(max(1, parts))]
    rows = unit(1 + parts)
    if CHANCE.random() < 0.5:
        rows[0] = VECTORS[CHANCE.randrange(len(TOOLS))]
    return Question(
        view={t.tool_id: t for t in tools},
        text=", then ".join(said),
        vector=rows[0],
        depth=depth,
        parts=tuple(Part(s, row) for s, row in zip(said, rows[1:], strict=False)),
        pushdown=Pushdown(scopes=None if scope is None else frozenset({scope})),
    )


def expected(asked: Question) -> list[tuple[str, float, float | None, float]]:
    """The ranking over the view and all of its vectors."""
    tools = [(t, VECTORS[int(t.tool_id[-4:])]) for t in asked.view.values()]
    found = rank(asked.text, asked.vector, tools, limit=asked.depth, parts=asked.parts)
    return [(r.entry.tool_id, r.score, r.dense, r.lexical) for r in found]


def test_the_directions_that_are_searched_are_what_the_ranking_adds_up() -> None:
    """If the ranking weighs parts in another way, the bounds of a large view no longer hold."""
    for parts in (0, 1, 3):
        asked = question(TOOLS[:1], parts)
        assert asked.vector is not None
        rows = unit(50)
        whole = (rows @ asked.vector).astype(np.float64)
        said = [(rows @ p.vector).astype(np.float64) for p in asked.parts if p.vector is not None]

        best = np.max([rows @ d for d in directions(asked)], axis=0)

        np.testing.assert_allclose(best, blended(whole, said), atol=1e-6)


@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.parametrize("cut", ["none", "scopes", "patterns"])
async def test_the_answer_is_bit_for_bit_what_all_vectors_would_give(
    server: Server, local: LocalIndex, cut: str, parts: int
) -> None:
    tools = {"none": TOOLS, "scopes": TOOLS[::4], "patterns": CHANCE.sample(TOOLS, 500)}[cut]
    views = LargeViews(server, local, 1.0)

    for depth in (1, 25):
        asked = question(tools, parts, depth, "quarter:use" if cut == "scopes" else None)
        found = (await views.rank(asked)).ranked
        assert [(r.entry.tool_id, r.score, r.dense, r.lexical) for r in found] == expected(asked)


async def test_most_vectors_of_a_view_stay_where_they_are(server: Server, local: LocalIndex) -> None:
    views = LargeViews(server, local, 1.0)

    for _ in range(3):
        answer = await views.rank(question(TOOLS))
        assert answer.rounds == 1

    assert len(server.fetched) < len(TOOLS) / 4
    assert {len(q.parts) for q in server.asked} == {0}
    assert {q.limit for q in server.asked} == {64, 32}


async def test_what_a_deadline_cuts_short_is_no_outage_and_is_there_for_the_next_search(
    server: Server, local: LocalIndex
) -> None:
    """Of this view all vectors are needed: the best of the superset are not in it."""
    asked = replace(question(TOOLS[200:1_000]), depth=700)
    server.slow = True
    for seconds in (0.5, 2.0, 10.0):  # on a busy machine the first ones may not be there so soon
        server.fetched, outage = [], Outage(time.monotonic)
        cut = await ViewSearch(server, local, outage, seconds).answer(asked, Timings())
        assert (cut.with_vectors, cut.degradation) == (False, "store_unavailable")
        if len(await local.without_vector(asked.view)) == 600:
            break

    assert not outage.lasts
    assert len(await local.without_vector(asked.view)) == 600

    server.slow, server.fetched = False, []
    whole = await ViewSearch(server, local, outage, 20.0).answer(asked, Timings())

    assert [(r.entry.tool_id, r.score, r.dense, r.lexical) for r in whole.ranked] == expected(asked)
    assert len(server.fetched) == 600


async def test_what_the_server_has_in_another_version_is_ranked_as_not_indexed(
    server: Server, local: LocalIndex
) -> None:
    views = LargeViews(server, local, 1.0)
    newer = IndexEntry(
        tool_id=TOOLS[7].tool_id, digest="newer", namespace="ns", name="tool_7", description=WORDS[0]
    )
    asked = question([newer, *TOOLS[8:500]])

    found = (await views.rank(asked)).ranked

    assert all(r.dense is None for r in found if r.entry is newer)
    assert all(r.dense is not None for r in found if r.entry is not newer)
    assert await local.without_vector({newer.tool_id: newer}) == [newer.tool_id]


async def test_a_server_that_holds_nothing_of_the_view_is_said_to_be_empty(
    server: Server, local: LocalIndex, tmp_path: Path
) -> None:
    views = LargeViews(server, local, 1.0)
    others = [IndexEntry(tool_id=f"b/{i}", digest="d", namespace="b", name=f"t{i}") for i in range(300)]

    assert (await views.rank(question(others))).ranked == []

    empty = await Server.open(tmp_path, IDENTITY)
    assert (await LargeViews(empty, local, 1.0).rank(question(TOOLS))).ranked == []
    await empty.aclose()
