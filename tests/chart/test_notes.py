"""What helm says after an install: its commands are those of this release."""

import json
from pathlib import Path
from typing import Any

import pytest

from chart import CHART, NAMESPACE, helm, render
from chart_values import MATRIX

pytestmark = pytest.mark.real


def _notes(values: dict[str, Any], folder: Path) -> str:
    file = folder / "values.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    done = helm(
        *("install", "crib", str(CHART), "-n", NAMESPACE, "--dry-run=client", "--values", str(file)),
        *("--disable-openapi-validation", "--set", "fullnameOverride=toolcrib"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


@pytest.mark.parametrize(
    ("values", "command"),
    [
        ({}, "get configmap toolcrib-ca -o"),
        ({"tls": {"mode": "certManager"}}, "get secret toolcrib-registry-tls -o"),
        (MATRIX["existing-tls"], "get configmap corp-ca -o"),
        ({"tls": {"mode": "off"}}, ""),
    ],
    ids=["generate", "certManager", "existing", "off"],
)
def test_the_file_of_the_authority_is_made_before_it_is_used(
    values: dict[str, Any], command: str, tmp_path: Path
) -> None:
    said = _notes(values, tmp_path)
    assert ("--ca-file ca.crt" in said) == bool(command)
    made = [line for line in said.splitlines() if line.endswith("> ca.crt")]
    assert len(made) == bool(command)
    assert all(command in line for line in made)


def test_what_was_switched_off_is_said(tmp_path: Path) -> None:
    said = _notes({"operator": {"replicas": 0}, "registry": {"replicas": 0}}, tmp_path)
    assert "There is no operator" in said
    assert "No registry runs" in said


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "Nobody may scrape metrics."),
        ({"monitoring": {"podMonitor": {"enabled": True}}}, "Nobody may scrape metrics, although monitoring"),
        ({"networkPolicy": {"enabled": False}}, "anyone who reaches the pods may"),
        ({"metrics": {"from": {"namespaces": ["monitoring"]}}}, ""),
    ],
    ids=["default", "monitoring is on", "no policies", "somebody may"],
)
def test_who_may_scrape_is_said(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    said = _notes(values, tmp_path)
    assert says in said
    assert ("scrape" in said) is bool(says)


def test_reasons_that_tell_of_hidden_tools_are_named(tmp_path: Path) -> None:
    assert "metrics.reasons is full" in _notes({"metrics": {"reasons": "full"}}, tmp_path)
    assert "metrics.reasons" not in _notes({}, tmp_path)


def test_the_way_out_of_an_uninstall_that_cannot_go_on_is_said_before_and_where_it_stops(
    tmp_path: Path,
) -> None:
    assert f"helm uninstall crib -n {NAMESPACE} --no-hooks" in _notes({}, tmp_path)
    job = render().one("Job", "toolcrib-release-bindings")
    assert "--no-hooks" in job["metadata"]["annotations"]["toolcrib.dev/remedy"]
    assert job["spec"]["activeDeadlineSeconds"] <= 60
