"""The lists that `make mcp-conformance` is judged by, and how it judges. The suite itself is not run here."""

import json
import re
from pathlib import Path

import pytest

from mcp_peers.conformance import EXPECTED, REQUIRED, THROUGH, Check, results_in, violations

LINE = re.compile(r"  - (?P<scenario>[a-z0-9-]+):(?P<check>\S+)  # (?P<reason>\S.{15,})")
PASSED = Check("one", "SUCCESS", "")
FAILED = Check("two", "FAILURE", "it broke")


LISTS = {**REQUIRED, **{f"through-{revision}": required for revision, required in THROUGH.items()}}
"""What must pass, by the file beside it that names what may fail."""


def entries(revision: str) -> list[tuple[str, str]]:
    text = (EXPECTED / f"{revision}.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0] == "server:"
    found = [LINE.fullmatch(line) for line in lines[1:]]
    assert None not in found
    return [(m["scenario"], m["check"]) for m in found if m is not None]


@pytest.mark.parametrize("revision", LISTS)
def test_each_expected_failure_names_one_check_and_a_reason(revision: str) -> None:
    assert entries(revision)


@pytest.mark.parametrize("revision", LISTS)
def test_no_expected_failure_is_a_required_check(revision: str) -> None:
    required = set(LISTS[revision])
    hidden = [
        f"{scenario}:{check}"
        for scenario, check in entries(revision)
        if f"{scenario}:{check}" in required or scenario in required
    ]

    assert hidden == []


@pytest.mark.parametrize("revision", REQUIRED)
def test_an_imported_server_may_fail_little_that_our_own_tools_pass(revision: str) -> None:
    more = set(entries(f"through-{revision}")) - set(entries(revision))

    assert len(more) <= 1
    assert set(REQUIRED[revision]) - set(THROUGH[revision]) == {scenario for scenario, _ in more}


def test_a_required_scenario_passes_when_all_of_its_checks_do() -> None:
    assert list(violations(["ping"], {"ping": [PASSED]})) == []


@pytest.mark.parametrize(
    "results",
    [
        {},
        {"ping": []},
        {"ping": [Check("one", "SKIPPED", "")]},
        {"ping": [PASSED, FAILED]},
        {"ping": [PASSED, Check("two", "WARNING", "it should not")]},
        {"ping": [PASSED], "other": [Check("wire-schema-valid", "FAILURE", "no such member")]},
    ],
    ids=["left out", "without checks", "skipped", "a failure", "a warning", "another that breaks the schema"],
)
def test_a_required_scenario_does_not_pass(results: dict[str, list[Check]]) -> None:
    assert list(violations(["ping"], results))


def test_a_required_check_is_judged_apart_from_the_rest_of_its_scenario() -> None:
    assert list(violations(["caching:one"], {"caching": [PASSED, FAILED]})) == []
    assert list(violations(["caching:two"], {"caching": [PASSED, FAILED]})) != []


def test_the_results_of_the_suite_are_read_by_scenario(tmp_path: Path) -> None:
    written = tmp_path / "server-tools-list-2026-11-24T09-00-00-000Z"
    written.mkdir()
    checks = [{"id": "tools-list", "status": "FAILURE", "description": "Lists", "errorMessage": "none"}]
    (written / "checks.json").write_text(json.dumps(checks))

    assert results_in(tmp_path) == {"tools-list": [Check("tools-list", "FAILURE", "none")]}
