"""The quality gate: has search become worse on the committed subset? `make search-gate [ARGS=--update]`.

hit@1 and nDCG@5 of what agents get (`hybrid`) and of words alone (`lexical`), for each set and their mean, are held
against bench/search/expected.json. A fall of more than a point fails; in a set of fewer than a hundred requests one
request may turn, because it weighs more than that. `--update` writes the figures of now: for a change that is meant.
Every text is encoded anew, which takes most of its half minute: kept vectors would hide a change of the embedder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import folder
import outcome
from compare import embedder
from evaluate import Bench, Evaluation
from measure import table
from report import means
from subset import SUBSET
from vectors import Remembered

EXPECTED = Path(__file__).parent / "expected.json"
FALL = 0.01
METHODS = ("hybrid", "lexical")
FIGURES = ("hit@1", "ndcg@5")
MEAN = "mean"
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Line:
    """One figure, before and now."""

    where: str
    method: str
    figure: str
    before: float | None
    now: float | None
    allowed: float

    @property
    def bad(self) -> bool:
        """Whether it fell too far, or is on one side only."""
        if self.before is None or self.now is None:
            return True
        return self.before - self.now > self.allowed + _ROUNDING


async def measured(data: Path, remembered: Remembered) -> dict[str, Any]:
    """The figures of the sets under `data`, in the form of expected.json."""
    bench = Bench(remembered, methods=METHODS, sample=0, needs=False)
    done = [await bench.evaluate(tools) for tools in folder.read(data) if tools.queries]
    sets = {e.tools.name: {"requests": len(e.tools.queries), **_figures(e)} for e in done}
    return {"embedder": remembered.name, "sets": sets, MEAN: {m: _cut(f) for m, f in means(done).items()}}


def compared(expected: dict[str, Any], now: dict[str, Any]) -> list[Line]:
    """Every figure of either side."""
    lines = []
    for where in [*dict.fromkeys([*expected["sets"], *now["sets"]]), MEAN]:
        before_set, now_set = (
            side[MEAN] if where == MEAN else side["sets"].get(where, {}) for side in (expected, now)
        )
        # of the mean a single request is a small part
        requests = now_set.get("requests") if where != MEAN else None
        allowed = max(FALL, 1.0 / requests) if requests else FALL
        for method in METHODS:
            for figure in FIGURES:
                before, after = (side.get(method, {}).get(figure) for side in (before_set, now_set))
                lines.append(Line(where, method, figure, before, after, allowed))
    return lines


def show(lines: list[Line]) -> bool:
    """Print the table; whether all is well."""
    rows = []
    for line in lines:
        both = line.before is not None and line.now is not None
        change = f"{line.now - line.before:+.4f}" if both else "–"  # type: ignore[operator]
        verdict = "FELL" if line.bad and both else "ONE SIDE ONLY" if line.bad else ""
        rows.append(
            [
                f"{line.where} {line.method} {line.figure}",
                _shown(line.before),
                _shown(line.now),
                change,
                verdict,
            ]
        )
    table("search quality on the committed subset", ["figure", "before", "now", "change", ""], rows)
    bad = [line for line in lines if line.bad]
    better = [x for x in lines if x.before is not None and x.now is not None and x.now - x.before > FALL]
    if bad:
        print(
            f"\n{len(bad)} figures fell by more than a point. Mend the ranking; if the change is meant, write the new"
        )
        print("figures with `make search-gate ARGS=--update`, and say why in the commit.")
    elif better:
        print(
            f"\n{len(better)} figures rose by more than a point: keep them with `make search-gate ARGS=--update`."
        )
    return not bad


def main(arguments: list[str]) -> int:
    """0: no figure fell; 1: one did; 2: data or expected figures cannot be used."""
    parser = argparse.ArgumentParser(
        prog="gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="write the figures of now as the expected ones")
    parser.add_argument("--data", type=Path, default=SUBSET)
    parser.add_argument("--expected", type=Path, default=EXPECTED)
    parser.add_argument(
        "--model", type=Path, help="a folder with model.onnx and tokenizer.json; else the packaged one"
    )
    parser.add_argument(
        "--cache", type=Path, help="keep vectors there: quick, but blind to changes of the embedder's code"
    )
    chosen = parser.parse_args(arguments)
    if chosen.update:
        try:
            chosen.expected = outcome.writable(chosen.expected)
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument --expected: {error}")
    return outcome.status(lambda: _run(chosen))


def _run(chosen: argparse.Namespace) -> int:
    start = time.perf_counter()

    async def ask() -> dict[str, Any]:
        remembered = embedder(chosen.model, chosen.cache)
        try:
            return await measured(chosen.data, remembered)
        finally:
            await remembered.aclose()

    try:
        expected = None if chosen.update else json.loads(chosen.expected.read_text())
    except FileNotFoundError:
        print(f"{chosen.expected} is not there: write it with --update", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{chosen.expected} is not what --update writes: {error}", file=sys.stderr)
        return 2
    now = asyncio.run(ask())
    if expected is None:
        outcome.write(chosen.expected, now)
        expected = now
    well = show(compared(expected, now))
    if expected["embedder"] != now["embedder"]:
        print(f"The expected figures are of the model {expected['embedder']}, these of {now['embedder']}.")
    print(f"  ({time.perf_counter() - start:.0f} s)")
    return 0 if well else 1


def _figures(done: Evaluation) -> dict[str, dict[str, float]]:
    return {method: _cut(result.figures) for method, result in done.results.items()}


def _cut(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(figures[name], 4) for name in FIGURES}


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
