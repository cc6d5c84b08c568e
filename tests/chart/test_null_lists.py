"""A list that is set to null, as people do to take a default away, is an empty list: the chart renders as without it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from chart import CHART, render
from chart_snapshot import snapshot
from chart_values import MATRIX

pytestmark = pytest.mark.real

_VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
_HOST = "toolcrib.example.com"
# Every optional feature of which no list has to be filled.
_EVERYTHING: dict[str, Any] = {
    "runtimeRegistration": {"enabled": True},
    "registry": {
        "publicHost": _HOST,
        "publicPort": 443,
        "ingress": {"enabled": True, "className": "nginx"},
        "autoscaling": {"enabled": True},
        "service": {"type": "LoadBalancer"},
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True, "kind": "ConfigMap"},
        "dashboards": {"enabled": True},
        "scrapeConfig": {"enabled": True},
    },
}
_SETS = {
    "everything": _EVERYTHING,
    "embedded with Prometheus": MATRIX["embedded"] | {"monitoring": _EVERYTHING["monitoring"]},
    "cert-manager": {"tls": {"mode": "certManager"}},
    "prometheus-asks-kubernetes": MATRIX["prometheus-asks-kubernetes"] | {"agents": {}},
    "external-weaviate": MATRIX["external-weaviate"],
}


def _empty_lists(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every list that is empty by default."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _empty_lists(value, (*above, key))
        elif value == []:
            yield (*above, key)


def _with(values: dict[str, Any], path: tuple[str, ...], end: Any) -> None:
    """Set what is at `path`, unless these values say something of their own there."""
    for key in path[:-1]:
        values = values.setdefault(key, {})
    if not values.get(path[-1]):
        values[path[-1]] = end


@pytest.mark.parametrize("name", _SETS)
def test_every_list_may_be_null(name: str) -> None:
    paths = list(_empty_lists(_VALUES))
    nulls = json.loads(json.dumps(_SETS[name]))
    for path in paths:
        _with(nulls, path, None)

    assert ("agents", "items") in paths
    assert ("networkPolicy", "extraIngress") in paths
    assert snapshot(render(nulls)) == snapshot(render(_SETS[name]))
