"""How sure a hit is, on one scale for every query, fitted over views of every size.

Ranking stretches scores between the worst and the best of a view; a confidence must not, or the best of nothing
would look good. It is a logistic function of the raw cosine and of the square root of the words' share (BM25 over
the most it could be). The cosine knows no view. The share does: document frequencies and
lengths are those of the visible tools that pass the filters, so the same hit is a little surer or less sure in
another view.

Along a ranking it never rises: a hit is at most as sure as those before it, which the ranking found better; the fit
takes that into account.

The numbers are those of `calibration.py`: `bench/research/calibrate.py --write` fits them on the development data, over
views of 10 tools to all of a set, with requests that nothing answers among them; run it again when the model, the
tokens or the weights change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from toolcrib_registry.search.calibration import LEAST_FIT, LEXICAL_ONLY, WITH_DENSE


def confidence(lexical: float, dense: float | None) -> float:
    """The probability that a tool answers the request as the best hit, 0 to 1, to 4 digits.

    Args:
        lexical: the share of the request's words that the tool carries, 0 to 1.
        dense: the cosine; None where there is none, which makes the answer less sure.
    """
    return round(logistic(lexical, dense, LEXICAL_ONLY if dense is None else WITH_DENSE), 4)


def logistic(lexical: float, dense: float | None, numbers: tuple[float, float, float]) -> float:
    """The same with other numbers: intercept, slope of the cosine, slope of the root of the words' share."""
    root = math.sqrt(min(max(lexical, 0.0), 1.0))
    return 1.0 / (1.0 + math.exp(-(numbers[0] + numbers[1] * (dense or 0.0) + numbers[2] * root)))


def least_fit(count: int) -> float:
    """The confidence below which even the best hit of `count` visible tools is taken for chance.

    It rises with the count, because some wrong tool always looks plausible among many.
    """
    at_ten, tenfold, largest = LEAST_FIT
    return float(at_ten * tenfold ** (math.log10(max(1, min(count, largest))) - 1.0))


def confidences(evidence: Iterable[tuple[float, float | None]]) -> list[float]:
    """The confidence of each hit of a ranking, best first: `confidence`, but at most that of the hits before it.

    The first ones are the same however many follow, so a limit changes none of them.
    """
    found: list[float] = []
    least = 1.0
    for lexical, dense in evidence:
        least = min(least, confidence(lexical, dense))
        found.append(least)
    return found
