"""Fit the confidence of a hit to the development data, and show how well it is calibrated.

    python bench/search/calibrate.py DATA [--cache DIR]

Each hit among the best five of a query is one sample: did it answer the request? The queries are asked of views of
10, 50 and 200 tools (with and without the right one) and of the whole set, because an agent may see four tools or
four thousand. Requests that nothing answers come from other sets and from strings without meaning. Two logistic
regressions come out, with and without a cosine: copy the printed numbers into `search/confidence.py`.

With a cosine, slopes are fitted with an intercept for each set, then one intercept for all: the sets differ in how
their requests are worded and labelled, and without that common words would look like evidence against a tool.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import datasets
import numpy as np
from numpy.typing import NDArray

from toolcrib_registry.adapters.onnx_embedder import OnnxEmbedder
from toolcrib_registry.search.confidence import confidence
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.ranking import RankingIndex

FOREIGN = {"azure_mcp": "toole", "toole": "azure_mcp", "sealtools": "azure_mcp", "bfcl": "azure_mcp"}
"""Whose queries hardly any tool of a set answers."""
VIEWS = (10, 50, 200, 10_000)
NONSENSE = (
    "asdf qwer zxcv", "lorem ipsum dolor sit amet consectetur", "xyzzy plugh", "flurble the gnarf quickly",
    "blah blah blah", "the of and to", "qqqqq", "purple monkey dishwasher", "colorless green ideas sleep furiously",
    "foo bar baz", "hello", "wibble wobble", "zzz", "1234567890", "jabberwocky brillig slithy toves", "ok thanks",
    "do it", "florbnax vizzle tront", "tell me something", "aaaaaaaa bbbbbbb ccccc",
)  # fmt: skip

Matrix = NDArray[np.float64]
Sample = tuple[float, float, float, float, float]
"""(dense, lexical, label, weight, number of the set)"""


def samples(data: Path, cache: Path | None, limit: int, seed: int) -> list[Sample]:
    """Hits with their evidence and whether they are right."""
    chance = random.Random(seed)
    embedder = OnnxEmbedder.packaged()
    nonsense = datasets.encode(embedder, NONSENSE, cache)
    sets = {n: datasets.load(data, n, cache, limit) for n in datasets.WITH_QUERIES}
    found: list[Sample] = []
    for number, (name, tools) in enumerate(sets.items()):
        index = RankingIndex(tools.tool_vectors.shape[1])
        for entry, vector in zip(tools.tools, tools.tool_vectors, strict=True):
            index.put(document(entry), vector)
        ids = [t.tool_id for t in tools.tools]
        asked: list[tuple[str, Vector, set[str]]] = [
            (q.text, v, {*q.relevant, *q.equivalent})
            for q, v in zip(tools.queries, tools.query_vectors, strict=True)
        ]
        if other := sets.get(FOREIGN.get(name, "")):
            pairs = list(zip(other.queries, other.query_vectors, strict=True))
            asked += [(q.text, v, set()) for q, v in chance.sample(pairs, min(len(asked) // 3, len(pairs)))]
        asked += [(t, v, set()) for t, v in zip(NONSENSE, nonsense, strict=True)]
        batch: list[tuple[float, float, float]] = []
        for text, vector, right in asked:
            for size in VIEWS:
                view = set(ids) if size >= len(ids) else set(chance.sample(ids, size))
                if size < len(ids) and chance.random() < 0.6:
                    view |= right
                for hit in index.rank(text, vector, view, limit=5):
                    assert hit.dense is not None
                    batch.append((hit.dense, hit.lexical, float(hit.entry.tool_id in right)))
        found += [(*s, 1000.0 / len(batch), float(number)) for s in batch]
    return found


def fit(features: Matrix, label: Matrix, weight: Matrix, group: Matrix) -> Matrix:
    """Weighted logistic regression by Newton's method: one intercept, then a slope a feature."""
    dummies = (group[:, None] == np.unique(group)[None, 1:]).astype(float)
    slopes = _newton(np.column_stack([np.ones(len(label)), features, dummies]), label, weight)
    slopes = slopes[1 : 1 + features.shape[1]]
    offset = features @ slopes
    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        missing = float((weight * (label - 1 / (1 + np.exp(-middle - offset)))).sum())
        low, high = (middle, high) if missing > 0 else (low, middle)
    return np.array([low, *slopes])


def _newton(x: Matrix, label: Matrix, weight: Matrix) -> Matrix:
    beta = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(beta))
        beta += np.linalg.solve(curvature, x.T @ (weight * (label - p)) - 1e-3 * beta)
    return beta


def reliability(predicted: Matrix, label: Matrix, weight: Matrix) -> None:
    """Print predicted against observed by tenths, and the expected calibration error."""
    error = 0.0
    for low in np.arange(0, 1, 0.1):
        inside = (predicted >= low) & (predicted < low + 0.1)
        if weight[inside].sum() > 0:
            said = np.average(predicted[inside], weights=weight[inside])
            seen = np.average(label[inside], weights=weight[inside])
            share = weight[inside].sum() / weight.sum()
            error += share * abs(said - seen)
            print(f"  {low:.1f}-{low + 0.1:.1f}  said {said:.3f}  seen {seen:.3f}  share {share:.3f}")
    print(f"  expected calibration error {error:.4f}")


def main() -> None:
    """Fit on one draw of views, check what the code says on another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--limit", type=int, default=300)
    options = parser.parse_args()
    dense, lexical, label, weight, group = np.array(samples(options.data, options.cache, options.limit, 1)).T
    root = np.sqrt(lexical)
    print("with a cosine:   ", fit(np.column_stack([dense, root]), label, weight, group).round(2))
    print("without a cosine:", fit(root[:, None], label, weight, np.zeros_like(group)).round(2))
    dense, lexical, label, weight, _ = np.array(samples(options.data, options.cache, options.limit, 2)).T
    print("what the code says now, with a cosine:")
    reliability(np.array([confidence(x, d) for d, x in zip(dense, lexical, strict=True)]), label, weight)
    print("without:")
    reliability(np.array([confidence(x, None) for x in lexical]), label, weight)
    embedder = OnnxEmbedder.packaged()
    mcp = datasets.load(options.data, "mcp_tools", options.cache)
    index = RankingIndex(mcp.tool_vectors.shape[1])
    for entry, vector in zip(mcp.tools, mcp.tool_vectors, strict=True):
        index.put(document(entry), vector)
    print("best hit in the catalog:")
    queries = (
        *NONSENSE,
        "create an issue on github",
        "weather tomorrow in Paris",
        "send a message to a slack channel",
    )
    for text, vector in zip(queries, datasets.encode(embedder, queries, options.cache), strict=True):
        best = index.rank(text, vector, [t.tool_id for t in mcp.tools], limit=1)[0]
        print(
            f"  {confidence(best.lexical, best.dense):.2f} / {confidence(best.lexical, None):.2f}  "
            f"{text[:40]:42}{best.entry.tool_id}"
        )


if __name__ == "__main__":
    main()
