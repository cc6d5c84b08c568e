"""Every step that the README shows, on a machine that has seen none of them, with what its commands install alone."""

import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from ci import outcomes, reports
from ci.steps import UNIT
from fresh_debian import Step, told
from realparts import processes
from realparts.freshroot import CLONE, FreshMachine
from realparts.parts import PARTS, SUITE

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.fresh


def test_nothing_of_this_machine_is_there(fresh_machine: FreshMachine) -> None:
    done = fresh_machine.run("sh", "-c", "command -v git go docker gcc; env; ls -A /tmp", timeout=60)

    assert not re.search(r"^/\S+$", done.output, re.MULTILINE), done.output
    assert "\nHOME=/root\n" in done.output
    assert ".venv" not in done.output


def test_a_namespace_can_be_made_inside_as_our_own_tests_do(fresh_machine: FreshMachine) -> None:
    done = fresh_machine.run("unshare", "--mount", "--pid", "--net", "--fork", "echo", "made", timeout=60)

    assert (done.status, done.output) == (0, "made\n")


def test_make_up_shows_its_whole_tour_and_ends_when_it_is_interrupted(fresh_machine: FreshMachine) -> None:
    with told("make up"):
        up = fresh_machine.start("make", "up", "ARGS=--port 0")
        try:
            up.wait_ready(lambda: "Ctrl-C stops everything" in up.log.read_text(), timeout=300)
            program = up.pid
            while (child := processes.child_of(program)) is not None:
                program = child
            os.kill(program, signal.SIGINT)
            status = up.wait(60)
        finally:
            up.kill()
    said = up.log.read_text()

    assert status == 0, said
    assert said.endswith("stopped; everything that was started has ended\n"), said
    assert "calls calculator(expression='2 * (3 + 4)'): 200" in said


def test_the_packages_that_the_readme_names_can_be_installed_as_it_says(step: Step) -> None:
    (command,) = re.findall(r"`(apt-get update && apt-get install [^`]+)`", (ROOT / "README.md").read_text())

    step("sh", "-c", command, timeout=300)


def test_all_checks_pass(step: Step) -> None:
    step("make", "check", timeout=600)


class UnitTests(NamedTuple):
    """A run of them: pytest's exit status, what it printed, what each test said."""

    status: int
    output: str
    phases: list[outcomes.Phase]


@pytest.fixture(scope="module")
def unit_tests(fresh_machine: FreshMachine) -> UnitTests:
    """As `make test` runs them."""
    pytest_as_make_does = (".venv/bin/python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile")
    with told(f"pytest {UNIT}"):
        done = fresh_machine.run(
            "env", f"{reports.VARIABLE}={CLONE}/unit.jsonl", *pytest_as_make_does, UNIT, timeout=1200
        )
        print(done.output.rstrip().rpartition("\n")[2])
    return UnitTests(done.status, done.output, outcomes.read(fresh_machine.folder / "clone" / "unit.jsonl"))


@pytest.mark.guarantee
def test_the_unit_tests_break_no_guarantee(unit_tests: UnitTests) -> None:
    """Apart from the others, since continuous integration never runs a guarantee again."""
    why = outcomes.refusal(unit_tests.status, unit_tests.phases) if unit_tests.status else ""
    if why:
        pytest.fail(f"{why}\n{unit_tests.output}", pytrace=False)
    assert any(phase.guarantee for phase in unit_tests.phases)


def test_the_unit_tests_pass(unit_tests: UnitTests) -> None:
    if unit_tests.status:
        pytest.fail(f"pytest ended with {unit_tests.status}:\n{unit_tests.output}", pytrace=False)


def test_the_built_servers_are_found_and_the_packaged_ones_unpacked(step: Step) -> None:
    said = step("make", "build-tools", timeout=300).output

    for name in SUITE:
        assert re.search(rf"^{name} {re.escape(PARTS[name].version)}\S* from ", said, re.MULTILINE), said
    assert re.search(r"^prometheus: .*/prometheus-[\d.]+/prometheus$", said, re.MULTILINE), said
    assert re.search(r"^redis-server: .*/redis-[\d.]+/usr/bin/redis-server$", said, re.MULTILINE), said
