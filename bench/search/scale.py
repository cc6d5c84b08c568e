"""How search grows with the catalog and with the number of callers.

    python bench/search/scale.py DATA [--sizes 1000,10000,100000] [--cache DIR] [--seconds 3] [--out FILE]
                                 [--stores auto|embedded|weaviate] [--weaviate-sizes 1000,10000] [--http-sizes 1000,10000]

Tables: one query at a time, by size, visible share and stage, and then 1, 8 and 64 callers at once, through the
Searcher and through HTTP. Every table carries what the same machine needs at the same time for the bare work: one
encoding, and one product of the visible vectors with a query (numpy). Judge by the ratios; times are of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import callers
import compare
import folder
import footprint
import grown
import measure
import numpy as np
import outcome
import product
import vectors as kept

from emptied import empty
from realparts.lookup import MissingPartError
from realparts.processes import NotReadyError
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.clauses import clauses
from toolcrib_registry.search.embedding import QueryCache, identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown, Stored, Vector
from toolcrib_registry.search.question import Question, QuestionMode, Wanted
from toolcrib_registry.search.ranker import Ranker
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder
from toolcrib_registry.search.visible import Visible

if TYPE_CHECKING:
    from realparts.weaviate import Weaviate

BATCH = 1_000
_LARGEST = 10**9
Step: TypeAlias = Callable[[int], Awaitable[object]]


class Fresh(QueryCache):
    """A cache of query vectors that can be emptied."""

    def __init__(self, embedder: Embedder) -> None:
        self.again = QueryCache(embedder)
        self._model = embedder
        super().__init__(embedder)

    def forget(self) -> None:
        """From here on every text is encoded once more."""
        self.again = QueryCache(self._model)

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """Of the cache that is in force."""
        return await self.again.embed_request(texts)


async def stages(
    store: CatalogStore, model: OnnxEmbedder, entries: list[IndexEntry], vectors: Vector, texts: list[str]
) -> list[dict[str, Any]]:
    """p50, p99 and processor time in ms of each stage of one query, by visible share."""
    embedder = Fresh(model)
    searcher = Searcher(store, embedder, store_seconds=60, embed_seconds=60)
    start = time.perf_counter()
    await searcher.prepare(entries)
    prepared = time.perf_counter() - start
    ranker = Ranker(model.dimension)
    await ranker.follow(entries)
    await ranker.learn(Stored(e.tool_id, e.digest, v) for e, v in zip(entries, vectors, strict=True))
    known = [(await model.embed_request([t]))[0] for t in texts]
    rows = []
    for scope, every in grown.SHARES.items():
        view = Visible((e.tool_id, e) for e in entries if f"{scope}:use" in e.scopes)
        if len(view) >= 10:
            embedder.forget()
            down = Pushdown(scopes=frozenset({f"{scope}:use"}))
            parts = {
                "encode": lambda i: model.embed_request([texts[i]]),
                "nearest": lambda i, down=down: store.nearest(known[i][None, :], 64, down),  # type: ignore[misc]
                **of_ranker(ranker, view, down, texts, known),
                **of_searcher(searcher, view, down, texts),
                **of_numpy(np.ascontiguousarray(vectors[::every]), known),
            }
            row: dict[str, Any] = {"visible": len(view), "share": 1 / every, "prepare_seconds": prepared}
            for name, part in parts.items():
                row[name] = await timed(part, len(texts))
            rows.append(row)
    searcher.close()
    ranker.close()
    return rows


def of_ranker(
    ranker: Ranker, view: Visible, down: Pushdown, texts: list[str], known: list[Vector]
) -> dict[str, Step]:
    """The ranking alone: by words, by cosines, by both."""

    def by(mode: QuestionMode, *, vector: bool = True) -> Step:
        return lambda i: ranker.rank(
            Question(
                view=view,
                text=texts[i],
                vector=known[i] if vector else None,
                depth=10,
                pushdown=down,
                mode=mode,
            )
        )

    return {"words": by("hybrid", vector=False), "cosines": by("dense"), "fused": by("hybrid")}


def of_searcher(searcher: Searcher, view: Visible, down: Pushdown, texts: list[str]) -> dict[str, Step]:
    """The whole search, the same requests once more, which are not encoded again, and those that ask for one thing
    alone: each thing that a request asks for is an encoding more."""
    simple = [t for t in texts if len(clauses(t)) == 1] or texts

    async def ask(text: str) -> None:
        answer = await searcher.search(view, Wanted(text, limit=10, min_score=0.0), down)
        assert answer.hits, answer

    return {
        "whole": lambda i: ask(texts[i]),
        "again": lambda i: ask(texts[i]),
        "of one thing": lambda i: ask(f"{simple[i % len(simple)]} {i}"),
    }


def of_numpy(visible: Vector, known: list[Vector]) -> dict[str, Step]:
    """The bare product of the visible vectors with a query's."""

    async def multiply(i: int) -> None:
        visible @ known[i]

    return {"product": multiply}


