"""An embedder without a model, for tests that are not about what words mean."""

import hashlib
from collections.abc import Sequence

import numpy as np

from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.text import query_terms, terms


class HashEmbedder:
    """Vectors without a model: each word adds a direction of its own. Fast, deterministic, knows no synonyms."""

    def __init__(self, dimension: int = 64) -> None:
        self.name = f"hash-{dimension}"
        self.dimension = dimension

    async def embed_request(self, texts: Sequence[str]) -> Vector:
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
