"""How evidence becomes one score: words and cosines, of the whole request and of the things that it asks for.

`a·mm(cosine) + (1-a)·words`, where `mm` is min-max over the visible tools. For a request of several parts, half of
each kind of evidence comes from the whole and half from the part that suits the tool best (measured on the
development data: +1.4 points of nDCG@5 in the mean, +6 where a request needs several tools, none below noise).

Plain arithmetic over arrays with one number a visible tool: what is not in the view has no say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toolcrib_registry.search.lexical import LexicalScores, Scores

DENSE_WEIGHT = 0.75
"""Share of the cosine in a hybrid score; quality on requests that the model was not trained on is flat between .6 and
.8 (`bench/research/weights.py`)."""
PART_SHARE = 0.5
"""Share of the best part where a request has parts; quality is flat between .3 and .7 (development data)."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the words of a request say about each tool."""

    strength: Scores
    """For ranking: 0 to 1 within the view."""
    share: Scores
    """BM25 as a share of the most it could be for this request, 0 to 1: comparable across requests. Its weights of words are the view's."""
    carried: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    """Whether the tool carries any word of the request."""


def words(whole: LexicalScores, parts: Sequence[LexicalScores] = ()) -> Words:
    """The evidence of the words of a request and of its parts."""
    strength, share = min_max(whole.scores), _share(whole)
    carried = whole.scores > 0.0
    if parts:
        strength = blended(strength, [min_max(p.scores) for p in parts])
        share = blended(share, [_share(p) for p in parts])
        carried = np.logical_or.reduce([carried, *(p.scores > 0.0 for p in parts)])
    return Words(strength, share, carried)


def blended(whole: Scores, parts: Sequence[Scores]) -> Scores:
    """Evidence of the whole and of the part that suits each tool best; just the whole where there are no parts."""
    if not parts:
        return whole
    best: Scores = np.maximum.reduce(list(parts))
    return (1.0 - PART_SHARE) * whole + PART_SHARE * best


def hybrid(dense: Scores, lexical: Scores, dense_weight: float = DENSE_WEIGHT) -> Scores:
    """One score a tool from two that lie between 0 and 1."""
    return dense_weight * dense + (1.0 - dense_weight) * lexical


def min_max(scores: Scores) -> Scores:
    """`scores` stretched to 0…1; all 0 where they do not differ."""
    low, high = float(scores.min()), float(scores.max())
    if high <= low:
        return np.zeros_like(scores)
    return (scores - low) / (high - low)


def _share(found: LexicalScores) -> Scores:
    return found.scores / found.ceiling if found.ceiling else found.scores
