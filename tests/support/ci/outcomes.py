"""What the reports of a run mean: what failed, whether it may run again, and where the time went. Pure.

Standard library only: `.ci/run` starts before there is an environment.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_FAILED = 3
"""Failed files (errors of one fixture count once) beyond which a run is refused: so much is not flaky."""

SLOWEST = 30
_WHOLE = ("setup", "call", "teardown")
"""Phases that a test reports itself: not a module that cannot be imported, nor a worker that ended under a test."""


@dataclass(frozen=True)
class Phase:
    """A phase of a test: `when` is setup, call, teardown, collect, or ??? where its worker crashed; `fixture` is the one that failed."""

    test: str
    when: str
    outcome: str
    seconds: float
    guarantee: bool
    fixture: str
    said: str

    @property
    def failed(self) -> bool:
        return self.outcome == "failed"

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


def read(path: Path) -> list[Phase]:
    """The reports that a run wrote; none if it wrote no file."""
    if not path.exists():
        return []
    return [Phase(**json.loads(line)) for line in path.read_text().splitlines()]


def failures(phases: Iterable[Phase]) -> dict[str, Phase]:
    """The first failed phase of each test that failed, by test."""
    found: dict[str, Phase] = {}
    for phase in phases:
        if phase.failed:
            found.setdefault(phase.test, phase)
    return found


def files(failed: Iterable[Phase]) -> list[str]:
    """The files of these, sorted."""
    return sorted({phase.file for phase in failed})


def refusal(status: int, phases: Sequence[Phase]) -> str:
    """Why a failed run is refused at once; empty where its failed files may run again.

    `status` is pytest's exit status (or make's, which is 2 for any).
    """
    failed = failures(phases)
    if not failed:
        return f"it ended with {status} and told of no failed test"
    crashed = [test for test, phase in failed.items() if phase.when not in _WHOLE]
    if crashed:
        # neither says whether the test, or one of the module, is a guarantee
        return f"pytest could not run, or finish, {', '.join(crashed)}"
    kept = [test for test, phase in failed.items() if phase.guarantee]
    if kept:
        return f"a guarantee failed, which never runs again: {', '.join(kept)}"
    # one fixture that several tests share fails in all of them
    together = {phase.fixture or phase.file for phase in failed.values()}
    if len(together) > MOST_FAILED:
        return f"{len(together)} files failed, more than {MOST_FAILED} are not flaky"
    return ""


def still_broken(wanted: Iterable[str], again: Sequence[Phase]) -> str:
    """Why a run of the failed files again is no pass; empty if every wanted test passed and none failed.

    A test that is not among the reports was not selected: then nothing is known of it.
    """
    failed = failures(again)
    if failed:
        return f"failed again: {', '.join(failed)}"
    ran = {phase.test for phase in again if phase.when == "call" and phase.outcome == "passed"}
    unseen = [test for test in wanted if "::" in test and test not in ran]
    if unseen or not ran:
        return f"did not run again: {', '.join(unseen) or 'no test was selected'}"
    return ""


def by_folder(phases: Iterable[Phase]) -> list[tuple[str, int, float]]:
    """Folder, tests, seconds (of all workers together), the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for phase in phases:
        folder = str(Path(phase.file).parent)
        seconds[folder] += phase.seconds
        tests[folder].add(phase.test)
    return sorted(((f, len(tests[f]), s) for f, s in seconds.items()), key=lambda row: -row[2])


def slowest(phases: Iterable[Phase], most: int = SLOWEST) -> list[tuple[str, float]]:
    """The tests that took longest, with their fixtures' time."""
    seconds: dict[str, float] = defaultdict(float)
    for phase in phases:
        seconds[phase.test] += phase.seconds
    return sorted(seconds.items(), key=lambda row: -row[1])[:most]
