"""When nothing fits: the least confidence of a best hit, by how many tools the caller sees.

The more tools a caller sees, the better the best wrong one looks. So the least confidence is a power of the view's size,
fitted so that in views of every size next to no right hit is lost, and as few requests as possible are answered that
nothing answers.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from asked import FOREIGN, Asked, ranked
from numpy.typing import NDArray

from toolcrib_registry.search.confidence import logistic
from toolcrib_registry.search.ranking import RankingIndex

VIEWS = (3, 10, 50, 200, 100_000)
"""Tools in view; the last is all of a set."""
LOSS = 0.005
"""Share of the right hits that may be lost in the views of any size where an answer is emptied."""
LARGEST = 100
"""Tools from which on the least confidence rises no more. The requests that it is fitted on are like those that the model
was trained on; others look weaker, and in a large catalog an empty answer to a right request costs more than a hit of low
confidence to a wrong one (at .03 livemcp lost 2 of its 45 errands)."""
_DRAWS = 4
_AT_TEN = np.geomspace(0.002, 0.04, 40)
_TENFOLD = np.arange(1.0, 5.01, 0.5)
"""In coarse steps: finer ones would follow single requests."""

Numbers = tuple[float, float, int]
"""The least confidence in a view of ten, how many times that for ten times as many tools, and the view from which on it
rises no more."""


@dataclass(frozen=True)
class Answers:
    """The answers to one kind of request in views of one size: a number for each."""

    best: NDArray[np.float64]
    """Confidence of the first hit."""
    size: NDArray[np.float64]
    """Tools in view."""
    weight: NDArray[np.float64]
    """Where something is right, how much of it was found; every set weighs the same."""

    def below(self, numbers: Numbers) -> float:
        """The share that is emptied."""
        return float(self.weight[self.best < least(self.size, numbers)].sum() / self.weight.sum())


Kinds = dict[str, Answers]
"""`right`, `nonsense` and, where there are requests of another kind of set, `foreign`."""


def least(size: NDArray[np.float64], numbers: Numbers) -> NDArray[np.float64]:
    """The least confidence in views of these sizes, as `search/confidence.py` has it."""
    at_ten, tenfold, largest = numbers
    power: NDArray[np.float64] = at_ten * tenfold ** (np.log10(np.minimum(size, largest)) - 1.0)
    return power


def answers(
    sets: dict[str, tuple[RankingIndex, list[Asked]]],
    nonsense: list[Asked],
    numbers: tuple[float, float, float],
    seed: int,
) -> dict[int, Kinds]:
    """The answers in views of each of `VIEWS`, with the confidence that `numbers` give."""
    chance = random.Random(seed)
    found: dict[int, dict[str, list[tuple[float, int, float]]]] = {s: defaultdict(list) for s in VIEWS}
    for name, (index, own) in sets.items():
        ids = sorted(e.tool_id for e in index.entries())
        foreign = sets[FOREIGN[name]][1] if FOREIGN.get(name) in sets else []
        kinds = {"right": own, "nonsense": nonsense, "foreign": foreign[: len(own)]}
        for size, (kind, asked) in itertools.product(VIEWS, kinds.items()):
            if size >= len(ids) and size != VIEWS[-1]:
                continue
            batch: list[tuple[float, int, float]] = []
            for one, _ in itertools.product(asked, range(1 if size >= len(ids) else _DRAWS)):
                view = set(ids) if size >= len(ids) else set(chance.sample(ids, size))
                if kind == "right":
                    view |= one.right & set(ids)
                hits = ranked(index, one, view, 5, True)
                worth = sum(h.entry.tool_id in one.right for h in hits) if kind == "right" else 1
                if worth:
                    batch.append((logistic(hits[0].lexical, hits[0].dense, numbers), len(view), worth))
            total = sum(b[2] for b in batch)
            found[size][kind] += [(sure, count, worth / total) for sure, count, worth in batch]
    return {
        size: {k: Answers(*np.array(rows, np.float64).T) for k, rows in kinds.items() if rows}
        for size, kinds in found.items()
        if kinds
    }


def fit(views: dict[int, Kinds]) -> Numbers:
    """Lose no more than `LOSS` of the right hits in views of any size, and empty most of the others."""
    largest = min(LARGEST, int(max(a.size.max() for kinds in views.values() for a in kinds.values())))
    best, chosen = -1.0, (0.0, 1.0, largest)
    for at_ten, tenfold in itertools.product(_AT_TEN, _TENFOLD):
        numbers = (round(float(at_ten), 4), round(float(tenfold), 1), largest)
        if all(kinds["right"].below(numbers) <= LOSS for kinds in views.values() if "right" in kinds):
            idle = [a.below(numbers) for kinds in views.values() for k, a in kinds.items() if k != "right"]
            if sum(idle) > best:
                best, chosen = sum(idle), numbers
    return chosen


def show(views: dict[int, Kinds], numbers: Numbers) -> None:
    """Print what the cut costs and what it is worth."""
    print(f"\nnothing fits: {numbers[0]} in a view of 10 tools, times {numbers[1]} for ten times as many")
    print("  view    least      right hits lost   nonsense answered   requests for other tools answered")
    for size, kinds in views.items():
        sizes = np.concatenate([a.size for a in kinds.values()])
        bounds = least(np.array([sizes.min(), sizes.max()]), numbers)
        label, told = (
            ("all" if size == VIEWS[-1] else str(size)),
            "-".join(f"{b:.3f}" for b in np.unique(bounds)),
        )
        cells = [f"{kinds[k].below(numbers):.1%}" if k in kinds else "" for k in ("right",)]
        cells += [f"{1 - kinds[k].below(numbers):.0%}" if k in kinds else "" for k in ("nonsense", "foreign")]
        print(f"  {label:6}  {told:14}" + "".join(f"{c:>12}" for c in cells))
