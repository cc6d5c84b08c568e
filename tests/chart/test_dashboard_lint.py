"""The committed dashboards are what the code makes, and hold nothing that Grafana would refuse, drop or show badly.

The linter itself is tried on one broken dashboard for each of its rules.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import generate, governance, lint, operators, propagation, replicas, search, usage
from dashboards.interpolate import Choice, UnknownVariableError, interpolate
from dashboards.lint_queries import Metric, reference, unparseable
from realparts import prometheus
from realparts.required import require_prometheus

HELM = Path(__file__).parents[2] / "helm"
FOLDER = HELM / "toolcrib" / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
PAGES = {file.name: json.loads(file.read_text()) for file in FILES}
RULES = HELM / "toolcrib" / "rules"
ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((RULES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
METRICS = {
    "toolcrib_calls_total": Metric("counter", frozenset({"agent", "tool"})),
    "toolcrib_catalog_tools": Metric("gauge", frozenset()),
    "toolcrib_tool_info": Metric("gauge", frozenset({"tool"})),
    "toolcrib_grant_uses_total": Metric("counter", frozenset({"grant"})),
    "toolcrib_call_duration_seconds_bucket": Metric("counter", frozenset({"tool", "le"})),
}


def test_the_committed_dashboards_are_what_the_code_makes() -> None:
    assert {file.name: file.read_text() for file in FILES} == generate.dashboards()


def test_nothing_in_them_would_be_refused_dropped_or_shown_badly() -> None:
    assert list(lint.lint(PAGES, reference())) == []


@pytest.mark.parametrize(
    ("alert", "limit"),
    [
        ("ToolcribGrantExpiring", f"< {governance.ENDS_SOON // 3600} * 3600"),
        ("ToolcribToolErrors", f"> {usage.ERROR_SHARE}"),
        ("ToolcribPolicyAge", f"> {replicas.POLICY_AGE}"),
        ("ToolcribOperatorQueueStuck", f"> {operators.WAITING}"),
        ("ToolcribSearchDegraded", f"> {search.DEGRADED}"),
        ("ToolcribPropagationBurnFast", f"* {1 - propagation.OBJECTIVE:.2f}"),
    ],
)
def test_a_colour_changes_where_its_alert_fires(alert: str, limit: str) -> None:
    assert limit in ALERTS[alert]


def test_a_tool_fails_on_the_dashboard_by_what_fails_it_in_the_alert() -> None:
    assert f'outcome=~"{usage.FAULTS}"' in (RULES / "recording.yaml").read_text()


def test_every_runbook_that_a_panel_names_is_an_alerts() -> None:
    named = {name for page in PAGES.values() for name in re.findall(r"\bToolcrib[A-Z]\w+", json.dumps(page))}

    assert named
    assert named <= set(ALERTS)


@pytest.mark.real
def test_every_query_is_promql() -> None:
    assert unparseable((text for page in PAGES.values() for *_, text in lint.queries(page)), promtool()) == {}


@pytest.mark.real
def test_what_is_used_in_one_installation_is_unused_in_another(tmp_path: Path) -> None:
    """Two installations, a and b, with a grant and a tool of one name, and a tool in b that is disabled."""
    grant = 'kind="AgentScopeBinding", grant="heist/g", namespace='
    series = {
        f'toolcrib_grant_info{{{grant}"a", subject="s", scope="x"}}': "1x20",
        f'toolcrib_grant_info{{{grant}"b", subject="s", scope="x"}}': "1x20",
        f'toolcrib_grant_last_used_timestamp_seconds{{{grant}"a"}}': "1140x20",
        f'toolcrib_grant_matched_tools{{{grant}"a"}}': "4x20",
        f'toolcrib_grant_matched_tools{{{grant}"b"}}': "2x20",
        f'toolcrib_grant_tool_last_used_timestamp_seconds{{{grant}"a", tool="t", pod="1"}}': "1140x20",
        f'toolcrib_grant_tool_last_used_timestamp_seconds{{{grant}"a", tool="t", pod="2"}}': "1000x20",
        'toolcrib_tool_info{tool="t", server="m", state="Active", namespace="a"}': "1x20",
        'toolcrib_tool_info{tool="t", server="m", state="Active", namespace="b"}': "1x20",
        'toolcrib_tool_info{tool="off", server="m", state="Disabled", namespace="b"}': "1x20",
        'toolcrib_tool_grants{tool="t", server="m", namespace="a"}': "1x20",
        'toolcrib_tool_grants{tool="t", server="m", namespace="b"}': "0x20",
        'toolcrib_tool_grants{tool="off", server="m", namespace="b"}': "0x20",
        'toolcrib_calls_total{agent="s", tool="t", server="m", outcome="ok", namespace="a"}': "0+1x20",
    }
    panels = {
        ("toolcrib-governance", "Grants never used"): [f'{{{grant}"b", subject="s"}} 1'],
        ("toolcrib-governance", "Tools nobody can call"): ['{tool="t", server="m", namespace="b"} 0'],
        ("toolcrib-governance", "Tools out of reach"): ["{} 1"],
        ("toolcrib-usage", "Dead tools"): [
            '{tool="t", server="m", state="Active", namespace="b"} 1',
            '{tool="off", server="m", state="Disabled", namespace="b"} 1',
        ],
    }
    variables = dict.fromkeys(("namespace", "agent", "grant", "server", "tool"), ".*")
    asked = []
    for (uid, title), rows in panels.items():
        found = [p for p in PAGES[f"{uid}.json"]["panels"] if p["title"] == title]
        (target,) = max(found, key=lambda p: bool(p["type"] == "table"))["targets"]
        said = [{"labels": row.rpartition(" ")[0], "value": int(row.rpartition(" ")[2])} for row in rows]
        asked.append(
            {
                "expr": interpolate(target["expr"], Choice(variables, range_seconds=600)),
                "eval_time": "20m",
                "exp_samples": said,
            }
        )
    asked.append(
        {
            "expr": interpolate(governance.USED_SHARE, Choice(variables, range_seconds=600)),
            "eval_time": "20m",
            "exp_samples": [
                {"labels": f'{{{grant}"a"}}', "value": 0.25},
                {"labels": f'{{{grant}"b"}}', "value": 0},
            ],
        }
    )
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    file = tmp_path / "installations.yaml"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))

    done = subprocess.run([promtool(), "test", "rules", file], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_a_query_that_is_not_promql_is_named() -> None:
    wrong = unparseable(["sum(up", "up{", "sum(up)"], promtool())

    assert set(wrong) == {"sum(up", "up{"}
    assert "parse error" in wrong["sum(up"]


def test_the_linter_runs_by_hand_and_tells_by_its_exit_status(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(page() | {"uid": ""}))

    good = subprocess.run(
        [sys.executable, HELM / "dashboards" / "lint.py", *FILES], capture_output=True, text=True
    )
    bad = subprocess.run(
        [sys.executable, HELM / "dashboards" / "lint.py", broken], capture_output=True, text=True
    )

    assert (good.returncode, good.stdout) == (0, "")
    assert bad.returncode == 1
    assert "broken.json: uid ''" in bad.stdout


def promtool() -> Path:
    """The program, or a skip (a failure where real parts are required)."""
    require_prometheus()
    return prometheus.path_of("promtool")


# -------------------------------------------------------------------------------------- one broken dashboard per rule


def page() -> dict[str, Any]:
    """A small dashboard without a fault: a graph and a table."""
    about = "What it is, and what to do when it looks bad: look closer."
    source = {"type": "prometheus", "uid": "${datasource}"}
    steps = {"mode": "absolute", "steps": [{"value": None, "color": "green"}, {"value": 5, "color": "red"}]}
    defaults = {"unit": "reqps", "thresholds": steps}
    calls = 'toolcrib_calls_total{namespace=~"$namespace"}'
    graph = {
        "id": 1, "type": "timeseries", "title": "Calls", "description": about, "datasource": source,
        "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
        "fieldConfig": {"defaults": copy.deepcopy(defaults), "overrides": []},
        "targets": [
            {"refId": "A", "expr": f"sum by (agent) (rate({calls}[$__rate_interval]))", "range": True,
             "instant": False, "legendFormat": "{{agent}}", "datasource": source},
        ],
    }  # fmt: skip
    link = {"title": "Show", "url": "/d/one?var-namespace=${__value.raw}"}
    table = {
        "id": 2, "type": "table", "title": "Top", "description": about, "datasource": source,
        "gridPos": {"x": 12, "y": 0, "w": 12, "h": 8},
        "fieldConfig": {
            "defaults": copy.deepcopy(defaults),
            "overrides": [
                {"matcher": {"id": "byName", "options": "Agent"}, "properties": [{"id": "links", "value": [link]}]}
            ],
        },
        "options": {"frameIndex": 0, "showHeader": True, "sortBy": [{"displayName": "Calls", "desc": True}]},
        "transformations": [
            {"id": "organize", "options": {"renameByName": {"agent": "Agent", "Value": "Calls"}}}
        ],
        "targets": [
            {"refId": "A", "expr": f"sum by (agent) (increase({calls}[$__range]))", "range": False, "instant": True,
             "format": "table", "datasource": source},
        ],
    }  # fmt: skip
    variables = [
        {"type": "datasource", "name": "datasource", "query": "prometheus"},
        {"type": "query", "name": "namespace", "query": "label_values(toolcrib_calls_total, namespace)",
         "datasource": source},
    ]  # fmt: skip
    made: dict[str, Any] = {
        "uid": "one", "title": "One", "description": "About one.", "tags": ["toolcrib"], "timezone": "browser",
        "schemaVersion": 41, "editable": False, "refresh": "1m", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables}, "annotations": {"list": []}, "panels": [graph, table],
        "links": [{"title": "All", "type": "dashboards", "tags": ["toolcrib"], "icon": "", "tooltip": "",
                   "asDropdown": False, "targetBlank": False, "includeVars": True, "keepTime": True}],
    }  # fmt: skip
    return copy.deepcopy(made)


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change at a place, like `panels.0.title`; None takes the key away."""

    def change(made: dict[str, Any]) -> None:
        at: Any = made
        *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
        for step in way:
            at = at[step]
        if value is None:
            del at[last]
        else:
            at[last] = value

    return change


