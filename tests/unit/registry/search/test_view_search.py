"""While the store tells the nearest, an answer is of the view alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pytest

from hash_embedder import HashEmbedder
from small_index import own, tool, view_of
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, Stored, Vector
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.resident_vectors import FEW
from toolcrib_registry.search.searcher import Searcher

pytestmark = pytest.mark.anyio
AXES = 16
QUERIES = (
    "read the weather of a city",
    "delete customer",
    "backup database",
    "write an invoice, then list customers",
)


class _FirstAxis(HashEmbedder):
    """Every request means the first axis."""

    def __init__(self) -> None:
        super().__init__(AXES)

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        return np.eye(AXES, dtype=np.float32)[np.zeros(len(texts), int)]


def _vectors(draw: np.random.Generator, cosines: Vector) -> Vector:
    """Normalised rows that have these cosines with the first axis."""
    rest = draw.normal(size=(len(cosines), AXES))
    rest[:, 0] = 0
    rest /= np.linalg.norm(rest, axis=1)[:, None]
    made = rest * np.sqrt(1 - cosines**2)[:, None]
    made[:, 0] = cosines
    return made.astype(np.float32)


async def _answers(
    folder: Path, seen: list[IndexEntry], rows: list[tuple[IndexEntry, Vector]]
) -> list[object]:
    embedder = _FirstAxis()
    store = await EmbeddedStore.open(folder, identity_of(embedder))
    stored = [entry for entry, _ in rows]
    await store.put(stored, np.stack([vector for _, vector in rows]))
    searcher = Searcher(store, embedder, store_seconds=30.0, embed_seconds=30.0, resident_bytes=0)
    await searcher.prepare(stored)
    found: list[object] = []
    for query in QUERIES:
        answer = await searcher.search(view_of(seen), Wanted(query, limit=10, min_score=0.0))
        found.append((answer.mode, answer.degraded, [(h.tool_id, h.score, h.dense) for h in answer.hits]))
    searcher.close()
    await store.aclose()
    return found


@pytest.mark.guarantee
@pytest.mark.parametrize("hidden", [1, 50, 600])
async def test_hidden_tools_near_a_request_change_neither_an_answer_nor_a_score(
    tmp_path: Path, hidden: int
) -> None:
    draw = np.random.default_rng(hidden)
    seen = [tool(i) for i in range(400)]
    visible = list(zip(seen, _vectors(draw, draw.uniform(0.1, 0.6, 400)), strict=True))
    near = [tool(3_000 + i) for i in range(hidden)]
    others = list(zip(near, _vectors(draw, draw.uniform(0.55, 0.9, hidden)), strict=True))

    with_them = await _answers(tmp_path / "with", seen, [*others, *visible])
    assert with_them == await _answers(tmp_path / "without", seen, visible)


@pytest.mark.guarantee
async def test_of_tools_that_are_equally_near_hidden_ones_do_not_choose(tmp_path: Path) -> None:
    """Hundreds of tools have one and the same vector, at the cut, too."""
    draw = np.random.default_rng(7)
    seen, near = [tool(i) for i in range(400)], [tool(3_000 + i) for i in range(300)]
    same = _vectors(draw, np.full(700, 0.5))
    same[:] = same[0]
    rows = list(zip([*seen, *near], same, strict=True))
    draw.shuffle(rows)  # type: ignore[arg-type]
    visible = [row for row in rows if row[0] in seen]

    assert await _answers(tmp_path / "with", seen, rows) == await _answers(
        tmp_path / "without", seen, visible
    )


async def test_where_too_many_hidden_tools_are_nearer_words_alone_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib_registry.search.view_search._LARGEST_LIMIT", 256)
    draw = np.random.default_rng(0)
    seen, near = [tool(i) for i in range(FEW + 100)], [tool(3_000 + i) for i in range(300)]
    rows = list(zip(seen, _vectors(draw, np.full(len(seen), 0.1)), strict=True))
    rows += zip(near, _vectors(draw, np.full(300, 0.9)), strict=True)

    found = await _answers(tmp_path, seen, rows)

    assert {answer[:2] for answer in found} == {("lexical", True)}  # type: ignore[index]


async def test_a_late_search_of_an_older_view_leaves_nothing_behind(tmp_path: Path) -> None:
    entries, embedder = [tool(i) for i in range(5)], HashEmbedder()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    await store.put(entries, await embedder.embed_documents([dense_text(e) for e in entries]))
    searcher = Searcher(store, embedder, store_seconds=30.0, embed_seconds=30.0)
    await searcher.prepare(entries)
    await store.remove([entries[4].tool_id])
    await searcher.prepare(entries[:4])

    late = await searcher.search(view_of(entries), Wanted(own(4), min_score=0.0))

    assert late.hits[0].tool_id == entries[4].tool_id
    assert searcher.state is not None, "no vector of the snapshot is lacking"
    searcher.close()
    await store.aclose()


async def test_vectors_that_another_version_of_the_view_takes_away_meanwhile_are_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, embedder = [tool(i) for i in range(5)], HashEmbedder()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    await store.put(entries, await embedder.embed_documents([dense_text(e) for e in entries]))
    searcher = Searcher(store, embedder, store_seconds=30.0, embed_seconds=30.0)
    await searcher.prepare(entries)
    wanted = Wanted("read the weather", limit=5, min_score=0.0)
    undisturbed = await searcher.search(view_of(entries), wanted)
    others = [
        [tool(4, description="edited")],
        [tool(2, description="edited")],
        [tool(1, description="edited")],
    ]
    get = store.get

    async def disturbed(ids: Collection[str]) -> list[Stored]:
        found = await get(ids)
        if others:
            await searcher._ranker.follow(others.pop(0))
        return found

    await searcher._ranker.follow(others.pop(0))
    monkeypatch.setattr(store, "get", disturbed)
    answer = await searcher.search(view_of(entries), wanted)
    searcher.close()
    await store.aclose()

    assert not others, "two more vectors went while the search was made"
    assert answer == undisturbed
    assert all(hit.dense is not None for hit in answer.hits)
