"""While the store tells the nearest, an answer is of the view alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hash_embedder import HashEmbedder
from small_index import tool, view_of
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.question import Wanted
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
