"""What `toolcrib doctor` says of a chart as it is rendered: which items its default values leave open, and no more."""

from typing import Any

import pytest

from chart import NAMESPACE, render
from toolcrib_cli.doctor import cluster, table
from toolcrib_cli.doctor.facts import Facts, Place

pytestmark = pytest.mark.real


def failing(values: dict[str, Any]) -> set[str]:
    """The items that do not pass."""
    found: dict[str, list[dict[str, Any]]] = {
        kind: [] for kind in ("Workload", *cluster._WHOLE, *cluster._WITHIN, *cluster._OWN)
    }
    for item in render(values).objects:
        if "helm.sh/hook" in (item["metadata"].get("annotations") or {}):
            continue
        kind = "Workload" if item["kind"] in ("Deployment", "StatefulSet") else item["kind"]
        placed = {**item, "metadata": {"namespace": NAMESPACE, **item["metadata"]}}
        if kind.startswith("Cluster"):
            del placed["metadata"]["namespace"]
        found.setdefault(kind, []).append(placed)
    facts = Facts(Place.CLUSTER, found, 1_800_000_000.0)
    results = table.examine(facts)
    assert {r.item.name: r.verdict.found for r in results if r.verdict.outcome == "unknown"} == {}
    return {r.item.name for r in results if r.verdict.outcome == "fail"}


DEFAULT = {"egress", "audit-key", "assertion-keys"}


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ({}, set()),
        ({"profile": "embedded"}, {"several"}),
        ({"rbac": {"editorsGate": True}}, {"editors-gate"}),
        ({"metrics": {"reasons": "full"}}, {"metrics-reasons"}),
        ({"metrics": {"from": {"namespaces": ["*"]}}}, {"metrics-from"}),
        ({"networkPolicy": {"enabled": False}}, {"metrics-from", "admin-port"}),
        ({"tls": {"mode": "off"}}, {"tls"}),
        ({"text": {"hidden": "warn"}}, {"hidden-text"}),
        ({"operator": {"quota": {"tools": 0}}}, {"quotas"}),
        ({"operator": {"quota": {"bytes": "0"}}}, {"quotas"}),
        ({"operator": {"replicas": 1}}, {"several"}),
        ({"registry": {"audit": {"enabled": False}}}, {"audit"}),
        ({"registry": {"audit": {"anchors": False}}}, {"audit"}),
        ({"registry": {"discovery": {"anonymous": "list"}}}, {"anonymous"}),
        ({"registry": {"securityContext": {"readOnlyRootFilesystem": False}}}, {"restricted"}),
        ({"registry": {"extraEnv": [{"name": "TOOLCRIB_DISCOVERY__ANONYMOUS", "value": "list"}]}}, {"anonymous"}),
    ],
)  # fmt: skip
def test_each_value_that_opens_something_is_found_in_the_rendered_chart(
    values: dict[str, Any], more: set[str]
) -> None:
    assert failing(values) - DEFAULT == more


def test_the_default_values_leave_open_what_the_guide_says() -> None:
    assert failing({}) == DEFAULT


def test_a_namespace_of_credentials_is_no_right_too_many() -> None:
    values = {"credentials": {"namespaces": ["team-a"]}, "runtimeRegistration": {"enabled": True}}
    assert failing(values) == DEFAULT
