"""Numbers of `search/confidence.py`, fitted and written by `bench/research/calibrate.py --write`."""

from __future__ import annotations

FITTED_FOR = "onnx-3b924e605e2a4563"
"""The embedder whose cosines these are."""
WITH_DENSE = (-6.86, 10.86, 3.34)
"""Intercept, slope of the cosine, slope of the root of the words' share."""
LEXICAL_ONLY = (-3.79, 0.0, 7.38)
"""The same where there is no cosine."""
LEAST_FIT = (0.0068, 4.0, 100)
"""A best hit of less is right so seldom that nothing fits: the confidence in a view of ten tools, how many times
that in one of ten times as many, and the view from which on it rises no more. Emptying those answers loses 0.5% of
the right hits at most, in views of any size."""
