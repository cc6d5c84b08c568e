"""What the runner writes when it ends."""

import json

from toolcrib_runner import results
from toolcrib_runner.tasks import CallRecord, Outcome, Report
from toolcrib_runner.usage import Usage


def test_a_result_shows_how_it_ended_and_what_was_used() -> None:
    usage = Usage("planner")
    usage.count("calculator")
    report = Report(
        Outcome.OUT_OF_TURNS,
        "so far\x1b[2J",
        "",
        2,
        10,
        5,
        [CallRecord("calculator", "ok", 0.1), CallRecord("x", "no", 0)],
    )
    shown = results.as_text(report, usage.stats(3))
    assert "so far\\x1b[2J" in shown
    assert "[stopped: the maximum number of turns is reached]" in shown
    assert "3 available, used: calculator 1" in shown
    assert "2, 1 of them failed or refused" in shown
    assert json.loads(results.as_json(report, usage.stats(3)))["outcome"] == "out_of_turns"
    assert set(results.EXIT_CODES) == set(Outcome)