async def timed(part: Step, count: int) -> dict[str, float]:
    """p50, p99 and mean processor time of one call, in ms."""
    spent, used = [], time.process_time()
    for i in range(count):
        start = time.perf_counter()
        await part(i)
        spent.append(time.perf_counter() - start)
    cpu = (time.process_time() - used) / count
    p50, p99 = np.percentile(spent, [50, 99])
    return {"p50": p50 * 1e3, "p99": p99 * 1e3, "cpu": cpu * 1e3}


async def fill(store: CatalogStore, entries: list[IndexEntry], vectors: Vector) -> dict[str, float]:
    """Write all; seconds, and MiB that the process grew by."""
    before, start = memory(), time.perf_counter()
    for i in range(0, len(entries), BATCH):
        await store.put(entries[i : i + BATCH], vectors[i : i + BATCH])
    return {"seconds": time.perf_counter() - start, "mib": memory() - before}


def memory() -> float:
    """The process's resident memory in MiB."""
    return measure.rss(os.getpid()) / 2**20


async def one_size(
    name: str, store: CatalogStore, model: OnnxEmbedder, entries: list[IndexEntry], vectors: Vector,
    texts: list[str], seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Fill `store`, measure, print; the figures."""
    built = await fill(store, entries, vectors)
    rows = await stages(store, model, entries, vectors, texts)
    names = ("encode", "nearest", "words", "cosines", "fused", "whole", "again", "of one thing", "product")
    measure.table(
        f"{name}, {len(entries):,} tools: built in {built['seconds']:.1f} s, {built['mib']:.0f} MiB; ms p50/p99 (cpu)",
        ["visible", *names],
        [
            [
                f"{r['visible']:,}",
                *(f"{r[n]['p50']:.2f}/{r[n]['p99']:.2f} ({r[n]['cpu']:.2f})" for n in names),
            ]
            for r in rows
        ],
    )
    many = await callers.through_searcher(store, model, entries, texts, seconds)
    callers.show(f"{name}, {len(entries):,} tools through the Searcher", many)
    return {"build": built, "stages": rows, "callers": many}


def show_starts(figures: dict[str, dict[str, float]]) -> None:
    """What a replica needs that starts over each filled store."""
    measure.table(
        "start of a replica over a filled store: seconds until it is open, and until words and vectors are in; MiB added",
        ["store/tools", "open s", "prepare s", "first search ms", "MiB"],
        [
            [name, f"{f['open']:.1f}", f"{f['prepare']:.1f}", f"{f['first'] * 1e3:.0f}", f"{f['mib']:.0f}"]
            for name, f in figures.items()
        ],
    )


async def run(chosen: argparse.Namespace, sets: Sequence[folder.ToolSet], texts: list[str]) -> dict[str, Any]:
    """All that was asked for in this process."""
    real = await grown.real(sets, chosen.cache)
    model = OnnxEmbedder.packaged()
    figures: dict[str, Any] = {}
    starts: dict[str, dict[str, float]] = {}
    for size in chosen.sizes:
        entries, vectors = await asyncio.to_thread(grown.grown, *real, size)
        starts[f"embedded/{size}"] = await asyncio.to_thread(footprint.start, entries, vectors)
        with tempfile.TemporaryDirectory() as where:
            store = await EmbeddedStore.open(Path(where), identity_of(model))
            figures[f"embedded/{size}"] = await one_size(
                "embedded", store, model, entries, vectors, texts, chosen.seconds
            )
            await store.aclose()
    if chosen.weaviate_sizes:
        with compare.weaviate(chosen.stores) as server:
            for size in chosen.weaviate_sizes:
                if server is not None:
                    figures[f"weaviate/{size}"] = await on_weaviate(
                        server, model, real, texts, size, chosen.seconds
                    )
                    starts[f"weaviate/{size}"] = figures[f"weaviate/{size}"].pop("start")
    show_starts(starts)
    figures["start"] = starts
    await model.aclose()
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


async def on_weaviate(
    server: Weaviate, model: OnnxEmbedder, real: tuple[list[IndexEntry], Vector], texts: list[str],
    size: int, seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """The same on a Weaviate server, which is left empty."""
    entries, vectors = await asyncio.to_thread(grown.grown, *real, size)
    settings = WeaviateSettings(
        server.host, server.http_port, grpc_port=server.grpc_port, collection_prefix=f"Scale{size}"
    )
    store = WeaviateStore(settings, identity_of(model))
    place = {
        "http_host": server.host, "http_port": server.http_port, "grpc_port": server.grpc_port,
        "collection_prefix": f"Start{size}",
    }  # fmt: skip
    filled = WeaviateStore(WeaviateSettings(**place), footprint.identity(vectors))
    try:
        figures = await one_size("weaviate", store, model, entries, vectors, texts, seconds)
        await fill(filled, entries, vectors)
        figures["start"] = await asyncio.to_thread(footprint.start, entries, vectors, place)
        return figures
    finally:
        for one in (store, filled):
            await empty(one)
            await one.aclose()


def questions(sets: Sequence[folder.ToolSet], count: int) -> list[str]:
    """Requests of people, in equal shares from three of the development sets, or from all sets of other data.

    Raises:
        DataError: there is no request that the registry takes.
    """
    asking = {s.name: s for s in sets if s.queries}
    chosen = [asking[n] for n in ("livemcp", "azure_mcp", "bfcl") if n in asking] or list(asking.values())
    found: list[str] = []
    for one in chosen:
        # callers add a number to each, so that they differ
        taken = [q.text for q in one.queries if not product.refused(f"{q.text} {_LARGEST}")]
        found += taken[: -(-count // len(chosen))]
    if not found:
        raise folder.DataError(f"no set has {folder.QUERIES} with a request that the registry takes")
    return found[:count]


def sizes(text: str) -> list[int]:
    """`1000,10000` as numbers; empty: none."""
    return [int(t) for t in text.split(",") if t]


def options(arguments: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, default=kept.cache_folder())
    parser.add_argument("--sizes", type=sizes, default=[1_000, 10_000, 100_000])
    parser.add_argument("--http-sizes", type=sizes, default=[1_000, 10_000])
    parser.add_argument("--stores", choices=("auto", "embedded", "weaviate"), default="auto")
    parser.add_argument("--weaviate-sizes", type=sizes, default=[1_000, 10_000])
    parser.add_argument("--queries", type=int, default=90, help="at least 1")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=outcome.writable)
    chosen = parser.parse_args(arguments)
    if chosen.queries < 1:
        parser.error("--queries must be at least 1")
    return chosen


def main(arguments: list[str]) -> int:
    """Print the tables; 2 for data that is not what it should be."""
    chosen = options(arguments)

    def measured() -> int:
        sets = folder.read(chosen.data)
        texts = questions(sets, chosen.queries)
        figures = {"machine": measure.machine(), **asyncio.run(run(chosen, sets, texts))}
        for size in chosen.http_sizes:
            figures[f"http/{size}"] = callers.through_http(
                chosen.data, chosen.cache, size, texts, chosen.seconds
            )
        outcome.write(chosen.out, figures)
        return 0

    return outcome.status(measured, MissingPartError, NotReadyError)


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:  # one thread a product; numpy looks at it when it is loaded
        alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **alone})
    sys.exit(main(sys.argv[1:]))
