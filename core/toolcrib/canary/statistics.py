"""What the numbers of a trial say: the difference of two failure rates, looked at five times.

Each rate has Wilson's score interval, the difference Newcombe's hybrid of the two: method 10 of R. G. Newcombe, "Interval
estimation for the difference between independent proportions", Statistics in Medicine 17 (1998), 873-890. It holds its
promise for rates near 0 too, where the textbook interval does not.

Every further look is one more chance of an error. Bonferroni's correction shares the 5 % among the looks that were fixed in
advance, so the five intervals of a trial are all right at once with at least 95 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

LOOKS = 5
LEAST_CALLS = 200
"""Calls on each side below which nothing is decided."""
ERROR = 0.05
Z = NormalDist().inv_cdf(1 - ERROR / LOOKS / 2)
"""Of each look's interval: 99 %."""


class Outcome(StrEnum):
    """What one look says of the candidate."""

    TOO_FEW_CALLS = "TooFewCalls"
    WORSE = "Worse"
    BETTER = "Better"
    NO_DIFFERENCE = "NoDifference"


@dataclass(frozen=True, slots=True)
class Interval:
    """The candidate's failure rate less the tool's own, and between what it is."""

    difference: float
    low: float
    high: float


def wilson(failed: int, called: int, z: float = Z) -> tuple[float, float]:
    """The score interval of a rate."""
    rate, square = failed / called, z * z
    middle = rate + square / (2 * called)
    width = z * math.sqrt(rate * (1 - rate) / called + square / (4 * called * called))
    return (middle - width) / (1 + square / called), (middle + width) / (1 + square / called)


def newcombe(candidate: tuple[int, int], stable: tuple[int, int], z: float = Z) -> Interval:
    """The interval of the difference; each side is (failed, called), with at least one call."""
    rate, other = candidate[0] / candidate[1], stable[0] / stable[1]
    (low, high), (other_low, other_high) = wilson(*candidate, z), wilson(*stable, z)
    difference = rate - other
    return Interval(
        difference,
        difference - math.hypot(rate - low, other_high - other),
        difference + math.hypot(high - rate, other - other_low),
    )


def outcome(candidate: tuple[int, int], stable: tuple[int, int], guard: float) -> Outcome:
    """What one of the looks says.

    Args:
        candidate: failed calls and all calls, with the candidate.
        stable: the same with the tool's own definition.
        guard: how much more may fail, as a share: worse is a candidate whose whole interval is above it.
    """
    if min(candidate[1], stable[1]) < LEAST_CALLS:
        return Outcome.TOO_FEW_CALLS
    found = newcombe(candidate, stable)
    if found.low > guard:
        return Outcome.WORSE
    return Outcome.BETTER if found.high < 0 else Outcome.NO_DIFFERENCE
