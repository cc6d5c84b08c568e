"""Recall over the visible share: does a caller who sees little get the ranking of what it sees?

    python bench/search/run.py recall DATA [--tools 10000] [--queries 40] [--shares 100,10,1,0.1] [--out FILE]

The tools of all sets under DATA make one catalog. For each share a caller sees so many of them, cut out by scopes (which
a store can narrow down to) or by allow and deny patterns (which it cannot). What the registry's searcher answers over
the whole catalog is compared with what it answers over an index that holds the visible tools and nothing else.
`identical`: the same ten in the same order with the same scores. `first` is the first search of the view by a process that has
taken in the catalog; `p50` and `p99` are of those that follow. Without a Weaviate program the embedded store alone is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import folder
import numpy as np
import outcome
import vectors as kept

from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown, Vector, fingerprint
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Answer, Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder

SHARES = (100.0, 10.0, 1.0, 0.1)
CUTS = ("scopes", "patterns")
_DEPTH = 10
_PATIENCE = 60.0
_CLOSE = 1e-6
"""Scores that differ by less are the same: the stores add up in the same order, but nothing else is promised."""


@dataclass(frozen=True)
class Point:
    """One view of one store."""

    store: str
    cut: str
    share: float
    """Percent of the catalog."""
    visible: int
    recall: float
    """Of the ten of the visible tools alone, how many are in the answer, in the mean."""
    identical: float
    """The share of answers that equal it, in order and score."""
    outside: int
    """Hits that the caller may not see."""
    first: float
    """Milliseconds."""
    p50: float
    p99: float


@dataclass(frozen=True)
class Catalog:
    """Tools with a vector each, and who may see what: by scope, as `share-0.1:use`."""

    tools: list[IndexEntry]
    vectors: Vector


def scope_of(share: float) -> str:
    """The scope of those who see `share` percent."""
    return f"share-{share:g}:use"


def scoped(tools: Sequence[IndexEntry], shares: Sequence[float] = SHARES) -> list[IndexEntry]:
    """`tools` with a scope for each share that they are visible to, evenly spread, and a digest of all that."""
    made = []
    for i, tool in enumerate(tools):
        own = tuple(scope_of(s) for s in shares if i % round(100 / s) == 0)
        entry = dataclasses.replace(tool, scopes=("catalog:use", *own))
        made.append(dataclasses.replace(entry, digest=fingerprint(entry)))
    return made


async def points(
    name: str,
    store: CatalogStore,
    embedder: Embedder,
    catalog: Catalog,
    texts: Sequence[str],
    shares: Sequence[float] = SHARES,
) -> AsyncIterator[Point]:
    """A point for each share and cut; `store` holds all of the catalog."""
    row_of = {t.tool_id: i for i, t in enumerate(catalog.tools)}
    chance = random.Random(20261122)
    for share in shares:
        by_scope = [t for t in catalog.tools if scope_of(share) in t.scopes]
        for cut in CUTS:
            tools = by_scope if cut == "scopes" else chance.sample(catalog.tools, len(by_scope))
            view = {t.tool_id: t for t in tools}
            down = Pushdown(scopes=frozenset({scope_of(share) if cut == "scopes" else "catalog:use"}))
            expected = await _alone(
                embedder, tools, catalog.vectors[[row_of[t.tool_id] for t in tools]], texts
            )
            searcher = Searcher(store, embedder, store_seconds=_PATIENCE, embed_seconds=_PATIENCE)
            try:
                await searcher.prepare(catalog.tools)
                yield await _point(name, cut, share, searcher, view, down, texts, expected)
            finally:
                searcher.close()


async def _point(
    name: str,
    cut: str,
    share: float,
    searcher: Searcher,
    view: dict[str, IndexEntry],
    down: Pushdown,
    texts: Sequence[str],
    expected: Sequence[Answer],
) -> Point:
    seconds, recalls, same, outside = [], [], 0, 0
    for text, wanted in zip(texts, expected, strict=True):
        start = time.perf_counter()
        answer = await searcher.search(view, Wanted(text, limit=_DEPTH, min_score=0.0), down)
        seconds.append(time.perf_counter() - start)
        if answer.degradation:
            raise RuntimeError(f"{name}, {cut}, {share:g} %: answered as {answer.mode}: {answer.degradation}")
        found, ids = [h.tool_id for h in answer.hits], [h.tool_id for h in wanted.hits]
        outside += len(set(found) - view.keys())
        recalls.append(len(set(found) & set(ids)) / max(1, len(ids)))
        close = (
            np.allclose([h.score for h in answer.hits], [h.score for h in wanted.hits], atol=_CLOSE)
            if found == ids
            else False
        )
        same += found == ids and close
    p50, p99 = np.percentile(seconds[1:] or seconds, [50, 99]) * 1e3
    return Point(
        name, cut, share, len(view), float(np.mean(recalls)), same / len(texts), outside,
        seconds[0] * 1e3, float(p50), float(p99),
    )  # fmt: skip


async def _alone(
    embedder: Embedder, tools: Sequence[IndexEntry], rows: Vector, texts: Sequence[str]
) -> list[Answer]:
    """The answers of an index that holds `tools` and nothing else."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-recall-") as where:
        store = await EmbeddedStore.open(Path(where), identity_of(embedder))
        searcher = Searcher(store, embedder, store_seconds=_PATIENCE, embed_seconds=_PATIENCE)
        try:
            await store.put(tools, rows)
            await searcher.prepare(tools)
            view = {t.tool_id: t for t in tools}
            return [await searcher.search(view, Wanted(text, limit=_DEPTH, min_score=0.0)) for text in texts]
        finally:
            searcher.close()
            await store.aclose()


