"""Everyday requests over views of 3 to 15 tools: is the right tool surer than the advised `min_score`, and is nothing else?

    python bench/search/run.py everyday [--out FILE]

Asks the registry's searcher each request of bench/search/everyday in its view, with `min_score: 0`, and prints for some
values of `min_score` how many right tools are still answered, and how many requests that no tool of the view answers. 1 where fewer
than `GOAL` of the right tools reach the advised value.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import outcome
import product
import yaml
from compare import embedder
from measure import table
from vectors import Remembered

from toolcrib import publishing
from toolcrib.resources import parse
from toolcrib.resources.tools import Tool
from toolcrib.wire.advice import ADVISED_MIN_SCORE
from toolcrib_registry.search.confidence import least_fit
from toolcrib_registry.search.entries import entry_of
from toolcrib_registry.search.entry import IndexEntry

HERE = Path(__file__).parent / "everyday"
EXAMPLES = Path(__file__).parents[2] / "examples"
GOAL = 0.9
SHOWN = (0.002, 0.003, 0.004, 0.005, 0.006, 0.01, 0.03, 0.1, 0.3)


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request, and how sure its answer is."""

    view: str
    text: str
    right: frozenset[str]
    """Empty: no tool of the view answers it."""
    sure: float
    """Confidence of the first right tool; of the first hit at all where none is right. 0: there is none."""
    first: bool
    """Whether the first hit is right."""
    fits: bool
    """Whether the answer without a `min_score` is not empty."""


@dataclasses.dataclass(frozen=True)
class Shares:
    """What a `min_score` leaves."""

    heist: float
    """Of the requests of the heist with a right tool, those that get it."""
    everyday: float
    """The same of the other views."""
    wrong: float
    """Of the requests that no tool answers, those that get a hit all the same."""


def views(examples: Path = EXAMPLES) -> dict[str, list[IndexEntry]]:
    """The tools of each view, as they are published."""
    named: dict[str, list[str]] = json.loads((HERE / "views.json").read_text())
    return {
        view: [
            entry_of(publishing.tool(resource))
            for pattern in patterns
            for file in sorted(examples.glob(pattern))
            for document in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader)
            if isinstance(resource := parse(document), Tool)
        ]
        for view, patterns in named.items()
    }


async def ask(remembered: Remembered, examples: Path = EXAMPLES) -> list[Asked]:
    """Every request, answered."""
    rows = [json.loads(line) for line in (HERE / "requests.jsonl").read_text().splitlines()]
    found = []
    for view, tools in views(examples).items():
        async with product.embedded(tools, await remembered.embed_tools(tools), remembered) as ours:
            for row in (r for r in rows if r["view"] == view):
                right = frozenset(row["relevant"])
                hits = await ours.hits(row["query"])
                counted = [h for h in hits if h.tool_id in right or not right]
                sure = (counted[0].confidence or 0.0) if counted else 0.0
                first = bool(right) and hits[0].tool_id in right
                fits = bool(hits) and (hits[0].confidence or 0.0) >= least_fit(len(tools))
                found.append(Asked(view, row["query"], right, sure, first, fits))
    return found


async def no_answer(remembered: Remembered, examples: Path = EXAMPLES) -> dict[str, float]:
    """How well an empty answer tells that no tool of the view answers the request, as the search route answers it.

    `precision`: of the empty answers, those to requests that nothing answers (1 without an empty answer).
    `answered_wrongly`: of the requests that nothing answers, those that get a hit. `nothing_found`: of the others, those
    whose answer is empty. With the counts that they are shares of: `empty`, `unanswerable`, `answerable`.
    """
    rows = [json.loads(line) for line in (HERE / "requests.jsonl").read_text().splitlines()]
    answers: list[tuple[bool, bool]] = []
    for view, tools in views(examples).items():
        async with product.embedded(tools, await remembered.embed_tools(tools), remembered) as ours:
            for row in (r for r in rows if r["view"] == view):
                hits = await ours.hits(row["query"], all_hits=False)
                answers.append((bool(row["relevant"]), bool(hits)))
    answerable = [hit for right, hit in answers if right]
    unanswerable = [hit for right, hit in answers if not right]
    rightly, lost = unanswerable.count(False), answerable.count(False)
    return {
        "empty": rightly + lost,
        "unanswerable": len(unanswerable),
        "answerable": len(answerable),
        "precision": rightly / (rightly + lost) if rightly + lost else 1.0,
        "answered_wrongly": 1 - rightly / len(unanswerable),
        "nothing_found": lost / len(answerable),
    }


def shares(asked: Sequence[Asked], least: float | None) -> Shares:
    """What `min_score: least` leaves of the answers; None: what a search without one leaves."""

    def share(kept: Sequence[Asked]) -> float:
        return sum(a.fits if least is None else a.sure >= least for a in kept) / len(kept)

    return Shares(
        share([a for a in asked if a.right and a.view == "heist"]),
        share([a for a in asked if a.right and a.view != "heist"]),
        share([a for a in asked if not a.right]),
    )


def show(asked: Sequence[Asked]) -> bool:
    """Print the tables; whether the advised value reaches the goal."""
    right = [a for a in asked if a.right]
    rows = []
    for least in (None, *sorted({*SHOWN, ADVISED_MIN_SCORE})):
        of = shares(asked, least)
        name = "none" if least is None else f"{least:g}"
        name += " (advised)" if least == ADVISED_MIN_SCORE else ""
        rows.append([name, f"{of.heist:.1%}", f"{of.everyday:.1%}", f"{of.wrong:.1%}"])
    table(
        f"{len(right)} requests that a tool answers, {len(asked) - len(right)} that none does",
        ["min_score", "right, heist", "right, everyday", "answered wrongly"],
        rows,
    )
    lost = [a for a in right if a.sure < ADVISED_MIN_SCORE]
    table(
        "right tools below the advised value", ["request", "view", "confidence"],
        [[a.text, a.view, f"{a.sure:.4f}"] for a in lost],
    )  # fmt: skip
    print(f"\n  the right tool comes first: {sum(a.first for a in right)} of {len(right)}")
    of = shares(asked, ADVISED_MIN_SCORE)
    return min(of.heist, of.everyday) >= GOAL


async def measured() -> list[Asked]:
    """The same with the packaged model, every text encoded again."""
    remembered = embedder(None, None)
    try:
        return await ask(remembered)
    finally:
        await remembered.aclose()


def main(arguments: list[str]) -> int:
    """Print; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        prog="everyday", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=outcome.writable, help="the answers as JSON")
    chosen = parser.parse_args(arguments)

    def run() -> int:
        asked = asyncio.run(measured())
        outcome.write(chosen.out, [dataclasses.asdict(a) | {"right": sorted(a.right)} for a in asked])
        return 0 if show(asked) else 1

    return outcome.status(run)
