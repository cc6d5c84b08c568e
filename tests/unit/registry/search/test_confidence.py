"""How sure a hit is."""

from __future__ import annotations

import itertools

import pytest

from toolcrib_registry.search.confidence import confidence, confidences, least_fit


def test_more_evidence_never_makes_a_hit_less_sure() -> None:
    steps = [i / 20 for i in range(21)]

    for other in (-0.1, 0.3, 0.7):
        by_words = [confidence(s, other) for s in steps]
        assert by_words == sorted(by_words)
    by_cosine = [confidence(0.3, 2 * s - 1) for s in steps]
    assert by_cosine == sorted(by_cosine)
    alone = [confidence(s, None) for s in steps]
    assert alone == sorted(alone)


@pytest.mark.parametrize("lexical", [-1.0, 0.0, 0.5, 1.0, 9.0])
@pytest.mark.parametrize("dense", [None, -1.0, 0.0, 1.0])
def test_a_confidence_is_a_share(lexical: float, dense: float | None) -> None:
    assert 0.0 <= confidence(lexical, dense) <= 1.0


def test_no_evidence_is_no_confidence() -> None:
    assert confidence(0.0, 0.0) < 0.01
    assert confidence(0.0, 0.3) < 0.1
    assert confidence(0.0, None) < 0.1


def test_strong_evidence_is_confidence() -> None:
    assert confidence(0.5, 0.75) > 0.9
    assert confidence(0.6, None) > 0.5


def test_along_a_ranking_a_hit_is_at_most_as_sure_as_those_before_it() -> None:
    evidence = [(0.3, 0.5), (0.2, 0.6), (0.1, 0.2), (0.9, None)]

    found = confidences(evidence)

    assert found == sorted(found, reverse=True)
    assert found[0] == found[1] == confidence(0.3, 0.5) < confidence(0.2, 0.6)
    assert found[2] == confidence(0.1, 0.2)


def test_a_limit_changes_no_confidence() -> None:
    evidence = [(0.3, 0.5), (0.2, 0.6), (0.1, 0.2), (0.9, None)]

    assert confidences(evidence[:2]) == confidences(evidence)[:2]
    assert confidences([]) == []


def test_nothing_fits_where_there_is_hardly_any_evidence() -> None:
    for count in (10, 100, 1_000, 100_000):
        assert confidence(0.0, 0.1) < least_fit(count) < confidence(0.3, 0.5)


def test_the_best_of_many_tools_needs_more_evidence_than_the_best_of_few() -> None:
    steps = [least_fit(count) for count in (0, 1, 3, 10, 50, 100)]

    assert steps[0] == steps[1]
    assert all(few * 1.2 < many for few, many in itertools.pairwise(steps[1:]))
    assert steps[2] < 0.01
    assert 0.01 < steps[-1] < 0.1
    assert least_fit(100) == least_fit(10_000_000)