def query(text: str) -> Callable[[dict[str, Any]], None]:
    """Another query in the graph."""
    return put("panels.0.targets.0.expr", text)


NS = 'namespace=~"$namespace"'
STEPS = "fieldConfig.defaults.thresholds.steps"
BROKEN = [
    (put("uid", "with space"), "uid 'with space'"),
    (put("id", 7), "id: it belongs to one server"),
    (put("title", None), "no title"),
    (put("description", None), "no description"),
    (put("tags", []), "no tags"),
    (put("editable", True), "editable"),
    (put("schemaVersion", 16), "schemaVersion below 36"),
    (put("refresh", "7s"), "refresh '7s'"),
    (put("panels.0.colour", "blue"), "panels[0].colour is unknown to Grafana"),
    (put("panels.0.fieldConfig.defaults.units", "s"), "defaults.units is unknown to Grafana"),
    (put("panels.0.options", {"legend": {"showLegend": True, "colour": 1}}), "legend.colour is unknown to Grafana"),
    (put("panels.1.options.showHeaders", True), "options.showHeaders is unknown to Grafana"),
    (put("panels.0.targets.0.expression", "up"), "targets[0].expression is unknown to Grafana"),
    (put("panels.0.fieldConfig.defaults.custom", {"cellOptions": 3, "lineColour": "x"}), "is unknown to Grafana"),
    (put("templating.list.0.name", "__source"), "the name is reserved"),
    (put("templating.list.1.name", "datasource"), "variable datasource is defined twice"),
    (put("templating.list.1.query", "label_values(up{a=~\"$b\"}, b)"), "variable b is used and not defined"),
    (put("templating.list.0.regex", "$namespace"), "variable datasource uses namespace, which comes later"),
    (put("panels.0.title", "Calls of $agent"), "variable agent is used and not defined"),
    (put("panels.0.title", "[[agent]]"), "variable agent is used and not defined"),
    (lambda made: made["templating"]["list"].append({"type": "textbox", "name": "x"}), "x is defined and not used"),
    (put("links.0.tags", ["other"]), "no dashboard has its tags"),
    (put("panels.1.fieldConfig.overrides.0.properties.0.value.0.url", "/d/two"), "link to two: there is no such"),
    (put("panels.1.fieldConfig.overrides.0.properties.0.value.0.url", "/d/one?var-x=1"), "it has no variable x"),
    (put("panels.0.id", None), "a panel has no id"),
    (put("panels.1.id", 1), "panel id 1 is used 2 times"),
    (put("panels.1.gridPos.x", 11), "Top: overlaps Calls"),
    (put("panels.1.gridPos.y", 9), "Top: Grafana would move it up"),
    (put("panels.1.gridPos.x", 13), "Top: outside of the grid"),
    (put("panels.0.type", "graph"), "type graph is gone: timeseries"),
    (put("panels.0.type", "singlestat"), "type singlestat is gone: stat"),
    (put("panels.0.type", "plot"), "type plot is not a panel"),
    (put("panels.0.gridPos.w", 4), "4 columns are too narrow"),
    (put("panels.0.title", ""), "no title"),
    (put("panels.0.title", "C" * 90), "the title does not fit at 1280 pixels"),
    (put("panels.0.description", "Calls."), "no description of what to do"),
    (put("panels.0.datasource", None), "Calls: no data source"),
    (put("panels.0.targets.0.datasource", None), "Calls A: no data source"),
    (put("panels.0.targets.0.datasource.uid", "P1809F7CD0C75ACF3"), "is hard-coded"),
    (put("panels.0.fieldConfig.defaults.unit", None), "no unit"),
    (put("panels.0.fieldConfig.defaults.unit", "requests"), "unit requests is not Grafana's"),
    (put(f"panels.0.{STEPS}.0.value", 0), "thresholds [0, 5]"),
    (put(f"panels.0.{STEPS}", [{"value": None, "color": "a"}, {"value": 5, "color": "b"}, {"value": 1, "color": "c"}]),
     "thresholds [None, 5, 1]"),
    (put("panels.1.fieldConfig.overrides.0.matcher.options", "Agents"), "an override for the column Agents"),
    (put("panels.1.options.sortBy.0.displayName", "Value"), "sorted by Value, which is not there"),
    (put("panels.0.targets", []), "Calls: no query"),
    (lambda made: made["panels"][0]["targets"].append(made["panels"][0]["targets"][0]), "refId A is used 2 times"),
    (lambda made: made["panels"][0]["targets"].append(made["panels"][0]["targets"][0] | {"refId": "B"}),
     "two queries have one legend"),
    (put("panels.0.targets.0.legendFormat", ""), "no legend"),
    (put("panels.0.targets.0.legendFormat", "{{tool}}"), "the legend names tool, which the query does not keep"),
    (put("panels.0.targets.0.legendFormat", "calls"), "several series and one legend"),
    (put("panels.0.targets.0.instant", True), "an instant query draws no line"),
    (put("panels.1.targets.0.instant", False), "a range query where one value is shown"),
    (put("panels.1.targets.0.format", "time_series"), "a table needs format table"),
    (query(f"sum by (agent) (rate(toolcrib_cals_total{{{NS}}}[5m]))"), "toolcrib_cals_total is not in"),
    (query(f'sum by (agent) (rate(toolcrib_calls_total{{{NS}, mode="x"}}[5m]))'), "toolcrib_calls_total has no label mode"),
    (query("sum by (agent) (rate(toolcrib_calls_total{}[5m]))"), "not narrowed to the variable namespace"),
    (query("sum by (agent) (rate(toolcrib_calls_total[5m]))"), "not narrowed to the variable namespace"),
    (query("vector(1)"), "names no metric"),
    (query(f"sum by (server) (rate(toolcrib_calls_total{{{NS}}}[5m]))"), "groups by server, which none"),
    (query(f"sum by (agent) (toolcrib_calls_total{{{NS}}})"), "is a counter: it needs rate()"),
    (query(f"sum(rate(toolcrib_catalog_tools{{{NS}}}[5m]))"), "rate() of toolcrib_catalog_tools, which is a gauge"),
    (query(f"max by (tool) (toolcrib_tool_info{{{NS}}})"), "(tool) merges installations"),
    (query(f"toolcrib_tool_info{{{NS}}} unless on (tool) sum by (namespace, tool) (rate(toolcrib_calls_total{{{NS}}}[5m]))"),
     "(tool) merges installations"),
    (query(f"sum by (grant) (rate(toolcrib_grant_uses_total{{{NS}}}[5m]))"), "(grant) merges installations"),
    (query(f"histogram_quantile(0.9, sum(rate(toolcrib_call_duration_seconds_bucket{{{NS}}}[5m])))"), "without `by (le"),
]  # fmt: skip


