"""The search that agents get, over one catalog: the registry's own searcher, with the defaults of its route.

`hybrid` and `lexical` ask the embedded store, `hybrid_weaviate` a real Weaviate. The caller sees every tool. A hit that
the route would leave out because nothing fits is left out here too, and counts as not found. So does all that is right
for a request that the route refuses.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measure import rss
from metrics import DEPTH
from pydantic import ValidationError

from emptied import empty
from toolcrib.wire.search import SearchRequest
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import QueryCache, identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown, Vector
from toolcrib_registry.search.question import AskedMode, Wanted
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder

if TYPE_CHECKING:
    from realparts.weaviate import Weaviate

_PATIENCE = 60.0
"""Seconds: on a busy machine an answer must not become a lexical one because it was slow."""
_BATCH = 500
_DEFAULT = SearchRequest(query="what an agent sends that asks for nothing but tools", limit=DEPTH)

_EVERYTHING = Pushdown()


def refused(text: str) -> bool:
    """Whether the route answers 400 to a request in these words: they are too long."""
    try:
        SearchRequest(query=text)
    except ValidationError:
        return True
    return False


class DegradedError(Exception):
    """A search was not answered by what it was to be answered by."""


@dataclass(frozen=True)
class Answer:
    """Ids, best first, and how long it took."""

    found: list[str]
    seconds: float
    """From the text to the answer."""
    embed_seconds: float
    """Of these, waiting for vectors."""


class _Timed(QueryCache):
    """Notes how long it took to make vectors of requests, and remembers none."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder, size=0)
        self._behind = embedder
        self.seconds = 0.0

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """Of the embedder behind."""
        start = time.perf_counter()
        try:
            return await self._behind.embed_request(texts)
        finally:
            self.seconds += time.perf_counter() - start


class Product:
    """A searcher over a filled store."""

    mode: AskedMode = _DEFAULT.search_mode
    """How agents search that say nothing about it."""

    def __init__(self, store: CatalogStore, embedder: Embedder, tools: Sequence[IndexEntry]) -> None:
        self._view = {t.tool_id: t for t in tools}
        self._embedder = _Timed(embedder)
        self._searcher = Searcher(store, self._embedder, store_seconds=_PATIENCE, embed_seconds=_PATIENCE)

    async def prepare(self) -> None:
        """Take in the words and vectors of the catalog, as the registry does with every snapshot."""
        await self._searcher.prepare(list(self._view.values()))

    async def ask(self, text: str, mode: AskedMode, *, all_hits: bool = False) -> Answer:
        """What the route answers in `mode`; with `all_hits` also those that it leaves out because they hardly fit.

        Raises:
            DegradedError: store or embedder did not take part.
        """
        start = time.perf_counter()
        if refused(text):
            return Answer([], time.perf_counter() - start, 0.0)
        self._embedder.seconds = 0.0
        least = 0.0 if all_hits else _DEFAULT.min_score
        wanted = Wanted(text, limit=_DEFAULT.limit, min_score=least, mode=mode)
        answer = await self._searcher.search(self._view, wanted, Pushdown())
        seconds = time.perf_counter() - start
        if answer.degradation or answer.mode not in (mode, "filter"):
            raise DegradedError(f"answered as {answer.mode}: {answer.degradation or 'no reason given'}")
        return Answer([h.tool_id for h in answer.hits], seconds, self._embedder.seconds)

    async def hits(
        self,
        text: str,
        *,
        all_hits: bool = True,
        view: Mapping[str, IndexEntry] | None = None,
        down: Pushdown = _EVERYTHING,
    ) -> tuple[Ranked, ...]:
        """The hits of the default mode with their confidence, those that hardly fit only with `all_hits`.

        Args:
            text: the request.
            all_hits: False for what the route answers.
            view: what the caller sees, by id; None for every tool.
            down: what narrows the store down to a superset of `view`.

        Raises:
            DegradedError: store or embedder did not take part.
        """
        least = 0.0 if all_hits else _DEFAULT.min_score
        wanted = Wanted(text, limit=_DEFAULT.limit, min_score=least, mode=self.mode)
        answer = await self._searcher.search(self._view if view is None else view, wanted, down)
        if answer.degradation or answer.mode not in (self.mode, "filter"):
            raise DegradedError(f"answered as {answer.mode}: {answer.degradation or 'no reason given'}")
        return answer.hits

    def close(self) -> None:
        """Stop the threads."""
        self._searcher.close()


@asynccontextmanager
async def embedded(
    tools: Sequence[IndexEntry], vectors: Vector, embedder: Embedder
) -> AsyncIterator[Product]:
    """A search over the embedded store, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        store = await EmbeddedStore.open(Path(folder), identity_of(embedder))
        try:
            await fill(store, tools, vectors)
            product = Product(store, embedder, tools)
            try:
                await product.prepare()
                yield product
            finally:
                product.close()
        finally:
            await store.aclose()


@asynccontextmanager
async def on_weaviate(
    server: Weaviate, tools: Sequence[IndexEntry], vectors: Vector, embedder: Embedder
) -> AsyncIterator[tuple[Product, dict[str, float]]]:
    """A search over `server`, which is emptied afterwards; with the seconds of filling it and the whole server's bytes."""
    # it takes half a second to load
    from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
    from toolcrib_registry.adapters.weaviate.store import WeaviateStore

    settings = WeaviateSettings(
        server.host, server.http_port, grpc_port=server.grpc_port, collection_prefix="Bench"
    )
    store = WeaviateStore(settings, identity_of(embedder))
    try:
        start = time.perf_counter()
        await fill(store, tools, vectors)
        seconds = time.perf_counter() - start
        product = Product(store, embedder, tools)
        try:
            await product.prepare()
            # the server goes on tidying up for a moment; searches of that moment are not those of a running one
            await asyncio.sleep(1.0)
            memory = float(rss(server.process.pid))
            yield product, {"build_seconds": seconds, "memory_bytes": memory}
        finally:
            product.close()
    finally:
        await empty(store)
        await store.aclose()


async def fill(store: CatalogStore, tools: Sequence[IndexEntry], vectors: Vector) -> None:
    """Write all of `tools` into `store`."""
    for start in range(0, len(tools), _BATCH):
        part = slice(start, start + _BATCH)
        await store.put(tools[part], vectors[part])
