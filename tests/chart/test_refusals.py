"""Values that cannot be meant are refused before anything reaches the cluster, with the path and what to do."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from chart import CHART, refused
from chart_values import MATRIX

Values = dict[str, Any]


def _levels(values: Any, path: str = "") -> Iterator[str]:
    """Every mapping of values.yaml whose keys the chart itself defines."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    yield from _walk(schema, schema, values, path)


def _walk(schema: Values, node: Values, values: Any, path: str) -> Iterator[str]:
    while "$ref" in node:
        node = schema["definitions"][node["$ref"].rpartition("/")[2]]
    if node.get("additionalProperties") is not False:
        return
    yield path
    for key, below in node["properties"].items():
        if isinstance(values, dict) and isinstance(values.get(key), dict):
            yield from _walk(schema, below, values[key], f"{path}.{key}" if path else key)


_DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.real
def test_a_typo_is_refused_at_every_level_and_named() -> None:
    """One rendering with a typo in each mapping: helm names them all."""
    levels = list(_levels(_DEFAULTS))
    assert len(levels) > 40, levels
    values: Values = {}
    for level in levels:
        place = values
        for key in filter(None, level.split(".")):
            place = place.setdefault(key, {})
        place["tpyo"] = 1
    said = refused(values)
    for level in levels:
        pointer = "".join(f"/{key}" for key in filter(None, level.split(".")))
        assert f"at '{pointer}': additional properties 'tpyo' not allowed" in said, level


@pytest.mark.real
@pytest.mark.parametrize("level", ["agents", "issuers"])
def test_a_typo_in_an_entry_of_a_list_is_refused(level: str) -> None:
    entry = MATRIX["ingress"]["issuers"][0] if level == "issuers" else MATRIX["agents"]["agents"]["items"][0]
    entries = [entry | {"tpyo": 1}]
    said = refused({level: entries if level == "issuers" else {"items": entries}})
    assert f"at '/{level}{'' if level == 'issuers' else '/items'}/0'" in said
    assert "'tpyo'" in said


def test_every_level_of_the_values_is_closed_or_handed_on_as_it_is() -> None:
    """What is neither is a hole in which a typo would go unseen."""
    handed_on = {
        "commonLabels",
        "commonAnnotations",
        "annotations",
        "labels",
        "podLabels",
        "podAnnotations",
        "nodeSelector",
        "affinity",
        "dnsConfig",
        "podSecurityContext",
        "securityContext",
        "requests",
        "limits",
        "behavior",
        "timeouts",
        "config",
        "agentNamespaces",
        "pods",
    }
    closed = set(_levels(_DEFAULTS))

    def mappings(values: Values, path: str = "") -> Iterator[str]:
        for key, below in values.items():
            if isinstance(below, dict) and key not in handed_on:
                yield f"{path}{key}"
                yield from mappings(below, f"{path}{key}.")

    assert set(mappings(_DEFAULTS)) <= closed


def _nulled(values: Any, depth: int, node: Values, schema: Values) -> Values:
    """Every block of the chart's own that lies at this depth, as null."""
    found: Values = {}
    for key, value in values.items():
        below = node["properties"][key]
        while "$ref" in below:
            below = schema["definitions"][below["$ref"].rpartition("/")[2]]
        if (
            not isinstance(value, dict)
            or below.get("additionalProperties") is not False
            or "requests" in value
        ):
            continue
        if depth == 0:
            found[key] = None
        elif inner := _nulled(value, depth - 1, below, schema):
            found[key] = inner
    return found


@pytest.mark.real
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_block_that_is_null_is_named(depth: int) -> None:
    """`registry:` with nothing under it, say: Helm takes the defaults away, and no template could say what is missing."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = _nulled(_DEFAULTS, depth, schema, schema)
    said = refused(values)
    assert "nil pointer" not in said
    for key in _nulls(values):
        assert re.search(rf"missing propert(y|ies).*'{key}'", said), key


def _nulls(values: Values) -> Iterator[str]:
    for key, value in values.items():
        if value is None:
            yield key
        else:
            yield from _nulls(value)


_WRONG: dict[str, tuple[Any, str]] = {
    "registry.replicas": ("two", "integer"),
    "operator.replicas": (-1, "minimum"),
    "profile": ("postgres", "'weaviate', 'embedded'"),
    "tls.mode": ("none", "'generate'"),
    "image.digest": ("latest", "pattern"),
    "networkPolicy.enabled": ("yes", "boolean"),
    "networkPolicy.apiServerCIDRs": (["10.0.0.1"], "pattern"),
    "registry.resources": ({"limits": {"memory": "much"}}, "pattern"),
    "registry.extraEnv": ({"A": "b"}, "array"),
    "registry.pdb.minAvailable": ("half", "pattern"),
    "registry.service.type": ("Cluster", "'ClusterIP'"),
    "registry.publicUrl": ("https://crib.example.com/path", "pattern"),
    "registry.oauth.scopesSupported": (["offline_access"], "not"),
    "monitoring.serviceMonitor.interval": ("often", "pattern"),
    "monitoring.scrapeConfig.discovery": ("consul", "'dns', 'kubernetes'"),
    "egress.allow": ("api.example.com", "array"),
    "nameOverride": ("true.v1", "pattern"),
    "fullnameOverride": ("Foo_Bar", "pattern"),
}


@pytest.mark.real
def test_values_of_the_wrong_kind_are_all_refused_each_with_its_path() -> None:
    values: Values = {}
    for path, (value, _) in _WRONG.items():
        *levels, last = path.split(".")
        place = values
        for level in levels:
            place = place.setdefault(level, {})
        place[last] = value
    lines = refused(values).splitlines()
    for path, (_, said) in _WRONG.items():
        place_of_it = f"at '/{path.replace('.', '/')}"
        assert any(place_of_it in line and said in line for line in lines), path