def test_a_dashboard_without_a_fault_passes() -> None:
    assert list(lint.lint({"one.json": page()}, METRICS)) == []


@pytest.mark.parametrize(("damage", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_a_broken_dashboard_is_named_with_its_fault(
    damage: Callable[[dict[str, Any]], None], said: str
) -> None:
    made = page()
    damage(made)

    problems = [text for _, text in lint.lint({"one.json": made}, METRICS)]

    assert any(said in text for text in problems), problems


def test_two_dashboards_with_one_uid_are_named() -> None:
    problems = [text for _, text in lint.lint({"one.json": page(), "two.json": page()}, METRICS)]

    assert "uid one is used twice" in problems


def test_something_that_is_no_dashboard_is_said_to_be_none() -> None:
    assert any(
        "not a dashboard" in text for _, text in lint.lint({"x.json": page() | {"panels": [{}]}}, METRICS)
    )


# ------------------------------------------------------------------------------------------------------ interpolation


@pytest.mark.parametrize(
    ("text", "values", "sent"),
    [
        ('x{a=~"$a"}', {"a": ".*"}, 'x{a=~".*"}'),
        ('x{a=~"$a"}', {"a": ["one"]}, 'x{a=~"one"}'),
        ('x{a=~"${a}"}', {"a": ["one", "two"]}, 'x{a=~"(one|two)"}'),
        ('x{a=~"$a"}', {"a": ["a.b/c", "d"]}, 'x{a=~"(a\\\\.b\\\\/c|d)"}'),
        ("rate(x[$__rate_interval])", {}, "rate(x[60s])"),
        ("rate(x[$__range]) > time() - $__range_s", {}, "rate(x[21600s]) > time() - 21600"),
    ],
)
def test_variables_are_replaced_as_grafana_does_it(
    text: str, values: dict[str, list[str] | str], sent: str
) -> None:
    assert interpolate(text, Choice(values)) == sent


def test_a_variable_that_nobody_defined_is_an_error() -> None:
    with pytest.raises(UnknownVariableError):
        interpolate("$nobody", Choice())
