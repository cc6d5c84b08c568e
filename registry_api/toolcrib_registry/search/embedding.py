"""Embedders that need no library: none at all, and a cache in front of another."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from toolcrib_registry.ports import Embedder
from toolcrib_registry.search.entry import IndexIdentity, Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.text import QUERY_LIMIT, query_terms, terms


def identity_of(embedder: Embedder) -> IndexIdentity:
    """The identity of an index whose vectors `embedder` makes."""
    return IndexIdentity(embedder.name, embedder.dimension)


class NullEmbedder:
    """No vectors: search ranks by words alone."""

    name = "none"
    dimension = 0

    async def embed_query(self, text: str) -> Vector:
        """Always raises: there is nothing to embed with."""
        raise EmbedderUnavailable("no embedder is configured")

    async def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Always raises: there is nothing to embed with."""
        raise EmbedderUnavailable("no embedder is configured")

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """A matrix with a row a text and no columns."""
        return np.zeros((len(texts), 0), np.float32)

    async def aclose(self) -> None:
        """Nothing to release."""


class HashEmbedder:
    """Vectors without a model: each word adds a direction of its own. Fast, deterministic, knows no synonyms."""

    def __init__(self, dimension: int = 64) -> None:
        self.name = f"hash-{dimension}"
        self.dimension = dimension

    async def embed_query(self, text: str) -> Vector:
        """The sum of the directions of the words of `text`, normalised."""
        return self._vector(query_terms(text))

    async def embed_queries(self, texts: Sequence[str]) -> Vector:
        """One vector a text, as rows."""
        rows = [self._vector(query_terms(t)) for t in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One vector a text, as rows."""
        rows = [self._vector(list(dict.fromkeys(terms(t)))) for t in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    async def aclose(self) -> None:
        """Nothing to release."""

    def _vector(self, words: Sequence[str]) -> Vector:
        total = np.full(self.dimension, 1e-6, np.float64)
        for word in words:
            seed = int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
            total += np.random.default_rng(seed).standard_normal(self.dimension)
        return (total / np.linalg.norm(total)).astype(np.float32)


class QueryCache:
    """Remembers the vectors of the latest queries, so that a repeated query costs no encoding.

    Queries are cut to the length that is searched and their white space is folded first; what is remembered is
    bounded by `size` (about 2 KB each) and lives in memory only.
    """

    def __init__(self, embedder: Embedder, size: int = 1024) -> None:
        self._embedder = embedder
        self._size = size
        self._known: OrderedDict[str, Vector] = OrderedDict()

    @property
    def name(self) -> str:
        """The name of the embedder behind."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """The dimension of the embedder behind."""
        return self._embedder.dimension

    async def embed_query(self, text: str) -> Vector:
        """The remembered vector of `text`, else a new one."""
        rows = await self.embed_queries([text])
        row: Vector = rows[0]
        return row

    async def embed_queries(self, texts: Sequence[str]) -> Vector:
        """The remembered vectors of `texts`; those that are new are made in one turn."""
        keys = [" ".join(t[:QUERY_LIMIT].split()) for t in texts]
        found = {k: self._known[k] for k in keys if k in self._known}
        missing = [k for k in dict.fromkeys(keys) if k not in found]
        if missing:
            made = await self._embedder.embed_queries(missing)
            found |= dict(zip(missing, made, strict=True))
        for key in dict.fromkeys(keys):
            found[key].setflags(write=False)
            self._known[key] = found[key]
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return np.stack([found[k] for k in keys])

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Documents are not remembered: the store keeps their vectors."""
        return await self._embedder.embed_documents(texts)

    async def aclose(self) -> None:
        """Close the embedder behind."""
        await self._embedder.aclose()
