"""Numbers of `search/confidence.py`, fitted and written by `bench/search/calibrate.py --write`."""

from __future__ import annotations

FITTED_FOR = "onnx-28e1daa37df58005"
"""The embedder whose cosines these are."""
WITH_DENSE = (-5.85, 9.35, 1.69)
"""Intercept, slope of the cosine, slope of the root of the words' share."""
LEXICAL_ONLY = (-3.73, 0.0, 7.47)
"""The same where there is no cosine."""
LEAST_FIT = 0.02
"""A best hit of less is right so seldom that nothing fits: emptying those answers loses 0.5% of
the right hits."""
