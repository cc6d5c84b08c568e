"""How the two stores agree, and what the server's own ranking would be worth.

    python bench/search/run.py stores DATA [--sets mcp_tools,azure_mcp] [--queries 200] [--out FILE]

For each set its tools are a catalog; the requests are its own, or those of the other sets where it has none. Through the
registry's searcher both stores must answer alike. Beside it: what Weaviate's own hybrid search (BM25F over the same terms,
relative-score fusion of its two lists) puts first, and, for sets with requests, what that costs in nDCG@5.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import folder
import metrics
import numpy as np
import recall
import vectors as kept

from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder
from toolcrib_registry.ports import CatalogStore, Embedder
from toolcrib_registry.search.entry import Pushdown, StoreQuery, fingerprint
from toolcrib_registry.search.searcher import Searcher

_DEPTH = 10
_PATIENCE = 60.0


async def _main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default="mcp_tools,azure_mcp")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    sets = folder.read(options.data, limit=options.queries)
    borrowed = [q for i in range(options.queries) for s in sets for q in s.queries[i : i + 1]]
    embedder = kept.Remembered([OnnxEmbedder.packaged()], kept.cache_folder())
    made = {}
    print(
        f"{'set':10} tools requests  same ten  overlap@10  nDCG@5 apart   server's own: overlap@10  nDCG@5 apart"
    )
    for chosen in sets:
        if chosen.name not in options.sets.split(","):
            continue
        entries = [dataclasses.replace(t, digest=fingerprint(t)) for t in chosen.tools]
        catalog = recall.Catalog(entries, await embedder.embed_tools(entries))
        queries = (chosen.queries or borrowed)[: options.queries]
        own = bool(chosen.queries)
        async with recall.stores(catalog, embedder) as stores:
            if "weaviate" not in stores:
                return 2
            exact = await _answers(stores["embedded"], embedder, catalog, queries)
            remote = await _answers(stores["weaviate"], embedder, catalog, queries)
            alone = await _server_alone(stores["weaviate"], embedder, queries)
        figures = {
            "same_ten": float(np.mean([a == b for a, b in zip(remote, exact, strict=True)])),
            "overlap@10": _overlap(remote, exact),
            "ndcg@5_apart": _ndcg(remote, queries) - _ndcg(exact, queries) if own else None,
            "server_overlap@10": _overlap(alone, exact),
            "server_ndcg@5_apart": _ndcg(alone, queries) - _ndcg(exact, queries) if own else None,
        }
        made[chosen.name] = figures
        shown = ["-" if f is None else f"{f:.4f}" for f in figures.values()]
        print(
            f"{chosen.name:10} {len(entries):5} {len(queries):8}  {shown[0]:>8}  {shown[1]:>10}  {shown[2]:>12}"
            f"  {shown[3]:>24}  {shown[4]:>12}",
            flush=True,
        )
    await embedder.aclose()
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    return 0 if all(f["same_ten"] == 1.0 for f in made.values()) else 1


async def _answers(
    store: CatalogStore, embedder: Embedder, catalog: recall.Catalog, queries: Sequence[folder.Query]
) -> list[list[str]]:
    """The first ten of each request, with nothing left out."""
    view = {t.tool_id: t for t in catalog.tools}
    searcher = Searcher(store, embedder, store_seconds=_PATIENCE, embed_seconds=_PATIENCE)
    try:
        await searcher.prepare(catalog.tools)
        found = []
        for query in queries:
            answer = await searcher.search(view, query.text, limit=_DEPTH, pushdown=Pushdown())
            if answer.degradation:
                raise RuntimeError(f"answered as {answer.mode}: {answer.degradation}")
            found.append([h.tool_id for h in answer.hits])
        return found
    finally:
        searcher.close()


async def _server_alone(
    store: CatalogStore, embedder: Embedder, queries: Sequence[folder.Query]
) -> list[list[str]]:
    found = []
    for query in queries:
        vector = await embedder.embed_query(query.text)
        hits = await store.search(StoreQuery(text=query.text, vector=vector, limit=_DEPTH, within=Pushdown()))
        found.append([h.tool_id for h in hits])
    return found


def _overlap(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> float:
    pairs = zip(one, other, strict=True)
    return float(np.mean([len(set(a) & set(b)) / max(1, len(b)) for a, b in pairs]))


def _ndcg(found: Sequence[Sequence[str]], queries: Sequence[folder.Query]) -> float:
    judged = [metrics.judge(f, q.sought) for f, q in zip(found, queries, strict=True)]
    return metrics.mean(judged)["ndcg@5"]


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 if the stores differ, 2 without a Weaviate program."""
    return asyncio.run(_main(arguments))
