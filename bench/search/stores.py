"""Search latency through both stores on the real catalog, and how near Weaviate comes to the exact ranking.

    python bench/search/stores.py DATA [--cache DIR] [--weaviate HTTP_PORT:GRPC_PORT]

Queries are names and descriptions of tools in other words than theirs: the development queries of livemcp, toole and
bfcl. Views are the whole catalog, a tenth of it by scope, and 200 and 20 tools. Times include everything from the
text to the answer but the encoding of the query, which is shown apart.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import tempfile
import time
from pathlib import Path

import datasets
import numpy as np

from toolcrib_registry.adapters.embedded_store import EmbeddedStore
from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder
from toolcrib_registry.adapters.weaviate_connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate_store import WeaviateStore
from toolcrib_registry.ports import CatalogStore
from toolcrib_registry.search.embedding import QueryCache, identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.searcher import Searcher


def catalog(data: Path, cache: Path | None) -> tuple[list[IndexEntry], np.ndarray]:
    """The 2,651 tools, each with a scope of its server and of its tenth."""
    tools = datasets.load(data, "mcp_tools", cache)
    entries = [
        dataclasses.replace(e, digest=f"d{i}", scopes=("catalog:use", f"tenth-{i % 10}:use"))
        for i, e in enumerate(tools.tools)
    ]
    return entries, tools.tool_vectors


async def measure(
    name: str,
    store: CatalogStore,
    embedder: QueryCache,
    entries: list[IndexEntry],
    vectors: np.ndarray,
    texts: list[str],
) -> dict[str, list[list[str]]]:
    """Fill `store`, search, print; the answers by view."""
    start = time.perf_counter()
    await store.upsert(entries, vectors)
    print(f"{name}: {len(entries)} entries in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    await store.inventory()
    print(f"{name}: inventory in {time.perf_counter() - start:.2f} s")
    searcher = Searcher(store, embedder, store_seconds=30)
    start = time.perf_counter()
    await searcher.prepare(entries)
    print(f"{name}: words of the snapshot taken in in {time.perf_counter() - start:.2f} s")
    chance = random.Random(7)
    views = {
        "all": (entries, Pushdown(scopes=frozenset({"catalog:use"}))),
        "a tenth": (
            [e for e in entries if "tenth-3:use" in e.scopes],
            Pushdown(scopes=frozenset({"tenth-3:use"})),
        ),
        "200": (chance.sample(entries, 200), Pushdown()),
        "20": (chance.sample(entries, 20), Pushdown()),
    }
    answers: dict[str, list[list[str]]] = {}
    for label, (tools, down) in views.items():
        view = {e.tool_id: e for e in tools}
        spent, found = [], []
        for text in texts:
            await embedder.embed_query(text)
            start = time.perf_counter()
            answer = await searcher.search(view, text, limit=10, pushdown=down)
            spent.append(time.perf_counter() - start)
            assert answer.mode == "hybrid"
            found.append([h.tool_id for h in answer.hits])
        answers[label] = found
        p50, p99 = np.percentile(spent, [50, 99]) * 1e3
        print(f"{name}: {label:8} of {len(view):5} tools  p50 {p50:6.2f} ms  p99 {p99:6.2f} ms")
    searcher.close()
    return answers


async def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--weaviate")
    options = parser.parse_args()
    entries, vectors = await asyncio.to_thread(catalog, options.data, options.cache)
    texts = []
    for name in ("livemcp", "toole", "bfcl"):
        texts += [
            q.text
            for q in (await asyncio.to_thread(datasets.load, options.data, name, options.cache, 40)).queries
        ]
    model = OnnxEmbedder.packaged()
    spent = []
    for text in texts:
        start = time.perf_counter()
        await model.embed_query(text)
        spent.append(time.perf_counter() - start)
    print(
        f"encoding a query: p50 {np.median(spent) * 1e3:.1f} ms, p99 {np.percentile(spent, 99) * 1e3:.1f} ms"
    )
    embedder = QueryCache(model)
    with tempfile.TemporaryDirectory() as folder:
        store = await EmbeddedStore.open(Path(folder), identity_of(model))
        exact = await measure("embedded", store, embedder, entries, vectors, texts)
        await store.aclose()
        start = time.perf_counter()
        store = await EmbeddedStore.open(Path(folder), identity_of(model))
        print(f"embedded: opened again in {time.perf_counter() - start:.2f} s")
        await store.aclose()
    if options.weaviate:
        http, grpc = map(int, options.weaviate.split(":"))
        server = WeaviateStore(
            WeaviateSettings("127.0.0.1", http, grpc_port=grpc, collection_prefix="Bench"), identity_of(model)
        )
        loose = await measure("weaviate", server, embedder, entries, vectors, texts)
        for label, answers in loose.items():
            pairs = list(zip(answers, exact[label], strict=True))
            top5 = np.mean([len(set(a[:5]) & set(b[:5])) / max(1, len(b[:5])) for a, b in pairs])
            first = np.mean([a[:1] == b[:1] for a, b in pairs])
            same = np.mean([a == b for a, b in pairs])
            print(
                f"weaviate: {label:8} same first {first:.3f}, overlap of five {top5:.3f}, same ten {same:.3f}"
            )
        await server.wipe()
        await server.aclose()


if __name__ == "__main__":
    asyncio.run(main())
