"""The rule files: what they say is true of metrics, tests and runbooks, and promtool's own unit tests of them pass."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from realparts import processes, prometheus
from realparts.required import require_prometheus

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "helm/toolcrib/rules").glob("*.yaml"))
TESTS = sorted((ROOT / "tests/chart/rules").glob("*.yaml"))
RUNBOOKS = ROOT / "docs/guides/runbooks.md"
WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def groups() -> list[dict[str, Any]]:
    return [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def unit_tests() -> list[dict[str, Any]]:
    return [test for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]


def documented() -> dict[str, set[str]]:
    """Metric → labels, as the reference page has them; a histogram's three series apart."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs/reference/metrics.md").read_text().splitlines():
        row = re.match(r"\| `(toolcrib_\w+)` \| (\w+) \| ([^|]*) \|", line)
        if row:
            labels = set(re.findall(r"`(\w+)`", row[3]))
            names = [row[1] + s for s in ("_bucket", "_sum", "_count")] if row[2] == "histogram" else [row[1]]
            for name in names:
                found.setdefault(name, set()).update(labels, {"le"} if name.endswith("_bucket") else ())
    return found


@pytest.mark.real
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_promtool_accepts_the_rule_file(path: Path) -> None:
    require_prometheus()
    done = subprocess.run(
        [prometheus.path_of("promtool"), "check", "rules", "--lint-fatal", path],
        env=processes.clean_environment(processes.GO_COMMANDS),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_unit_tests_of_the_rules_pass(path: Path) -> None:
    require_prometheus()
    done = subprocess.run(
        [prometheus.path_of("promtool"), "test", "rules", path],
        env=processes.clean_environment(processes.GO_COMMANDS),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, silent = set(), set()
    for test in unit_tests():
        for case in test.get("alert_rule_test", ()):
            (fires if case["exp_alerts"] else silent).add(case["alertname"])

    names = {rule["alert"] for rule in alerts()}
    assert fires == names
    assert silent == names


def test_every_recorded_series_has_a_test() -> None:
    tested = {
        word
        for test in unit_tests()
        for case in test.get("promql_expr_test", ())
        for word in WORDS.findall(case["expr"])
    }
    assert recorded() - tested == set()


def test_every_unit_test_evaluates_the_groups_in_the_order_of_the_files() -> None:
    """Otherwise promtool takes them in any order, and an alert may see what was recorded a step before."""
    names = sorted(group["name"] for group in groups())
    for path in TESTS:
        assert sorted(yaml.safe_load(path.read_text())["group_eval_order"]) == names, path.name


def test_expressions_use_only_metrics_and_labels_that_the_reference_lists() -> None:
    known = documented()
    for rule in rules():
        name, text = rule.get("alert") or rule["record"], rule["expr"]
        metrics = {w for w in WORDS.findall(text) if w.startswith(("toolcrib_", "toolcrib:"))}
        assert metrics, name
        assert metrics - set(known) - recorded() == set(), name
        for metric, selectors in re.findall(r"(toolcrib_\w+)\{([^}]*)\}", text):
            used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selectors))
            assert used <= known[metric], f"{name}: {metric} has no label {used - known[metric]}"


def test_every_alert_says_how_bad_it_is_what_it_means_and_what_to_do_first() -> None:
    for rule in alerts():
        name, notes = rule["alert"], rule["annotations"]
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert set(notes) == {"summary", "description", "runbook_url"}, name
        assert "{{" not in notes["summary"], name
        assert "{{" in notes["description"], f"{name}: the description has no value"
        assert "First: " in notes["description"], f"{name}: the description does not say what to do first"


def test_every_runbook_link_leads_to_a_section_with_what_it_means_commands_causes_and_an_end() -> None:
    sections = {
        title.lower(): body
        for title, body in re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text())
    }
    for rule in alerts():
        url = rule["annotations"]["runbook_url"]
        assert url == f"__RUNBOOK_BASE__/docs/guides/runbooks.md#{rule['alert'].lower()}"
        body = sections.get(rule["alert"].lower())
        assert body is not None, f"docs/guides/runbooks.md has no section for {rule['alert']}"
        for part in ("**You see**", "**Check**", "**Do**", "**Ends**"):
            assert part in body, f"{rule['alert']}: {part}"
        assert body.count("```") >= 2, f"{rule['alert']}: no commands"
    assert {t for t in sections if t.startswith("toolcrib")} == {r["alert"].lower() for r in alerts()}


def test_the_rule_files_hold_no_helm_templates() -> None:
    for path in RULES:
        text = path.read_text()
        assert ".Values" not in text
        assert ".Release" not in text
        assert "include " not in text
