"""How sure a hit is, on one scale for every query and every view.

Ranking stretches scores between the worst and the best of a view; a confidence must not, or the best of nothing
would look good. It is a logistic function of the raw cosine and of the square root of the words' share (BM25 over
the most it could be). Along a ranking it never rises: a hit is at most as sure as those before it, which the ranking
found better; the fit takes that into account.

The numbers are those of `calibration.py`: `bench/search/calibrate.py --write` fits them on the development data, over
views of 10 tools to all of a set, with requests that nothing answers among them; run it again when the model, the
tokens or the weights change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from toolcrib_registry.search.calibration import LEAST_FIT as LEAST_FIT
from toolcrib_registry.search.calibration import LEXICAL_ONLY, WITH_DENSE


def confidence(lexical: float, dense: float | None) -> float:
    """The probability that a tool answers the request as the best hit, 0 to 1, to 4 digits.

    Args:
        lexical: the share of the request's words that the tool carries, 0 to 1.
        dense: the cosine; None where there is none, which makes the answer less sure.
    """
    root = math.sqrt(min(max(lexical, 0.0), 1.0))
    bias, per_dense, per_root = LEXICAL_ONLY if dense is None else WITH_DENSE
    logit = bias + per_dense * (dense or 0.0) + per_root * root
    return round(1.0 / (1.0 + math.exp(-logit)), 4)


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
