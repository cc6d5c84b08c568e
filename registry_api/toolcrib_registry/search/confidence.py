"""How sure a hit is, on one scale for every query and every view.

Ranking stretches scores between the worst and the best of a view; a confidence must not, or the best of nothing
would look good. It is a logistic function of the raw cosine and of the square root of the words' share (BM25 over
the most it could be). `bench/search/calibrate.py` fits it on the development data, over views of 10 tools to all of
a set, with requests that nothing answers among them; run it again when the model, the tokens or the weights change.

Fitted 2026-11-22: expected calibration error .046 with a cosine, .049 without; nonsense stays below .13 with one.
"""

from __future__ import annotations

import math

_WITH_DENSE = (-7.1, 12.0, 2.3)
"""Intercept, slope of the cosine, slope of the root of the words' share."""
_LEXICAL_ONLY = (-2.8, 0.0, 4.8)
"""The same where there is no cosine."""


def confidence(lexical: float, dense: float | None) -> float:
    """The probability that a tool answers the request, 0 to 1, to 4 digits.

    Args:
        lexical: the share of the request's words that the tool carries, 0 to 1.
        dense: the cosine; None where there is none, which makes the answer less sure.
    """
    root = math.sqrt(min(max(lexical, 0.0), 1.0))
    bias, per_dense, per_root = _LEXICAL_ONLY if dense is None else _WITH_DENSE
    logit = bias + per_dense * (dense or 0.0) + per_root * root
    return round(1.0 / (1.0 + math.exp(-logit)), 4)
