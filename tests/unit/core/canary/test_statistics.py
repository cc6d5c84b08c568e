"""The statistics of trials: intervals as in the literature, and the right decision in a simulated week."""

import random

import pytest

from toolcrib.canary import statistics
from toolcrib.canary.statistics import LEAST_CALLS, LOOKS, Outcome, newcombe, outcome, wilson


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), table II, method 10, 95 %
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_the_interval_is_the_one_of_the_paper(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    found = newcombe(first, second, z=1.959964)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert found.difference == pytest.approx(first[0] / first[1] - second[0] / second[1])


def test_an_interval_of_a_rate_is_within_the_possible() -> None:
    for failed, called in ((0, 1), (1, 1), (0, 10_000), (5, 10)):
        low, high = wilson(failed, called)
        assert -1e-9 <= low <= failed / called + 1e-9
        assert failed / called - 1e-9 <= high <= 1 + 1e-9


def test_five_looks_share_the_error_of_one() -> None:
    assert LOOKS == 5
    assert pytest.approx(2.5758, abs=1e-4) == statistics.Z, "99 % each, 95 % of all"


def test_nothing_is_decided_below_two_hundred_calls_a_side() -> None:
    assert LEAST_CALLS == 200
    assert outcome((199, 199), (0, 10_000), 0.0) is Outcome.TOO_FEW_CALLS
    assert outcome((100, 10_000), (0, 199), 0.0) is Outcome.TOO_FEW_CALLS
    assert outcome((200, 200), (0, 200), 0.0) is Outcome.WORSE


def test_worse_is_only_what_is_above_the_guard_with_its_whole_interval() -> None:
    candidate, stable = (150, 1_000), (50, 1_000)
    low = newcombe(candidate, stable).low
    assert 0.05 < low < 0.1
    assert outcome(candidate, stable, 0.05) is Outcome.WORSE
    assert outcome(candidate, stable, low) is Outcome.NO_DIFFERENCE
    assert outcome(stable, candidate, 0.05) is Outcome.BETTER


def week(seed: int, candidate: float, stable: float, *, guard: float = 0.02) -> tuple[Outcome, int]:
    """A week of traffic: 2,000 calls a day, a tenth of them with the candidate. What it ends in, and after how many looks."""
    dice, calls = random.Random(seed), {"candidate": [0, 0], "stable": [0, 0]}
    found = Outcome.TOO_FEW_CALLS
    for look in range(1, LOOKS + 1):
        for _ in range(2_000 * 7 // LOOKS):
            side, rate = ("candidate", candidate) if dice.random() < 0.1 else ("stable", stable)
            calls[side][0] += dice.random() < rate
            calls[side][1] += 1
        sides = {name: (failed, called) for name, (failed, called) in calls.items()}
        found = outcome(sides["candidate"], sides["stable"], guard)
        if found is Outcome.WORSE:
            return found, look
    return found, LOOKS


@pytest.mark.parametrize(
    ("candidate", "stable", "right"),
    [(0.16, 0.08, Outcome.WORSE), (0.08, 0.08, Outcome.NO_DIFFERENCE), (0.03, 0.08, Outcome.BETTER)],
    ids=["worse", "equal", "better"],
)
def test_a_simulated_week_ends_in_the_right_decision_in_at_least_95_of_100_runs(
    candidate: float, stable: float, right: Outcome
) -> None:
    ends = [week(seed, candidate, stable)[0] for seed in range(100)]
    assert ends.count(right) >= 95, ends


def test_a_candidate_that_is_much_worse_is_found_before_the_last_look() -> None:
    assert all(week(seed, 0.3, 0.08) == (Outcome.WORSE, 1) for seed in range(20))
