"""What each test said, as JSON lines for `.ci/run`: a pytest plugin that is on where TOOLCRIB_CI_REPORT names a file.

One line per phase of a test (setup, call, teardown), as `outcomes.Phase` reads them. It exists beside JUnit's XML
since that tells neither marks nor which fixture an error came from. The variable is for this run alone: a pytest that
a test starts as its child does not inherit it, so what fails in there is not reported as a failure of this run.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TOOLCRIB_CI_REPORT"
GUARANTEE = "guarantee"
_FIXTURE = "fixture"
_ON = "toolcrib_ci_report"
"""Tells xdist's workers, which do not inherit the variable, that somebody reads reports."""
_BLAMED = "__toolcrib_fixture__"


class Reports:
    """Appends a line to the file for every report that reaches this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker is about to start."""
        node.workerinput[_ON] = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test ended; with xdist it is told of those of all workers."""
        self._write(report, report.when or "", report.duration, dict(report.user_properties))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported has no tests: it fails itself."""
        if report.failed:
            self._write(report, "collect", 0.0, {})

    def _write(
        self,
        report: pytest.TestReport | pytest.CollectReport,
        when: str,
        seconds: float,
        properties: dict[str, object],
    ) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        line = {
            "test": report.nodeid,
            "when": when,
            "outcome": report.outcome,
            "seconds": round(seconds, 3),
            "guarantee": bool(properties.get(GUARANTEE)),
            "fixture": str(properties.get(_FIXTURE, "")),
            "said": _first_line(crash.message if crash else report.longreprtext) if report.failed else "",
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class Fixtures:
    """Says of a test that failed in its setup which fixture failed."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """The innermost fixture is to blame; pytest raises the same error again for all who share it."""
        try:
            return (yield)
        except BaseException as error:
            if not hasattr(error, _BLAMED):
                setattr(error, _BLAMED, f"{fixturedef.baseid}::{fixturedef.argname}")
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Reports take it along, from workers too."""
        report = yield
        if call.when == "setup" and call.excinfo and hasattr(call.excinfo.value, _BLAMED):
            report.user_properties.append((_FIXTURE, getattr(call.excinfo.value, _BLAMED)))
        return report


def register(config: pytest.Config) -> None:
    """Write reports where the variable asks for it; workers of xdist report to their controller."""
    path = os.environ.pop(VARIABLE, "")
    given: dict[str, object] | None = getattr(config, "workerinput", None)
    if path if given is None else _ON in given:
        config.pluginmanager.register(Fixtures(), "ci-fixtures")
    if path and given is None:
        config.pluginmanager.register(Reports(Path(path)), "ci-reports")


def mark(items: list[pytest.Item]) -> None:
    """Property tests are guarantees; what is one is told to whoever reads the reports."""
    for item in items:
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker(GUARANTEE)
        if item.get_closest_marker(GUARANTEE):
            item.user_properties.append((GUARANTEE, True))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
