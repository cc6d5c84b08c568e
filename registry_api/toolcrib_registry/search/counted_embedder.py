"""An embedder whose failures are counted; what it gives and raises stays the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.vectors import Embedder


class CountedEmbedder:
    """Passes everything on; `failed` is told `query` or `document` for each request that brought no vectors."""

    def __init__(self, embedder: Embedder, failed: Callable[[str], object]) -> None:
        self._embedder = embedder
        self._failed = failed

    @property
    def name(self) -> str:
        """The name of the embedder behind."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """The dimension of the embedder behind."""
        return self._embedder.dimension

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """What it makes of several."""
        return await self._watched("query", self._embedder.embed_request(texts))

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """What it makes of documents."""
        return await self._watched("document", self._embedder.embed_documents(texts))

    async def aclose(self) -> None:
        """Close it."""
        await self._embedder.aclose()

    async def _watched(self, purpose: str, made: Awaitable[Vector]) -> Vector:
        try:
            return await made
        except EmbedderUnavailable:
            self._failed(purpose)
            raise
