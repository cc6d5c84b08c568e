"""Search quality and speed of every method on every set of a folder: `make bench-search [DATA=…] [OUT=…]`.

    python bench/search/run.py compare DATA [--out FILE] [--limit 500] [--sets a,b] [--stores auto|embedded|weaviate]

Tables go to the screen, progress to the standard error, everything to bench/out/search.json (`--everything`). `--out` receives
`{set: {method: {"hit@1", "recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr", "zero_hit"}}}`, written anew after each
set. The figures are defined in metrics.py, the data format in folder.py. Nothing outside this machine is contacted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import folder
import measure
import outcome
import report
from evaluate import METHODS, Bench, Evaluation
from vectors import Remembered, cache_folder

from realparts.lookup import MissingPartError
from realparts.processes import NotReadyError
from realparts.weaviate import Weaviate
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder

OUT = Path(__file__).parents[1] / "out"
_POOLED = 200
_ENCODERS = 2


def options(arguments: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a folder with one folder a set")
    parser.add_argument("--out", type=outcome.writable, help="the figures as JSON")
    parser.add_argument("--limit", type=int, help="only the first so many requests a set")
    parser.add_argument("--sets", default="", help="only these, by comma; all folders of DATA without it")
    parser.add_argument("--methods", default=",".join(METHODS), help="by comma")
    parser.add_argument(
        "--stores", choices=("auto", "embedded", "weaviate"), default="auto",
        help="auto: Weaviate too where its program is here; weaviate: fail without it",
    )  # fmt: skip
    parser.add_argument(
        "--pooled", type=int, default=_POOLED,
        help=f"requests a set that are also asked of all tools of all sets together (default {_POOLED}; 0: none)",
    )  # fmt: skip
    parser.add_argument(
        "--model", type=Path, help="a folder with model.onnx and tokenizer.json; else the packaged one"
    )
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where vectors are kept")
    parser.add_argument(
        "--sample", type=int, default=100, help="requests a set that are timed with their encoding"
    )
    parser.add_argument(
        "--everything", type=outcome.writable, default=str(OUT / "search.json"),
        help="all that is measured, times too, as JSON (default bench/out/search.json)",
    )  # fmt: skip
    with contextlib.suppress(OSError):
        OUT.mkdir(exist_ok=True)
    chosen = parser.parse_args(arguments)
    chosen.methods = [m for m in chosen.methods.split(",") if m]
    if unknown := sorted(set(chosen.methods) - set(METHODS)):
        parser.error(f"unknown methods: {', '.join(unknown)}; there are: {', '.join(METHODS)}")
    if not chosen.methods:
        parser.error(f"--methods names none; there are: {', '.join(METHODS)}")
    if chosen.limit is not None and chosen.limit < 1:
        parser.error("--limit must be at least 1")
    return chosen


def embedder(model: Path | None, cache: Path | None) -> Remembered:
    """The packaged model, or that of a folder; a second one of it where a second core is idle."""

    def load() -> OnnxEmbedder:
        return OnnxEmbedder.packaged() if model is None else OnnxEmbedder(model)

    idle = (os.cpu_count() or 1) - os.getloadavg()[0]
    return Remembered([load() for _ in range(_ENCODERS if idle > 1.5 else 1)], cache)


@contextlib.contextmanager
def weaviate(stores: str) -> Iterator[Weaviate | None]:
    """A server on loopback, or None where there is none.

    Raises:
        MissingPartError: `stores` wants one, and its program is not here.
        NotReadyError: it wants one, and that does not start.
    """
    if stores == "embedded":
        yield None
        return
    with contextlib.ExitStack() as running:
        try:
            server = running.enter_context(Weaviate())
        except (MissingPartError, NotReadyError) as error:
            if stores == "weaviate":
                raise
            print(f"without Weaviate: {error}", file=sys.stderr)
            server = None
        yield server


async def run(chosen: argparse.Namespace) -> int:
    """Measure and print; 1 where a method failed."""
    started = time.perf_counter()
    only = [s for s in chosen.sets.split(",") if s]
    sets = folder.read(chosen.data, limit=chosen.limit, only=only)
    remembered = embedder(chosen.model, chosen.cache)
    machine = measure.machine()
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in machine.items()))
    print(f"embedder {remembered.name}, {remembered.dimension} dimensions")
    done: list[Evaluation] = []
    whole: Evaluation | None = None
    with weaviate(chosen.stores if "hybrid_weaviate" in chosen.methods else "embedded") as server:
        bench = Bench(remembered, server, chosen.methods, chosen.sample)
        for tools in sets:
            print(f"{tools.name}: {len(tools.tools)} tools, {len(tools.queries)} queries", file=sys.stderr)
            if not tools.queries:
                continue
            done.append(await bench.evaluate(tools))
            report.catalog(done[-1])
            outcome.write(chosen.out, report.published(done))
        if chosen.pooled > 0 and len(sets) > 1 and done:
            whole = await _pooled(bench, sets, chosen.pooled)
            report.pooled(whole)
    await remembered.aclose()
    report.summary(done)
    problems = [p for e in [*done, *([whole] if whole else [])] for p in e.problems]
    if not done:
        print(f"{chosen.data}: no set has {folder.QUERIES}: nothing to measure", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - started
    everything = report.everything(done, whole)
    everything |= {"machine": machine, "embedder": remembered.name, "seconds": seconds, "problems": problems}
    outcome.write(chosen.everything, everything)
    print(f"  ({seconds:.0f} s)")
    return 1 if problems else 0


async def _pooled(bench: Bench, sets: list[folder.ToolSet], limit: int) -> Evaluation:
    cut = [folder.ToolSet(s.name, s.tools, s.queries[:limit], s.remarks) for s in sets]
    everything = folder.pooled(cut)
    print(f"pooled: {len(everything.tools)} tools, {len(everything.queries)} queries", file=sys.stderr)
    # each of its searches takes many times as long there, and the sets say how far the stores agree
    return await dataclasses.replace(bench, weaviate=None).evaluate(everything)


def main(arguments: list[str]) -> int:
    """Run; 2 for data that is not what it should be."""
    chosen = options(arguments)
    return outcome.status(lambda: asyncio.run(run(chosen)), MissingPartError, NotReadyError)
