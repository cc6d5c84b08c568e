"""nDCG@5 of the exact ranking by the weight of the cosine and by the share of the best part.

    python bench/research/weights.py DATA [--all [--limit 500]]

Asked are the requests that the model was not trained on (`held.py`), unless `--all` is given.

What to run when the model changes, to see whether `search/fusion.py` still has the right numbers. A difference under
one point is noise. `left out` is the mean over the sets of the figure that a set gets with the weight that is best on
the others: it is what choosing is worth on data that had no say in it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "search"))

import calibrate
import folder
import held
import numpy as np
import outcome
import vectors

import toolcrib_registry.search.fusion
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.search.entry import Part
from toolcrib_registry.search.ranking import RankingIndex

WEIGHTS = (0.0, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 1.0)
SHARES = (0.0, 0.3, 0.5, 0.7)
Case = tuple[folder.Query, np.ndarray, list[Part]]


def ndcg(found: list[str], query: folder.Query) -> float:
    """nDCG@5 of one answer, best first."""
    right = {*query.relevant, *query.equivalent}
    got = sum(1 / np.log2(i + 2) for i, f in enumerate(found[:5]) if f in right)
    return float(min(1.0, got / sum(1 / np.log2(i + 2) for i in range(min(5, len(query.relevant))))))


def figure(index: RankingIndex, ids: frozenset[str], cases: list[Case], weight: float) -> float:
    """The mean over the requests; weight 0 is the ranking by words alone, as agents get it without an embedder."""
    found = []
    for query, vector, parts in cases:
        if weight == 0.0:
            ranked = index.rank(query.text, None, ids, limit=5, parts=[Part(p.text) for p in parts])
        else:
            ranked = index.rank(query.text, vector, ids, limit=5, dense_weight=weight, parts=parts)
        found.append(ndcg([r.entry.tool_id for r in ranked], query))
    return float(np.mean(found))


async def run(data: Path, limit: int, everything: bool) -> None:
    """Print both tables."""
    embedder = vectors.Remembered([OnnxEmbedder.packaged()], vectors.cache_folder())
    sets: list[tuple[str, RankingIndex, frozenset[str], list[Case]]] = []
    for tools in folder.read(data, limit=limit if everything else None):
        queries = [q for q in tools.queries if everything or held.is_held(q.text)]
        if queries:
            made = await calibrate.understood(embedder, [q.text for q in queries])
            index = calibrate.indexed(tools, await embedder.embed_tools(tools.tools))
            cases = [(q, v, parts) for q, (v, parts) in zip(queries, made, strict=True)]
            sets.append((tools.name, index, frozenset(t.tool_id for t in tools.tools), cases))
    await embedder.aclose()
    print(f"{'':12}" + "".join(f"{name[:9]:>10}" for name, *_ in sets) + f"{'mean':>9}")
    table = {w: [figure(i, ids, cases, w) for _, i, ids, cases in sets] for w in WEIGHTS}
    show("cosine", table)
    usual = toolcrib_registry.search.fusion.PART_SHARE
    shares = {}
    for share in SHARES:
        toolcrib_registry.search.fusion.PART_SHARE = share
        weight = toolcrib_registry.search.fusion.DENSE_WEIGHT
        shares[share] = [figure(i, ids, cases, weight) for _, i, ids, cases in sets]
    toolcrib_registry.search.fusion.PART_SHARE = usual
    show("part", shares)


def show(label: str, table: dict[float, list[float]]) -> None:
    """Print a row a value, and what choosing is worth."""
    for value, figures in table.items():
        print(
            f"{label} {value:<5.2f}".ljust(12)
            + "".join(f"{f:10.3f}" for f in figures)
            + f"{np.mean(figures):9.4f}"
        )
    values, rows = list(table), np.array(list(table.values()))
    chosen = [int(np.argmax(np.delete(rows, k, axis=1).mean(axis=1))) for k in range(rows.shape[1])]
    left_out = float(np.mean([rows[c, k] for k, c in enumerate(chosen)]))
    print(f"left out    {left_out:.4f} (chosen {', '.join(f'{values[c]:.2f}' for c in chosen)})\n")


def main() -> int:
    """Read the options and run; 2 for data that cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--limit", type=int, default=500, help="requests a set, with --all")
    parser.add_argument("--all", action="store_true", help="also requests that the model was trained on")
    options = parser.parse_args()

    def tables() -> int:
        asyncio.run(run(options.data, options.limit, options.all))
        return 0

    return outcome.status(tables)


if __name__ == "__main__":
    sys.exit(main())
