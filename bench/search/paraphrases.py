"""Semantic against keyword search, by how much a request has in common with the words of the right tools.

    python bench/search/run.py paraphrases DATA [--limit 500] [--out FILE]

Only requests that the packaged model was not trained on (`bench/research/held.py`), in three classes, by stems without
stop words: `name` shares a word with the name of a right tool, `text` with its description alone, `none` with neither. F1 of
the first R hits, where R tools are right; the mean of the requests of all sets, and a 95 % interval by 1,000 bootstrap samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "research"))

import folder
import held
import measure
import numpy as np
import outcome
import product
import vectors as kept
from compare import embedder
from evaluate import Bench
from metrics import Sought, gains_of

from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.text import query_terms, split_identifier, terms

METHODS = ("keyword", "bm25", "dense", "hybrid")
CLASSES = ("name", "text", "none")
SAMPLES = 1_000
_SEED = 20


def kind(query: folder.Query, tools: Mapping[str, IndexEntry]) -> str:
    """Which class a request is of."""
    asked = set(query_terms(query.text))
    right = [tools[i] for i in query.sought.places if i in tools]
    if any(asked & set(terms(split_identifier(tool.name))) for tool in right):
        return "name"
    return "text" if any(asked & set(terms(tool.description)) for tool in right) else "none"


def f1(found: Sequence[str], sought: Sought) -> float:
    """F1 of the first R hits, where R tools are right."""
    shown = list(dict.fromkeys(found))[: sought.count]
    right = sum(gains_of(shown, sought))
    return 2 * right / (len(shown) + sought.count) if right else 0.0


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and the ends of its 95 % interval."""
    array, chance = np.array(values), np.random.default_rng(_SEED)
    means = array[chance.integers(len(array), size=(SAMPLES, len(array)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(array.mean()), float(low), float(high)


async def measured(sets: Sequence[folder.ToolSet], cache: Path) -> dict[str, dict[str, list[float]]]:
    """F1 of each request, by class and method."""
    figures: dict[str, dict[str, list[float]]] = {c: {m: [] for m in METHODS} for c in CLASSES}
    remembered = embedder(None, cache)
    bench = Bench(remembered, methods=METHODS, sample=0, needs=False)
    for tools in sets:
        tools.queries[:] = [q for q in tools.queries if held.is_held(q.text) and not product.refused(q.text)]
        if not tools.queries:
            continue
        by_id = {t.tool_id: t for t in tools.tools}
        done = await bench.evaluate(tools)
        if done.problems:
            raise SystemExit("\n".join(done.problems))
        for method in METHODS:
            result = done.results[method]
            for (query, _), found in zip(result.each, result.found, strict=True):
                figures[kind(query, by_id)][method].append(f1(found, query.sought))
    await remembered.aclose()
    return figures


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="paraphrases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--limit", type=int, help="requests of a set")
    parser.add_argument("--cache", type=Path, default=kept.cache_folder())
    parser.add_argument("--out", type=outcome.writable)
    chosen = parser.parse_args(arguments)
    figures = asyncio.run(measured(folder.read(chosen.data, limit=chosen.limit), chosen.cache))
    rows, written = [], {}
    for name, methods in figures.items():
        if not methods[METHODS[0]]:
            continue
        found = {method: interval(values) for method, values in methods.items()}
        written[name] = {"requests": len(methods[METHODS[0]]), **found}
        shown = [f"{mean:.3f} ({low:.3f} to {high:.3f})" for mean, low, high in found.values()]
        rows.append([name, f"{len(methods[METHODS[0]]):,}", *shown])
    measure.table("F1 by what a request has in common with the right tools", ["", "requests", *METHODS], rows)
    if chosen.out:
        chosen.out.write_text(json.dumps(written, indent=1) + "\n")
    return 0
