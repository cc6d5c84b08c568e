"""Embedders that need no library: none at all, and a cache in front of another that counts."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolcrib_registry.search.entry import IndexIdentity, Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.text import QUERY_LIMIT
from toolcrib_registry.search.vectors import Embedder


def _ignore(told: int | str) -> None:
    """Nobody counts."""


def identity_of(embedder: Embedder) -> IndexIdentity:
    """The identity of an index whose vectors `embedder` makes."""
    return IndexIdentity(embedder.name, embedder.dimension)


_Key = tuple[str, ...]
"""A request and its parts. A part belongs to its request: what it means may depend on the rest."""


class NullEmbedder:
    """No vectors: search ranks by words alone."""

    name = "none"
    dimension = 0

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """Always raises: there is nothing to embed with."""
        raise EmbedderUnavailable("no embedder is configured")

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """A matrix with a row a text and no columns."""
        return np.zeros((len(texts), 0), np.float32)

    async def aclose(self) -> None:
        """Nothing to release."""


class QueryCache:
    """Remembers the vectors of the latest queries.

    A query that is repeated, or asked by many at one time, costs one encoding.

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
        on_failed: Callable[[str], object] = _ignore,
    ) -> None:
        """The callbacks are told of requests that went through `embedder` and of those that did not have to, and
        `query` or `document` for each that brought no vectors.
        """
        self._embedder = embedder
        self._size = size
        self._known: OrderedDict[_Key, Vector] = OrderedDict()
        self._flights: dict[_Key, _Flight] = {}
        self._on_embedded = on_embedded
        self._on_reused = on_reused
        self._on_failed = on_failed

    @property
    def name(self) -> str:
        """The name of the embedder behind."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """The dimension of the embedder behind."""
        return self._embedder.dimension

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """The remembered rows of a request and its parts, else new ones, made in one turn.

        Joins an encoding already in progress. A turn goes on while one caller waits for it, so a caller that gives
        up takes nothing from the others.
        """
        key = tuple(" ".join(t[:QUERY_LIMIT].split()) for t in texts)
        known = self._known.get(key)
        if known is None:
            return await self._awaited(key)
        self._known.move_to_end(key)
        self._on_reused(1)
        return known

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Documents are not remembered: `DocumentVectors` does that."""
        return await self._watched("document", self._embedder.embed_documents(texts))

    async def aclose(self) -> None:
        """Close the embedder behind."""
        await self._embedder.aclose()

    async def _watched(self, purpose: str, made: Awaitable[Vector]) -> Vector:
        try:
            return await made
        except EmbedderUnavailable:
            self._on_failed(purpose)
            raise

    async def _awaited(self, key: _Key) -> Vector:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._fly(key)))
            self._on_embedded(1)
        else:
            self._on_reused(1)
        flight.waiting += 1
        try:
            await asyncio.wait([flight.task])
            return flight.task.result()
        finally:
            self._leave(key, flight)

    async def _fly(self, key: _Key) -> Vector:
        try:
            rows = await self._watched("query", self._embedder.embed_request(key))
            rows.setflags(write=False)
            self._known[key] = rows
            while len(self._known) > self._size:
                self._known.popitem(last=False)
            return rows
        finally:
            self._forget(key, asyncio.current_task())

    def _leave(self, key: _Key, flight: _Flight) -> None:
        flight.waiting -= 1
        if not flight.waiting and not flight.task.done():
            # nobody wants it any more: the embedder's next turn is for somebody who still waits
            self._forget(key, flight.task)
            flight.task.cancel()

    def _forget(self, key: _Key, task: asyncio.Task[Any] | None) -> None:
        if (flight := self._flights.get(key)) is not None and flight.task is task:
            del self._flights[key]


@dataclass(slots=True)
class _Flight:
    """One turn of the embedder, and how many searches wait for it."""

    task: asyncio.Task[Vector]
    waiting: int = 0
