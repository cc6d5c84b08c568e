"""One table: how good and how quick a search is in catalogs of 100, 1,000 and 10,000 tools.

    python bench/search/run.py sizes DATA [--sizes 100,1000,10000] [--queries 480] [--out FILE]

The same requests are asked at every size. Each catalog holds the right tools of some of them, at most in half of its
places, and others of all sets drawn at random; so the requests are spread over several small catalogs, or asked in one large one.
Only requests that the packaged model was not trained on are asked (`bench/research/held.py`). Latency is that of one caller, from the
text to the answer, the encoding included. Just before each search the same text is encoded alone: `ratio` is p50 to its p50.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "research"))

import folder
import held
import measure
import metrics
import numpy as np
import outcome
import product
import vectors as kept
from compare import embedder
from vectors import Remembered

from toolcrib_registry.search.entry import IndexEntry

SIZES = (100, 1_000, 10_000)
HITS = ("hit@1", "hit@3", "hit@5", "hit@10")
_SEED = 16


@dataclass(frozen=True)
class Catalog:
    """Tools, and requests that one of them answers."""

    tools: list[IndexEntry]
    queries: list[folder.Query]


def catalogs(whole: folder.ToolSet, queries: Sequence[folder.Query], size: int) -> list[Catalog]:
    """As many catalogs of `size` tools as it takes for each of `queries` to find its right tools in one."""
    by_id = {t.tool_id: t for t in whole.tools}
    made: list[Catalog] = []
    chance = random.Random(_SEED)
    needed: set[str] = set()
    own: list[folder.Query] = []

    def close() -> None:
        others = [t for t in whole.tools if t.tool_id not in needed]
        drawn = chance.sample(others, size - len(needed))
        made.append(Catalog([by_id[i] for i in sorted(needed)] + drawn, list(own)))

    for query in queries:
        right = query.sought.places.keys() & by_id.keys()
        if own and len(needed | right) > size // 2:
            close()
            needed, own = set(), []
        needed |= right
        own.append(query)
    close()
    return made


async def measured(catalogs: Sequence[Catalog], remembered: Remembered) -> dict[str, float]:
    """hit@k, p50, p95 and p99 in ms, and p50 to that of an encoding, of all requests of `catalogs`."""
    ranks, spent, alone = [], [], []
    for catalog in catalogs:
        rows = await remembered.embed_tools(catalog.tools)
        async with product.embedded(catalog.tools, rows, remembered) as ours:
            remembered.live = True
            try:
                for query in catalog.queries:
                    start = time.perf_counter()
                    await remembered.embed_request([query.text])
                    alone.append(time.perf_counter() - start)
                    answer = await ours.ask(query.text, ours.mode)
                    spent.append(answer.seconds)
                    right = query.sought.places.keys() | query.sought.anywhere
                    ranks.append(
                        next((n for n, i in enumerate(answer.found, 1) if i in right), metrics.DEPTH + 1)
                    )
            finally:
                remembered.live = False
    p50, p95, p99 = (float(p) for p in np.percentile(spent, [50, 95, 99]) * 1e3)
    encoding = float(np.median(alone)) * 1e3
    hits = {name: sum(r <= int(name[4:]) for r in ranks) / len(ranks) for name in HITS}
    return {
        **hits, "p50": p50, "p95": p95, "p99": p99, "encoding_p50": encoding, "ratio": p50 / encoding,
        "ratio_p95": p95 / encoding, "ratio_p99": p99 / encoding, "requests": len(ranks), "catalogs": len(catalogs),
    }  # fmt: skip


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="sizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--queries", type=int, default=480)
    parser.add_argument("--cache", type=Path, default=kept.cache_folder())
    parser.add_argument("--out", type=outcome.writable)
    return parser.parse_args(arguments)


async def _main(chosen: argparse.Namespace) -> int:
    sets = folder.read(chosen.data)
    whole = folder.pooled(sets)
    ids = {t.tool_id for t in whole.tools}
    asked = [
        q for q in whole.queries
        if held.is_held(q.text) and not product.refused(q.text) and ids >= q.sought.places.keys()
    ]  # fmt: skip
    if not asked:
        raise folder.DataError(f"{chosen.data}: no request that the model was not trained on")
    random.Random(_SEED).shuffle(asked)
    asked = asked[: chosen.queries]
    remembered = embedder(None, chosen.cache)
    figures = {}
    for size in (int(s) for s in chosen.sizes.split(",")):
        if size > len(whole.tools):
            print(f"{chosen.data} has {len(whole.tools):,} tools: no catalog of {size:,}", file=sys.stderr)
            continue
        figures[str(size)] = await measured(catalogs(whole, asked, size), remembered)
    await remembered.aclose()
    machine = measure.machine()
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in machine.items()))
    measure.table(
        f"{len(asked)} requests that the model was not trained on, in catalogs of a size",
        ["tools", *HITS, "p50 ms", "p95 ms", "p99 ms", "p50 / encoding", "p95 / encoding", "p99 / encoding", "encoding p50 ms"],
        [
            [
                f"{int(size):,}", *(f"{f[h]:.3f}" for h in HITS), *(f"{f[p]:.1f}" for p in ("p50", "p95", "p99")),
                f"{f['ratio']:.1f}", f"{f['ratio_p95']:.1f}", f"{f['ratio_p99']:.1f}", f"{f['encoding_p50']:.1f}",
            ]
            for size, f in figures.items()
        ],
    )  # fmt: skip
    outcome.write(chosen.out, {"machine": machine, "sizes": figures})
    return 0


def main(arguments: Sequence[str]) -> int:
    """Print the table; 2 for data that is not what it should be."""
    chosen = options(arguments)
    return outcome.status(lambda: asyncio.run(_main(chosen)))
