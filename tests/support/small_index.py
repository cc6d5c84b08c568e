"""A few tools to search: each has a word of its own, and shares the others with its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hash_embedder import HashEmbedder
from index_entries import numbered
from reference_ranking import rank
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.searcher import Answer
from vector_of import vector_of

EMBEDDER = HashEmbedder()
WORDS = ("read", "write", "list", "delete", "weather", "city", "invoice", "customer", "database", "backup")


def own(number: int) -> str:
    """A word that tool `number` alone carries."""
    return "z" + "".join("bcdfghjklm"[int(digit)] for digit in f"{number:04d}")


def tool(number: int, **fields: Any) -> IndexEntry:
    """Tool `number` with words that differ from its neighbours'."""
    words = f"{WORDS[number % 10]} {WORDS[number // 10 % 10]} {own(number)}"
    return numbered(number, **{"description": words, **fields})


def view_of(entries: Iterable[IndexEntry]) -> dict[str, IndexEntry]:
    """A view of exactly these."""
    return {e.tool_id: e for e in entries}


async def fill(store: EmbeddedStore, entries: list[IndexEntry]) -> None:
    """Put `entries` in with their vectors."""
    await store.put(entries, await EMBEDDER.embed_documents([dense_text(e) for e in entries]))


async def oracle(view: dict[str, IndexEntry], query: str, limit: int) -> list[str]:
    """The exact ranking of the view alone."""
    entries = list(view.values())
    vectors = await EMBEDDER.embed_documents([dense_text(e) for e in entries])
    vector = await vector_of(EMBEDDER, query)
    return [
        r.entry.tool_id for r in rank(query, vector, list(zip(entries, vectors, strict=True)), limit=limit)
    ]


def ids(answer: Answer) -> list[str]:
    """Tool ids, best first."""
    return [h.tool_id for h in answer.hits]


class BrokenEmbedder(HashEmbedder):
    """Cannot make a vector for a query."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """Fail and count."""
        self.asked += 1
        raise EmbedderUnavailable("no model")


class Clock:
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now
