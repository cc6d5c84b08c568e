"""The example of two tool sets and a canary, in the local mode: the same tasks for both agents, one report."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_mode import LocalMode
from realparts.processes import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "canary"
TASKS = 210


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    with LocalMode(tmp_path_factory.mktemp("canary"), EXAMPLE) as running:
        yield running


def calls(local: LocalMode, agent: str, tool: str, wrong: int) -> None:
    """As many calls as tasks, the first `wrong` of them with an argument that the tool does not know."""
    with httpx.Client(trust_env=False, timeout=30) as http:
        headers = {"Authorization": f"Bearer {local.token(agent)}"}
        for number in range(TASKS):
            arguments: dict[str, Any] = {"number": 1} if number < wrong else {"expression": "17 / 100 * 2450"}
            answer = http.post(f"{local.url}/tools/{tool}", headers=headers, json=arguments)
            assert answer.status_code == (400 if number < wrong else 200), answer.text


@pytest.mark.slow
def test_two_agents_with_two_tool_sets_are_compared_in_one_report(local: LocalMode) -> None:
    calls(local, "plain", "calculator", 60)
    calls(local, "rich", "calculator_with_functions", 3)
    both = ("--agent", "lab/plain", "--agent", "lab/rich")

    def report() -> Any:
        done = local.toolcrib("canary", "report", *both, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    wait_until(lambda: [a["called"] for a in report()["agents"]] == [TASKS, TASKS], 30)
    found = report()
    assert [(a["agent"], a["tools"], a["failed"], a["corrected"]) for a in found["agents"]] == [
        ("lab/plain", 1, 60, 1),
        ("lab/rich", 1, 3, 1),
    ]
    assert found["result"] == "lab/rich fails less"
    assert found["high"] < 0
    shown = local.toolcrib("canary", "report", *both)
    assert "lab/rich fails less (difference -27.1% (" in shown.stdout, shown.stdout


def test_the_canary_of_the_example_runs_and_its_report_says_that_no_look_was_made_yet(
    local: LocalMode,
) -> None:
    def state() -> Any:
        done = local.toolcrib("canary", "report", "lab/calculator-words", "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    wait_until(lambda: state()["state"] == "Ready", 30)
    assert state()["looks"] == []
    shown = local.toolcrib("canary", "report", "-n", "lab").stdout
    assert "lab/calculator-words: calculator-plain, 50 % of the callers, Ready" in shown
    assert "No look yet" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lab/absent",), "no ToolCanary lab/absent"),
        (("calculator-words",), "specify namespace/name"),
        (("--agent", "lab/plain"), "specify --agent twice"),
        (("lab/calculator-words", "-n", "other"), "omit -n"),
    ],
)
def test_what_cannot_be_reported_is_named(local: LocalMode, arguments: tuple[str, ...], says: str) -> None:
    done = local.toolcrib("canary", "report", *arguments)
    assert done.returncode != 0
    assert says in done.stderr