@asynccontextmanager
async def stores(catalog: Catalog, embedder: Embedder) -> AsyncIterator[dict[str, CatalogStore]]:
    """The stores that there are, each with all of the catalog."""
    from realparts.lookup import MissingPartError
    from realparts.weaviate import Weaviate

    identity = identity_of(embedder)
    with tempfile.TemporaryDirectory(prefix="toolcrib-recall-") as where:
        embedded = await EmbeddedStore.open(Path(where), identity)
        await embedded.put(catalog.tools, catalog.vectors)
        try:
            try:
                server = await asyncio.to_thread(Weaviate().__enter__)
            except MissingPartError as error:
                print(f"without Weaviate: {error}", file=sys.stderr)
                yield {"embedded": embedded}
                return
            try:
                settings = WeaviateSettings(server.host, server.http_port, grpc_port=server.grpc_port)
                remote = WeaviateStore(settings, identity)
                await remote.put(catalog.tools, catalog.vectors)
                yield {"embedded": embedded, "weaviate": remote}
                await remote.aclose()
            finally:
                await asyncio.to_thread(server.close)
        finally:
            await embedded.aclose()


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--shares", default="100,10,1,0.1")
    parser.add_argument("--out", type=outcome.writable)
    return parser.parse_args(arguments)


async def _main(options: argparse.Namespace) -> int:
    sets = folder.read(options.data, limit=options.queries)
    chance = random.Random(7)
    tools = [dataclasses.replace(t, tool_id=f"{s.name}/{t.tool_id}") for s in sets for t in s.tools]
    texts = folder.requests(sets)
    chance.shuffle(tools)
    chance.shuffle(texts)
    shares = tuple(float(s) for s in options.shares.split(","))
    embedder = kept.Remembered([OnnxEmbedder.packaged()], kept.cache_folder())
    entries = scoped(tools[: options.tools], shares)
    catalog = Catalog(entries, await embedder.embed_tools(entries))
    texts = texts[: options.queries]
    await embedder.embed_queries(texts)
    print(f"{len(entries)} tools, {len(texts)} requests; times without encoding the request")
    print(f"{'store':9} {'cut by':9} {'visible':>13}  recall  identical  outside  first ms    p50    p99")
    made = []
    async with stores(catalog, embedder) as filled:
        for name, store in filled.items():
            async for p in points(name, store, embedder, catalog, texts, shares):
                made.append(dataclasses.asdict(p))
                print(
                    f"{p.store:9} {p.cut:9} {p.visible:6} {p.share:5g} %  {p.recall:6.4f}     {p.identical:6.4f}"
                    f"  {p.outside:7} {p.first:9.1f} {p.p50:6.1f} {p.p99:6.1f}",
                    flush=True,
                )
    await embedder.aclose()
    outcome.write(options.out, made)
    return 0 if all(p["identical"] == 1.0 and not p["outside"] for p in made) else 1


def main(arguments: Sequence[str]) -> int:
    """Print the curve; 1 if an answer differs."""
    chosen = options(arguments)
    return outcome.status(lambda: asyncio.run(_main(chosen)))
