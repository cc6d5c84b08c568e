"""Sessions compared by their sets of tools, and what an agent has done so far."""

from dataclasses import replace

import pytest

from toolcrib_cli.session_store.rows import Call, Session, State, Turn, View
from toolcrib_cli.sessions import activity
from toolcrib_cli.sessions.comparison import Account, compare, mean, share


def account(ident: str, tools: tuple[str, ...], outcomes: list[list[str]], at: float = 0.0) -> Account:
    """A session of one agent: for each turn, the outcomes of its calls."""
    held = Session(ident, "n", "{}", State.FINISHED, "", False, 1.0, None, 0, False, at, at)
    turns = [
        Turn(n, 1, "a", "answered", "", "static", 2, 100 * n, 10, None, 0.0, 1.0)
        for n in range(1, len(outcomes) + 1)
    ]
    calls = [
        Call(turn, 1, number, "a", tools[number % len(tools)], "d", outcome, 0.1)
        for turn, made in enumerate(outcomes, 1)
        for number, outcome in enumerate(made)
    ]
    return Account(held, [View("a", "h/a", dict.fromkeys(tools, ()), ())], turns, calls)


# Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I, method 3
@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_wilsons(hits: int, of: int, low: float, high: float) -> None:
    found = share(hits, of)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_of_nothing_everything_is_possible_and_of_one_value_there_is_no_interval() -> None:
    assert (share(0, 0).low, share(0, 0).high) == (0.0, 1.0)
    assert (mean([]).value, mean([4.0]).low) == (0.0, None)


def test_the_interval_of_a_mean_holds_it_and_is_the_same_for_the_same_values() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    found = mean(values)
    assert found == mean(values)
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < found.value == 4.0 < found.high <= 10.0


def test_sessions_with_the_same_tools_make_one_row_and_others_another() -> None:
    rows = compare([
        account("3", ("x", "y"), [["ok"]], at=3.0),
        account("1", ("x",), [["ok", "ok"], []], at=1.0),
        account("2", ("x",), [["upstream_error"]], at=2.0),
    ])  # fmt: skip
    assert [(row.tools, row.sessions) for row in rows] == [(("x",), 2), (("x", "y"), 1)]
    first = rows[0]
    assert (first.succeeded.hits, first.succeeded.of) == (2, 3)
    assert (first.answered.hits, first.answered.of) == (3, 3)
    assert (first.calls.value, first.replies.value) == (1.0, 2.0)
    assert first.tokens.value == pytest.approx((110 + 210 + 110) / 3)


def test_a_turn_that_has_not_ended_is_not_compared() -> None:
    made = account("1", ("x",), [["ok"], ["started"], ["unknown"]])
    ended, runs, interrupted = made.turns
    turns = [ended, replace(runs, outcome="running"), replace(interrupted, outcome="interrupted")]
    (row,) = compare([replace(made, turns=turns)])
    assert (row.answered.of, row.calls, row.tokens.value) == (1, mean([1]), 110)


def test_an_agents_activity_counts_errors_and_denials_apart_and_tools_that_are_new_to_it() -> None:
    made = account("1", ("x", "y"), [["ok"], ["not_permitted", "revoked", "upstream_error", "started"]])
    (found,) = activity.of(made)
    assert (found.turn, found.calls, found.denials, found.errors) == (2, 5, 2, 1)
    assert found.new_tools == 1
    assert found.tokens == 100 + 200 + 20


def test_the_tools_of_a_first_turn_are_not_new_and_who_had_no_turn_is_shown() -> None:
    (found,) = activity.of(account("1", ("x",), [["ok"]]))
    assert found.new_tools == 0
    (waiting,) = activity.of(account("1", ("x",), []))
    assert (waiting.turn, waiting.calls) == (0, 0)
