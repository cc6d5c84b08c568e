"""nDCG@5, R@5 and hit@1 of the embedded ranking on the development sets.

    python bench/search/quality.py DATA [--cache DIR] [--limit 500] [--sets a,b]

DATA holds `<set>/tools.jsonl` and `<set>/queries.jsonl`. The figures of one run are comparable with each other;
a difference under one point is noise.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import datasets
import numpy as np

from toolcrib_registry.search.document import document
from toolcrib_registry.search.ranking import DENSE_WEIGHT, RankingIndex

MODES = {"lexical": 0.0, "hybrid": DENSE_WEIGHT, "dense": 1.0}


def scores(found: list[str], query: datasets.Query) -> tuple[float, float, float]:
    """(hit@1, recall@5, nDCG@5) of one answer, best first."""
    relevant = set(query.relevant)
    alike = relevant | set(query.equivalent)
    gains = [1.0 if f in alike else 0.0 for f in found[:5]]
    ideal = sum(1 / math.log2(i + 2) for i in range(min(5, len(relevant))))
    dcg = sum(g / math.log2(i + 2) for i, g in enumerate(gains))
    return gains[0] if gains else 0.0, min(1.0, sum(gains) / len(relevant)), min(1.0, dcg / ideal)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--sets", default=",".join(datasets.WITH_QUERIES))
    options = parser.parse_args()
    table: dict[str, list[tuple[str, np.ndarray]]] = {m: [] for m in MODES}
    spent: list[float] = []
    for name in options.sets.split(","):
        data = datasets.load(options.data, name, options.cache, options.limit)
        index = RankingIndex(data.tool_vectors.shape[1])
        for entry, vector in zip(data.tools, data.tool_vectors, strict=True):
            index.put(document(entry), vector)
        ids = [t.tool_id for t in data.tools]
        for mode, weight in MODES.items():
            results = []
            for query, vector in zip(data.queries, data.query_vectors, strict=True):
                start = time.perf_counter()
                ranked = index.rank(
                    query.text, None if mode == "lexical" else vector, ids, limit=5, dense_weight=weight
                )
                spent.append(time.perf_counter() - start)
                results.append(scores([r.entry.tool_id for r in ranked], query))
            table[mode].append((name, np.mean(results, axis=0)))
    print(
        f"{'':10}" + "".join(f"{n:>11}" for n, _ in table["hybrid"]) + f"{'nDCG@5':>11}{'R@5':>8}{'hit@1':>8}"
    )
    for mode, rows in table.items():
        mean = np.mean([r for _, r in rows], axis=0)
        print(
            f"{mode:10}"
            + "".join(f"{r[2]:11.3f}" for _, r in rows)
            + f"{mean[2]:11.3f}{mean[1]:8.3f}{mean[0]:8.3f}"
        )
    print(f"rank: p50 {np.percentile(spent, 50) * 1e3:.2f} ms, p99 {np.percentile(spent, 99) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
