"""Embedders that need no library: none at all, and a cache in front of another."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolcrib_registry.ports import Embedder
from toolcrib_registry.search.entry import IndexIdentity, Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.text import QUERY_LIMIT, query_terms, terms


def _ignore(count: int) -> None:
    """Nobody counts."""


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
    """Remembers the vectors of the latest queries, so that a query that is repeated, or asked by many at one time,
    costs one encoding.

    Queries are cut to the length that is searched and their white space is folded first; what is remembered is
    bounded by `size` (about 2 KB each) and lives in memory only.
    """

    def __init__(
        self,
        embedder: Embedder,
        size: int = 1024,
        *,
        on_embedded: Callable[[int], object] = _ignore,
        on_reused: Callable[[int], object] = _ignore,
    ) -> None:
        """The callbacks are told how many texts went through `embedder` and how many did not have to."""
        self._embedder = embedder
        self._size = size
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._flights: dict[str, _Flight] = {}
        self._on_embedded = on_embedded
        self._on_reused = on_reused

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
        """The remembered vectors of `texts`; those that are new are made in one turn.

        What another search is having made is waited for. A turn goes on while anybody waits for it: whoever gives
        up takes nothing from the others.
        """
        if not texts:
            return await self._embedder.embed_queries(texts)
        keys = [" ".join(t[:QUERY_LIMIT].split()) for t in texts]
        wanted = dict.fromkeys(keys)
        found = {k: self._known[k] for k in wanted if k in self._known}
        if len(found) < len(wanted):
            found |= await self._awaited([k for k in wanted if k not in found])
        else:
            self._on_reused(len(wanted))
        for key in wanted:
            if key in self._known:
                self._known.move_to_end(key)
        return np.stack([found[k] for k in keys])

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Documents are not remembered: `DocumentVectors` does that."""
        return await self._embedder.embed_documents(texts)

    async def aclose(self) -> None:
        """Close the embedder behind."""
        await self._embedder.aclose()

    async def _awaited(self, keys: Sequence[str]) -> dict[str, Vector]:
        new = [k for k in keys if k not in self._flights]
        if new:
            flight = _Flight(asyncio.create_task(self._fly(new)))
            self._flights |= dict.fromkeys(new, flight)
        self._on_embedded(len(new))
        joined = list({id(f): f for f in map(self._flights.__getitem__, keys)}.values())
        for flight in joined:
            flight.waiting += 1
        try:
            await asyncio.wait([f.task for f in joined])
            made = {k: v for f in joined for k, v in f.task.result().items()}
        finally:
            for flight in joined:
                self._leave(flight)
        self._on_reused(len(keys) - len(new))
        return {k: made[k] for k in keys}

    async def _fly(self, keys: Sequence[str]) -> dict[str, Vector]:
        try:
            rows = await self._embedder.embed_queries(keys)
            made = dict(zip(keys, rows, strict=True))
            for vector in made.values():
                vector.setflags(write=False)
            self._known |= made
            while len(self._known) > self._size:
                self._known.popitem(last=False)
            return made
        finally:
            self._forget(keys, asyncio.current_task())

    def _leave(self, flight: _Flight) -> None:
        flight.waiting -= 1
        if not flight.waiting and not flight.task.done():
            # nobody wants it any more: the embedder's next turn is for somebody who still waits
            self._forget([k for k, f in self._flights.items() if f is flight], flight.task)
            flight.task.cancel()

    def _forget(self, keys: Iterable[str], task: asyncio.Task[Any] | None) -> None:
        for key in keys:
            if (flight := self._flights.get(key)) is not None and flight.task is task:
                del self._flights[key]


@dataclass(slots=True)
class _Flight:
    """One turn of the embedder, and how many searches wait for it."""

    task: asyncio.Task[dict[str, Vector]]
    waiting: int = 0
