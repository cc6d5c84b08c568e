"""Every query of every panel of the dashboards answers, on a real Prometheus that scrapes real services at work."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards import lint
from dashboards.interpolate import ALL, Choice, interpolate
from observed import DEAD, DENIED_ONCE, DOWN, ON_TRIAL, SUSPENDED, UNREACHED, UNUSED, Observed, observed
from realparts.required import require_prometheus, require_real

pytestmark = [pytest.mark.real, pytest.mark.long]

FOLDER = Path(__file__).parents[2] / "helm" / "toolcrib" / "dashboards"
PAGES = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
QUERIES = [(uid, *query) for uid, page in PAGES.items() for query in lint.queries(page)]
RANGE, DEADLINE = 600, 120.0
VARIABLES = {v["name"] for page in PAGES.values() for v in page["templating"]["list"]} - {"datasource"}
EMPTY_HERE = {
    ("toolcrib-health", "Takeover by another operator"): "no operator died while the test looked",
    ("toolcrib-health", "Event loops held"): "nothing held an event loop",
    ("toolcrib-health", "Servers that cannot be read"): "no server is away",
}
"""Queries that have nothing to show in this load, each with the reason."""


@pytest.fixture(scope="module")
def work() -> Iterator[Observed]:
    """Toolcrib after a while of work: everything has happened at least in two rounds, scraped apart."""
    require_real("kube-apiserver", "etcd", "kubectl")
    require_prometheus()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    with observed(soon.strftime("%Y-%m-%dT%H:%M:%SZ")) as made:
        made.once()
        yield made


def test_every_query_of_every_panel_returns_data(work: Observed) -> None:
    missing = {(uid, panel, ref): text for uid, panel, ref, text in QUERIES if (uid, panel) not in EMPTY_HERE}
    deadline = time.monotonic() + DEADLINE

    while missing and time.monotonic() < deadline:
        work.work()
        time.sleep(0.5)  # more samples: Prometheus scrapes once a second
        missing = {key: text for key, text in missing.items() if not _data(work, *key, text)}

    assert {key: plain(text) for key, text in missing.items()} == {}


@pytest.mark.parametrize(
    ("uid", "panel", "labels", "value"),
    [
        ("toolcrib-governance", "Grants never used", {"subject": UNUSED, "grant": UNUSED}, 1),
        ("toolcrib-governance", "Tools nobody can call", {"tool": UNREACHED}, 0),
        (
            "toolcrib-governance",
            "Denials by agent and rule",
            {"agent": DENIED_ONCE, "reason": "not_permitted", "action": "call"},
            1,
        ),
        ("toolcrib-governance", "Suspended agents", {"agent": SUSPENDED}, 1),
        (
            "toolcrib-usage",
            "Trials and what was decided",
            {"canary": ON_TRIAL, "tool": "heist/calculator", "state": "Running"},
            0.5,
        ),
        ("toolcrib-usage", "Dead tools", {"tool": DEAD, "state": "Active"}, 1),
        ("toolcrib-usage", "Dead tools", {"tool": UNREACHED}, 1),
        ("toolcrib-health", "Leaders", {}, 1),
        ("toolcrib-health", "Replicas behind", {}, 0),
        ("toolcrib-health", "Versions", {}, 2),
    ],
)
def test_a_table_tells_what_happened(
    work: Observed, uid: str, panel: str, labels: dict[str, str], value: float
) -> None:
    def told() -> list[float]:
        found = query(work, expression(uid, panel))
        return [float(row["value"][1]) for row in found if row["metric"].items() >= labels.items()]

    deadline = time.monotonic() + 60
    while (last := told()) != [value]:
        assert time.monotonic() < deadline, last
        time.sleep(0.5)


def test_what_was_used_is_neither_unused_nor_dead(work: Observed) -> None:
    unused = _column(work, "toolcrib-governance", "Grants never used", "grant")
    dead = _column(work, "toolcrib-usage", "Dead tools", "tool")

    assert "heist/safecracker" not in unused
    assert {"heist/calculator", "heist/file-reader"} & dead == set()


def test_who_falls_back_and_who_is_unlike_itself_is_named(work: Observed) -> None:
    def told() -> tuple[set[str], dict[str, float]]:
        found = query(work, expression("toolcrib-governance", "Agents unlike themselves", "A"))
        scores = {row["metric"]["agent"]: float(row["value"][1]) for row in found}
        return _column(work, "toolcrib-health", "Tools that fall back", "tool"), scores

    deadline = time.monotonic() + 60
    # every call of the suspended agent is refused
    while (last := told())[0] != {DOWN} or last[1].get(SUSPENDED) != 1 or not last[1].get("heist/hacker"):
        assert time.monotonic() < deadline, last
        time.sleep(0.5)


def test_choosing_an_agent_narrows_what_is_shown(work: Observed) -> None:
    text = expression("toolcrib-usage", "Calls by agent, tool, server and outcome")

    both = query(work, text, agent=["heist/safecracker", "heist/hacker"])
    one = query(work, text, agent=["heist/hacker"], tool=["heist/broken"])

    assert {row["metric"]["agent"] for row in both} == {"heist/safecracker", "heist/hacker"}
    assert {(row["metric"]["agent"], row["metric"]["tool"]) for row in one} == {
        ("heist/hacker", "heist/broken")
    }


def test_every_variable_has_values(work: Observed) -> None:
    for uid, page in PAGES.items():
        for variable in page["templating"]["list"]:
            if variable["type"] == "query":
                metric, _, label = (
                    variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
                )
                found = {row["metric"].get(label, "") for row in query(work, metric)}
                assert found - {""}, (uid, variable["name"])


# ------------------------------------------------------------------------------------------------------------ asking


def plain(text: str, **chosen: list[str]) -> str:
    """The query as Grafana would send it, all variables on All but the chosen ones."""
    values: dict[str, list[str] | str] = dict.fromkeys(VARIABLES, ALL)
    choice = Choice(values | chosen, range_seconds=RANGE, step_seconds=2, scrape_seconds=1)
    return interpolate(text, choice)


def expression(uid: str, panel: str, ref: str = "A") -> str:
    """One query of a panel; of two panels with one title, the table's."""
    found = [p for p in PAGES[uid]["panels"] if p.get("title") == panel]
    targets = max(found, key=lambda p: bool(p["type"] == "table"))["targets"]
    return next(str(target["expr"]) for target in targets if target["refId"] == ref)


def query(work: Observed, text: str, **chosen: list[str]) -> list[dict[str, Any]]:
    """The rows of an instant query."""
    return work.prometheus.query(plain(text, **chosen))


def _data(work: Observed, uid: str, panel: str, ref: str, text: str) -> bool:
    # `or vector(0)` would answer even if there were no such metric
    expression = plain(text.replace(" or vector(0)", ""))
    if not _drawn(uid, panel, ref):
        return any(not math.isnan(float(row["value"][1])) for row in work.prometheus.query(expression))
    series = work.drawn(expression, RANGE, step=2)
    return any(not math.isnan(float(value)) for each in series for _, value in each["values"])


def _drawn(uid: str, panel: str, ref: str) -> bool:
    """Whether the query is drawn over the range, as its target says."""
    targets = (t for p in PAGES[uid]["panels"] if p.get("title") == panel for t in p.get("targets", ()))
    return any(t["refId"] == ref and t.get("range") for t in targets)


def _column(work: Observed, uid: str, panel: str, label: str) -> set[str]:
    return {row["metric"][label] for row in query(work, expression(uid, panel))}
