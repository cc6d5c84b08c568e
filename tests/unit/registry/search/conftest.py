"""An index and searchers for the tests of searching."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from small_index import EMBEDDER
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.searcher import Searcher


@pytest.fixture
async def exact(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """An empty embedded store."""
    store = await EmbeddedStore.open(tmp_path / "exact", identity_of(EMBEDDER))
    yield store
    await store.aclose()


@pytest.fixture
async def searchers() -> AsyncIterator[Callable[..., Searcher]]:
    """Makes searchers that are closed after the test; where no other time is said, they wait long."""
    made: list[Searcher] = []

    def make(*given: Any, **options: Any) -> Searcher:
        made.append(Searcher(*given, **{"store_seconds": 30.0, "embed_seconds": 30.0, **options}))
        return made[-1]

    yield make
    for searcher in made:
        searcher.close()
