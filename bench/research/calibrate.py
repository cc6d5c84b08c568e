"""Fit the confidence of a hit to the development data, and show how well it is calibrated.

    python bench/research/calibrate.py DATA [--model FOLDER] [--write] [--limit 200]

Run it again when the model, the tokens or the weights change: `--write` puts the numbers into
`registry_api/toolcrib_registry/search/calibration.py`. Vectors are kept between runs, as those of `make bench-search`.
DATA is any data in the format of bench/README.md; each of its sets with twenty requests takes part. Of the development
sets the packaged model is asked only what it was not trained on (`held.py`).

Each hit among the best five of a request is one sample: did it answer the request? Requests are asked of views of
10, 50 and 200 tools (with and without a right one) and of the whole set, because an agent may see four tools or four
thousand. Requests that nothing answers come from other sets and from strings without meaning. Two logistic
regressions come out, with and without a cosine, each followed by the correction for the running minimum along a
ranking (`search/confidence.py`); then the cut below which nothing fits (`cut.py`).

With a cosine, slopes are fitted with an intercept for each set, then one intercept for all: the sets differ in how
their requests are worded and labelled, and without that common words would look like evidence against a tool.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "search"))

import cut
import folder
import numpy as np
import vectors
from asked import FOREIGN, Asked, catalogs, ranked
from asked import indexed as indexed
from asked import understood as understood
from numpy.typing import NDArray

import toolcrib_registry.search.confidence
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.search.confidence import logistic
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.ranking import RankingIndex

VIEWS = (10, 50, 200, 100_000)
OUTPUT = Path(toolcrib_registry.search.confidence.__file__).with_name("calibration.py")

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """Hits, those of one answer together and best first: an array with one number a hit for each field."""

    dense: Matrix
    root: Matrix
    """Square root of the words' share."""
    first: NDArray[np.bool_]
    """Whether it is the best of its answer."""
    right: Matrix
    weight: Matrix
    """Every set weighs the same."""
    number: Matrix
    """Of the set."""


