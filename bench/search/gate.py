"""The quality gate: has search become worse on the committed subset? `make search-gate [ARGS=--update]`.

* hit@1, nDCG@5 and `nothing_found` (the share of answerable requests whose answer is empty) of what agents get (`hybrid`)
  and of words alone (`lexical`), for each set and their mean.
* `no answer`: what an empty answer is worth, by the everyday requests (`everyday.no_answer`).
* the same quality where the caller's scopes show 100, 10 and 1 % of all sets together, and `identical`: the share of
  rankings that equal the one over the visible tools alone (`narrowed.py`).

All are held against bench/search/expected.json, which holds what was measured and nothing that was chosen; the slack is
here. A figure that is worse by more than a point fails. Of fewer than a hundred requests one may turn, because it weighs
more than that. `identical` has no slack. `--update` writes the figures of now: for a change that is meant.
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

import everyday
import folder
import metrics
import narrowed
import outcome
from compare import embedder
from evaluate import Bench, Evaluation, Result
from measure import table
from subset import SUBSET
from vectors import Remembered

EXPECTED = Path(__file__).parent / "expected.json"
FALL = 0.01
"""A smaller difference is noise: processors differ in the last bit, which turns single requests."""
METHODS = ("hybrid", "lexical")
FIGURES = ("hit@1", "ndcg@5", "nothing_found")
NO_ANSWER = {"precision": "empty", "answered_wrongly": "unanswerable", "nothing_found": "answerable"}
"""Each figure, and of how many answers it is a share."""
LESS_IS_BETTER = ("nothing_found", "answered_wrongly")
EXACT = "identical"
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
    def better(self) -> float:
        """By how much it is better now; 0 where it is on one side only."""
        if self.before is None or self.now is None:
            return 0.0
        return (self.now - self.before) * (-1 if self.figure in LESS_IS_BETTER else 1)

    @property
    def bad(self) -> bool:
        """Whether it fell too far, or is on one side only."""
        return self.before is None or self.now is None or self.better < -self.allowed - _ROUNDING


async def measured(data: Path, remembered: Remembered) -> dict[str, Any]:
    """The figures of the sets under `data`, and of the everyday requests, in the form of expected.json."""
    bench = Bench(remembered, methods=METHODS, sample=0, needs=False)
    sets = [tools for tools in folder.read(data) if tools.queries]
    done = [await bench.evaluate(tools) for tools in sets]
    return {
        "embedder": remembered.name,
        "sets": {e.tools.name: {"requests": len(e.tools.queries), **_figures(e)} for e in done},
        MEAN: {
            m: _cut(metrics.mean(_of(e.results[m]) for e in done))
            for m in METHODS
            # one that failed on a set is on one side only
            if done and all(m in e.results for e in done)
        },
        "no answer": _cut(await everyday.no_answer(remembered)),
        "visible": {share: _cut(f) for share, f in (await narrowed.measured(sets, remembered)).items()},
    }


def compared(expected: dict[str, Any], now: dict[str, Any]) -> list[Line]:
    """Every figure of either side."""
    before, after = _flat(expected), _flat(now)
    lines = []
    for key in dict.fromkeys([*before, *after]):
        (was, _), (becomes, count) = (side.get(key, (None, None)) for side in (before, after))
        # of a mean a single request is a small part
        allowed = 0.0 if key[2] == EXACT else max(FALL, 1.0 / count) if count else FALL
        lines.append(Line(*key, was, becomes, allowed))
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
    better = [line for line in lines if line.better > FALL]
    if bad:
        print(
            f"\n{len(bad)} figures are worse by more than their slack. Mend the ranking; if the change is meant, write the new"
        )
        print("figures with `make search-gate ARGS=--update`, and say why in the commit.")
    elif better:
        print(
            f"\n{len(better)} figures are better by more than a point: keep them with `make search-gate ARGS=--update`."
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


def _flat(side: dict[str, Any]) -> dict[tuple[str, str, str], tuple[float, int | None]]:
    """Each figure by place, method and name, and of how many requests it is a share; None for a mean."""
    methods = [
        (where, m, f[m], f["requests"]) for where, f in side["sets"].items() for m in METHODS if m in f
    ]
    methods += [(MEAN, m, f, None) for m, f in side[MEAN].items()]
    methods += [
        (f"{share} % visible", "hybrid", f, f["requests"]) for share, f in side.get("visible", {}).items()
    ]
    flat = {
        (where, method, name): (figures[name], count)
        for where, method, figures, count in methods
        for name in (*FIGURES, EXACT)
        if name in figures
    }
    empty = side.get("no answer", {})
    for name, of in NO_ANSWER.items():
        if name in empty:
            flat["no answer", "hybrid", name] = (empty[name], empty[of])
    return flat


def _figures(done: Evaluation) -> dict[str, dict[str, float]]:
    return {method: _cut(_of(result)) for method, result in done.results.items()}


def _of(result: Result) -> metrics.Figures:
    empty = sum(not found for found in result.found)
    return {**{f: result.figures[f] for f in FIGURES[:2]}, "nothing_found": empty / len(result.found)}


def _cut(figures: metrics.Figures) -> dict[str, float]:
    return {name: value if isinstance(value, int) else round(value, 4) for name, value in figures.items()}


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
