"""Where a search for a tool's own description ranks it among other tools: by the registry's own searcher."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolcrib.wire.publish import PublishedTool
from toolcrib_cli.local import settings
from toolcrib_registry import factories
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.embedders.vector_file import VectorFile
from toolcrib_registry.search.embedding import NullEmbedder, QueryCache, identity_of
from toolcrib_registry.search.entries import entry_of
from toolcrib_registry.search.entry import Pushdown
from toolcrib_registry.search.index.document_vectors import DocumentVectors, MemoryShelf
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.vectors import Embedder

MOST_EMBEDDED = 300
"""Tools whose vectors are made for one answer where none are kept: a few seconds."""
_DEPTH = 100
_SHELF = 1 << 30
_PATIENCE = 30.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Hit:
    """A tool that a search finds."""

    tool_id: str
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Placing:
    """The tool's place, from 1; None: it is not among the first 100. `best` are the first few hits."""

    place: int | None
    confidence: float | None
    among: int
    mode: str
    best: tuple[Hit, ...]


async def placed(
    tool: PublishedTool, others: Iterable[PublishedTool], data: Path | None, embedder: str = "packaged"
) -> Placing:
    """Search for the description of `tool` among it and `others`.

    Args:
        data: a data folder whose vectors are used and added to; None: they are made.
        embedder: as of `toolcrib up`. By words alone where too many vectors would have to be made.
    """
    entries = {t.tool_id: entry_of(t) for t in (*others, tool) if t.active or t is tool}
    kept = data is not None and (data / "vectors.sqlite").exists()
    many = len(entries) > MOST_EMBEDDED and not kept
    model: Embedder = NullEmbedder() if many else factories.embedder(settings.embedder(embedder))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(model.aclose)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-try-"))
        store = await EmbeddedStore.open(Path(folder), identity_of(model))
        stack.push_async_callback(store.aclose)
        shelf = VectorFile(data, _SHELF) if kept and data is not None else MemoryShelf(64 << 20)
        stack.push_async_callback(shelf.aclose)
        cache = QueryCache(model)
        searcher = Searcher(store, cache, embed_seconds=_PATIENCE)
        stack.callback(searcher.close)
        await searcher.prepare(list(entries.values()))
        made = await DocumentVectors(cache, shelf, store).of(list(entries.values()))
        await searcher.learn(made.entries, made.vectors)
        wanted = Wanted(
            tool.description or tool.name,
            limit=_DEPTH,
            min_score=0.0,
            mode="hybrid" if model.dimension else "lexical",
        )
        answer = await searcher.search(entries, wanted, Pushdown())
    hits = [Hit(h.tool_id, h.confidence) for h in answer.hits]
    place = next((n for n, hit in enumerate(hits, 1) if hit.tool_id == tool.tool_id), None)
    own = hits[place - 1].confidence if place is not None else None
    return Placing(place, own, len(entries), answer.mode, tuple(hits[:_SHOWN]))
