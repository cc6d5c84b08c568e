"""The figures of one answer, by their standard definitions, with binary relevance.

* recall@k: right tools among the first k, as a share of all right tools (Manning, Raghavan and Schütze, Introduction
  to Information Retrieval, 2008, 8.3-8.4). A request with more than k right tools cannot reach 1.
* nDCG@k: DCG with gain 1 and discount log2(rank + 1), divided by the DCG of an answer that has min(k, right tools)
  right ones on top (Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002).
* MRR: 1/rank of the first right tool (TREC-8 question answering track, 1999); 0 where none is among the first ten.
* hit@1: the first hit is right. zero-hit: none of the first ten is.

An `equivalent` is the same tool under another id: it counts as the relevant tool that has its name, and whichever of
the two comes first counts, once. Without a name in common it may stand for any one relevant tool that is not found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DEPTH = 10
"""How many hits of an answer are looked at."""
PUBLISHED = ("hit@1", "recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr", "zero_hit")
"""What `OUT` receives."""
FIGURES = ("hit@1", "recall@1", *PUBLISHED[1:])
"""What is printed."""

Figures = dict[str, float]


@dataclass(frozen=True)
class Sought:
    """What answers a request."""

    count: int
    """Right tools."""
    places: Mapping[str, int]
    """Id of a right tool, or of the same tool under another id, to which of the `count` it is."""
    anywhere: frozenset[str] = frozenset()
    """Ids that may stand for any one of them."""


def judge(found: Sequence[str], sought: Sought) -> Figures:
    """The figures of an answer: ids, best first. `sought.count` must not be 0."""
    gains = gains_of(list(dict.fromkeys(found))[:DEPTH], sought)
    first = next((rank for rank, gain in enumerate(gains, 1) if gain), None)
    return {
        "hit@1": float(sum(gains[:1])),
        "recall@1": sum(gains[:1]) / sought.count,
        "recall@5": sum(gains[:5]) / sought.count,
        "recall@10": sum(gains[:10]) / sought.count,
        "ndcg@5": _ndcg(gains, sought.count, 5),
        "ndcg@10": _ndcg(gains, sought.count, 10),
        "mrr": 1.0 / first if first else 0.0,
        "zero_hit": 0.0 if first else 1.0,
    }


def mean(figures: Iterable[Mapping[str, float]]) -> Figures:
    """The mean of each figure; all must have the same ones, and there must be at least one.

    Raises:
        ValueError: there is nothing to take the mean of.
    """
    rows = list(figures)
    if not rows:
        raise ValueError("no figures to take the mean of")
    return {name: math.fsum(r[name] for r in rows) / len(rows) for name in rows[0]}


def gains_of(found: Sequence[str], sought: Sought) -> list[int]:
    """1 for each hit that brings a right tool that was not there yet."""
    gains: list[int] = []
    places: set[int] = set()
    loose = 0
    for tool_id in found:
        before = min(sought.count, len(places) + loose)
        if tool_id in sought.places:
            places.add(sought.places[tool_id])
        elif tool_id in sought.anywhere:
            loose += 1
        gains.append(min(sought.count, len(places) + loose) - before)
    return gains


def _ndcg(gains: Sequence[int], count: int, depth: int) -> float:
    reached = sum(g / math.log2(rank + 1) for rank, g in enumerate(gains[:depth], 1))
    return reached / sum(1 / math.log2(rank + 1) for rank in range(1, min(depth, count) + 1))
