"""Every step that the README shows, on a machine that has seen none of them, with what its commands install alone."""

import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from ci import outcomes, reports
from fresh_debian import Step, told
from realparts import processes
from realparts.freshroot import CLONE, FreshMachine
from realparts.parts import PARTS, SUITE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
UP, TEST = re.findall(r"^(make \w+) +#", README, re.MULTILINE)[:2]
"""The README's first two lines."""

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
    with told(UP):
        up = fresh_machine.start(*UP.split())
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
    (command,) = re.findall(r"`(apt-get update && apt-get install [^`]+)`", README)

    step("sh", "-c", command, timeout=300)


class Outcome(NamedTuple):
    """A run of the README's second line: make's exit status, what it printed, the reports of its tests."""

    status: int
    output: str
    phases: list[outcomes.Phase]


@pytest.fixture(scope="module")
def tests(fresh_machine: FreshMachine, step: Step) -> Outcome:
    # a person may begin with the second line
    step("sh", "-c", "rm -rf .venv ~/.cache/pip ~/.cache/uv", timeout=60)
    with told(TEST):
        done = fresh_machine.run(
            "env", f"{reports.VARIABLE}={CLONE}/tests.jsonl", *TEST.split(), timeout=1200
        )
        print("\n".join(done.output.rstrip().splitlines()[-8:]))
    return Outcome(done.status, done.output, outcomes.read(fresh_machine.folder / "clone" / "tests.jsonl"))


@pytest.mark.guarantee
def test_make_test_breaks_no_guarantee(tests: Outcome) -> None:
    """Apart from the others, since continuous integration never runs a guarantee again."""
    why = outcomes.refusal(tests.status, tests.phases) if tests.status else ""
    if why:
        pytest.fail(f"{why}\n{tests.output}", pytrace=False)
    assert any(phase.guarantee for phase in tests.phases)


def test_make_test_passes_and_names_what_it_left_out_and_its_time(
    tests: Outcome, fresh_machine: FreshMachine
) -> None:
    """What fails here runs again here, alone, as `.ci/run` does it: to begin with a new machine takes longer than it allows."""
    if tests.status:
        failed = outcomes.failures(tests.phases)
        why = outcomes.refusal(tests.status, tests.phases)
        if not why:
            report, files = f"{CLONE}/again.jsonl", outcomes.files(failed.values())
            pytest_again = (".venv/bin/python", "-m", "pytest", "-q", "--suite", "quick", *files)
            with told(f"again: {' '.join(files)}"):
                fresh_machine.run("env", f"{reports.VARIABLE}={report}", *pytest_again, timeout=600)
            phases = outcomes.read(fresh_machine.folder / "clone" / "again.jsonl")
            why = outcomes.still_broken(failed, phases)
        if why:
            pytest.fail(f"{TEST} ended with {tests.status}: {why}\n{tests.output}", pytrace=False)
        print("FLAKY, failed once and passed when run again:", *failed, sep="\n  ")
    assert re.search(r"^[\d,]+ tests left out here: `make test-real` runs them$", tests.output, re.MULTILINE)
    assert re.search(r"^make test: \d+ min \d\d s with its set-up", tests.output, re.MULTILINE)


def test_all_checks_pass(step: Step) -> None:
    step("make", "check", timeout=600)


def test_the_built_servers_are_found_and_the_packaged_ones_unpacked(step: Step) -> None:
    said = step("make", "build-tools", timeout=300).output

    for name in SUITE:
        assert re.search(rf"^{name} {re.escape(PARTS[name].version)}\S* from ", said, re.MULTILINE), said
    assert re.search(r"^prometheus: .*/prometheus-[\d.]+/prometheus$", said, re.MULTILINE), said
    assert re.search(r"^redis-server: .*/redis-[\d.]+/usr/bin/redis-server$", said, re.MULTILINE), said