def samples(
    sets: dict[str, tuple[RankingIndex, list[Asked]]], nonsense: list[Asked], seed: int, dense: bool
) -> Samples:
    """Hits with their evidence and whether they are right."""
    chance = random.Random(seed)
    rows: list[tuple[float, ...]] = []
    for number, (name, (index, own)) in enumerate(sets.items()):
        ids = sorted(e.tool_id for e in index.entries())
        asked = [*own, *nonsense]
        if name in FOREIGN and FOREIGN[name] in sets:
            foreign = sets[FOREIGN[name]][1]
            for one in chance.sample(foreign, min(len(own) // 3, len(foreign))):
                asked.append(Asked(one.text, one.vector, one.parts, frozenset()))
        batch: list[tuple[float, ...]] = []
        for one in asked:
            for size in VIEWS:
                view = set(ids) if size >= len(ids) else set(chance.sample(ids, size))
                if size < len(ids) and chance.random() < 0.6:
                    view |= one.right
                for place, hit in enumerate(ranked(index, one, view, 5, dense)):
                    is_right = hit.entry.tool_id in one.right
                    root = math.sqrt(min(hit.lexical, 1.0))
                    batch.append((hit.dense or 0.0, root, not place, is_right, number))
        rows += [(*row, 1000.0 / len(batch)) for row in batch]
    cosine, root, first, right, of_set, weight = np.array(rows, np.float64).T
    return Samples(cosine, root, first > 0, right, weight, of_set)


def fit(data: Samples, dense: bool) -> tuple[float, float, float]:
    """Intercept, slope of the cosine, slope of the root: for use with the running minimum."""
    features = np.column_stack([data.dense, data.root]) if dense else data.root[:, None]
    group = data.number if dense else np.zeros_like(data.number)
    dummies = (group[:, None] == np.unique(group)[None, 1:]).astype(float)
    beta = _newton(np.column_stack([np.ones(len(group)), features, dummies]), data.right, data.weight)
    slopes = beta[1 : 1 + features.shape[1]]
    raw = least_so_far(features @ slopes, data.first)
    offset, scale = _newton(np.column_stack([np.ones(len(raw)), raw]), data.right, data.weight)
    found = [round(float(x), 2) for x in (offset, *(scale * slopes))]
    return (found[0], found[1], found[2]) if dense else (found[0], 0.0, found[1])


def said(data: Samples, numbers: tuple[float, float, float]) -> Matrix:
    """The confidence of each hit with these numbers."""
    logit = numbers[0] + numbers[1] * data.dense + numbers[2] * data.root
    made: Matrix = 1.0 / (1.0 + np.exp(-least_so_far(logit, data.first)))
    return made


def least_so_far(values: Matrix, first: NDArray[np.bool_]) -> Matrix:
    """The running minimum within each answer."""
    least = values.copy()
    for i in np.flatnonzero(~first):
        least[i] = min(least[i], least[i - 1])
    return least


def _newton(x: Matrix, label: Matrix, weight: Matrix) -> Matrix:
    """Weighted logistic regression by Newton's method."""
    beta = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(beta))
        beta += np.linalg.solve(curvature, x.T @ (weight * (label - p)) - 1e-3 * beta)
    return beta


def error_of(p: Matrix, data: Samples, chosen: NDArray[np.bool_], show: bool = False) -> float:
    """The expected calibration error by tenths; with `show` the table of it."""
    error, total = 0.0, data.weight[chosen].sum()
    for tenth in range(10):
        inside = chosen & (np.minimum((p * 10).astype(int), 9) == tenth)
        if data.weight[inside].sum() > 0:
            told = np.average(p[inside], weights=data.weight[inside])
            seen = np.average(data.right[inside], weights=data.weight[inside])
            share = data.weight[inside].sum() / total
            error += share * abs(told - seen)
            if show:
                print(
                    f"  {tenth / 10:.1f}-{tenth / 10 + 0.1:.1f}  said {told:.3f}  seen {seen:.3f}  share {share:.3f}"
                )
    return error


def report(label: str, data: Samples, numbers: tuple[float, float, float], names: Sequence[str]) -> None:
    """Print how good `numbers` are on `data`."""
    p = said(data, numbers)
    everything = np.ones(len(p), np.bool_)
    print(f"\n{label}: {numbers}")
    print(f"  expected calibration error {error_of(p, data, everything, show=True):.3f}; by set:")
    print("  " + ", ".join(f"{n} {error_of(p, data, data.number == i):.3f}" for i, n in enumerate(names)))


def written(
    both: tuple[float, float, float], words: tuple[float, float, float], least: cut.Numbers, model: str
) -> str:
    """The module with the numbers."""
    return (
        '"""Numbers of `search/confidence.py`, fitted and written by `bench/research/calibrate.py --write`."""\n\n'
        "from __future__ import annotations\n\n"
        f'FITTED_FOR = "{model}"\n"""The embedder whose cosines these are."""\n'
        f'WITH_DENSE = {both!r}\n"""Intercept, slope of the cosine, slope of the root of the words\' share."""\n'
        f'LEXICAL_ONLY = {words!r}\n"""The same where there is no cosine."""\n'
        f'LEAST_FIT = {least!r}\n"""A best hit of less is right so seldom that nothing fits: the confidence in a view of '
        "ten tools, how many times\nthat in one of ten times as many, and the view from which on it rises no more. "
        f'Emptying those answers loses {cut.LOSS:.1%} of\nthe right hits at most, in views of any size."""\n'
    )


async def run(options: argparse.Namespace) -> None:
    """Fit on one draw of views, check on another."""
    embedder = vectors.Remembered([options.embedder], vectors.cache_folder())
    sets, nonsense = await catalogs(options.data, embedder, options.limit, trained=options.model is None)
    fitted = {dense: fit(samples(sets, nonsense, 1, dense), dense) for dense in (True, False)}
    for dense, label in ((True, "with a cosine"), (False, "without a cosine")):
        report(label, samples(sets, nonsense, 2, dense), fitted[dense], list(sets))
    least = cut.fit(cut.answers(sets, nonsense, fitted[True], 3))
    cut.show(cut.answers(sets, nonsense, fitted[True], 4), least)
    print("\nnonsense, best of each set with a cosine: " + _worst(sets, nonsense, fitted[True]))
    text = written(fitted[True], fitted[False], least, embedder.name)
    if options.write:
        OUTPUT.write_text(text)
        print(f"\nwritten: {OUTPUT.name}")
    else:
        print(f"\n{text}")
    await embedder.aclose()


def _worst(
    sets: dict[str, tuple[RankingIndex, list[Asked]]],
    nonsense: list[Asked],
    numbers: tuple[float, float, float],
) -> str:
    found = []
    for name, (index, _) in sets.items():
        ids = {e.tool_id for e in index.entries()}
        best = []
        for one in nonsense:
            hit = ranked(index, one, ids, 1, True)[0]
            best.append((logistic(hit.lexical, hit.dense, numbers), one.text))
        sure, text = max(best)
        found.append(f"{name} {sure:.2f} ({text})")
    return ", ".join(found)


def main() -> int:
    """Read the options and run; 2 for data or a model that is not what it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--model", type=Path, help="a folder with model.onnx and tokenizer.json; else the packaged one"
    )
    parser.add_argument("--write", action="store_true", help="put the numbers into the package")
    parser.add_argument("--limit", type=int, default=200, help="requests a set")
    options = parser.parse_args()
    try:
        options.embedder = OnnxEmbedder(options.model) if options.model else OnnxEmbedder.packaged()
        asyncio.run(run(options))
    except (folder.DataError, EmbedderUnavailable) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
