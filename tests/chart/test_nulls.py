"""A value that is null, as people write to take a default away: it renders as without it, or is refused by its name."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from chart import CHART, NAMESPACE, NEWEST, RELEASE, Object, Rendered, helm, named, refused, render
from chart_snapshot import snapshot
from chart_values import MATRIX

Values = dict[str, Any]
_DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
_SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
_EMPTY = (None, "", False, [], {})
_ABSENT = object()
_HOST = "toolcrib.example.com"
_SCALED = {"enabled": True, "targetMemoryUtilizationPercentage": 80}


@dataclass(frozen=True)
class Key:
    """A place of a value: keys, and numbers in lists."""

    path: tuple[str | int, ...]
    schema: Values
    default: Any
    required: bool

    @property
    def closed(self) -> bool:
        return self.schema.get("additionalProperties") is False and self.default is not _ABSENT

    @property
    def nullable(self) -> bool:
        return "null" in self.schema.get("type", ()) or not self.schema.keys() - {"description"}

    @property
    def pointer(self) -> str:
        return "".join(f"/{part}" for part in self.path)


def _keys(node: Values, default: Any, path: tuple[str | int, ...] = ()) -> Iterator[Key]:
    """Every key of the schema, and an entry of each list and of each map."""
    values = default if isinstance(default, dict) else {}
    for name, below in node.get("properties", {}).items():
        key = Key((*path, name), _resolve(below), values.get(name, _ABSENT), name in node.get("required", ()))
        yield key
        yield from _keys(key.schema, key.default, key.path)
    if isinstance(others := node.get("additionalProperties"), dict):
        yield Key((*path, "x"), _resolve(others), _ABSENT, False)
    if isinstance(items := node.get("items"), dict):
        yield Key((*path, 0), _resolve(items), _ABSENT, False)
        if _resolve(items) is not node:
            yield from (key for key in _keys(_resolve(items), _ABSENT, (*path, 1)) if not key.required)


def _resolve(node: Values) -> Values:
    while "$ref" in node:
        node = _SCHEMA["definitions"][node["$ref"].rpartition("/")[2]]
    return node


_ALL = tuple(_keys(_SCHEMA, _DEFAULTS))
_BLOCKS = [key for key in _ALL if key.closed]
_MISSING = [key for key in _ALL if key.required and not key.closed]
_AS_DEFAULT = [key for key in _ALL if not key.required and not key.closed and key.default in _EMPTY]
_TAKES_AWAY = [
    key for key in _ALL if key.nullable and key.default is not _ABSENT and key.default not in _EMPTY
]
_REFUSED = [key for key in _ALL if key.default is _ABSENT and not key.nullable]
_MEANT = [key for key in _ALL if key.default is _ABSENT and key.nullable]


def _nulled(keys: Iterable[Key], values: Mapping[str, Any] = {}) -> Values:
    """`values` with null for each key that they leave to the chart."""
    nulls: Values = json.loads(json.dumps(values))
    for key in keys:
        place: Any = nulls
        for part, following in zip(key.path, (*key.path[1:], None), strict=True):
            end: Any = None if following is None else [] if isinstance(following, int) else {}
            if isinstance(place, dict):
                place = place.setdefault(part, end)
            else:
                assert isinstance(part, int)
                while len(place) <= part:
                    place.append(None if not len(place) else {})
                place = place[part]
    return nulls


def _nulls(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict | list):
        for name, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _nulls(below, f"{path}.{name}")
    elif value is None:
        yield path


def _nulls_of(rendered: Rendered) -> list[str]:
    return [place for item in rendered.objects for place in _nulls(item, named(item))]


def _rules(rendered: Rendered) -> dict[str, list[Object]]:
    """The rules of each NetworkPolicy and direction."""
    return {
        f"{named(item)} {way}": item["spec"].get(way) or []
        for item in rendered.of("NetworkPolicy")
        for way in ("ingress", "egress")
    }


def test_every_key_of_the_schema_may_be_null_or_must_not() -> None:
    """A default that says something stands under `required`, unless the type says that null means something."""
    classes = (_BLOCKS, _MISSING, _AS_DEFAULT, _TAKES_AWAY, _REFUSED, _MEANT)

    assert [key.pointer for key in _BLOCKS if not key.required] == []
    assert sorted(key.pointer for group in classes for key in group) == sorted(key.pointer for key in _ALL)
    assert min(map(len, classes)) > 5
    assert len(_ALL) > 500


# Every optional feature of which no list has to be filled, and those in which a value without a default is read.
_EVERYTHING: Values = {
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
_PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
_SETS: dict[str, Values] = MATRIX | {
    "everything": _EVERYTHING,
    "embedded with Prometheus": MATRIX["embedded"] | {"monitoring": _EVERYTHING["monitoring"]},
    "external without a key": {"weaviate": {"mode": "external", "external": {"host": "weaviate.search.svc"}}},
    "redis without a password": {
        "registry": {"counters": {"kind": "redis", "url": "redis://redis.limits.svc"}}
    },
    "openai without a key": {
        "registry": {
            "embedder": {
                "kind": "openai",
                "baseUrl": "https://e.example.com/v1",
                "model": "m",
                "dimension": 3,
            }
        }
    },
    "a bundle": {
        "tls": {
            "mode": "existing",
            "existing": {"registrySecret": "a", "weaviateSecret": "b"},
            "ca": {"bundle": _PEM},
        }
    },
}


@pytest.mark.parametrize("name", _SETS)
def test_null_for_what_is_empty_by_default_renders_as_without_it(name: str) -> None:
    rendered = render(_nulled(_AS_DEFAULT, _SETS[name]))

    assert snapshot(rendered) == snapshot(render(_SETS[name]))
    assert _nulls_of(rendered) == []


def test_null_on_the_command_line_is_like_null_in_a_file() -> None:
    nulls = ",".join(f"{'.'.join(map(str, key.path))}=null" for key in _AS_DEFAULT)
    printed = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", NEWEST, "--set", nulls)
    objects = [item for item in yaml.load_all(printed.stdout, Loader=yaml.CSafeLoader) if item]

    assert snapshot(Rendered(objects)) == snapshot(render())


def _said(text: str, key: Key) -> bool:
    parent = key.pointer.rpartition("/")[0]
    return any(
        f"at '{parent}': missing propert" in line and f"'{key.path[-1]}'" in line
        for line in text.splitlines()
    )


def test_null_for_what_has_a_default_is_refused_and_named() -> None:
    """Helm takes the default away, and what is left would mean something else, as an absent list of peers does."""
    values = _nulled(_MISSING)
    sets = ["--set", ",".join(f"{'.'.join(map(str, key.path))}=null" for key in _MISSING)]

    for text in (refused(values), helm("template", RELEASE, str(CHART), "-n", NAMESPACE, *sets).stderr):
        assert [key.pointer for key in _MISSING if not _said(text, key)] == []


def test_null_in_a_list_or_map_is_refused_at_its_place() -> None:
    for depth in {len(key.path) for key in _REFUSED}:
        keys = [key for key in _REFUSED if len(key.path) == depth]
        text = refused(_nulled(keys))
        assert [key.pointer for key in keys if f"at '{key.pointer}'" not in text] == []


def test_null_that_means_something_opens_nothing() -> None:
    """Users that the cluster chooses, a value that is gone, an issuer without groups."""
    keys = [key for key in _MEANT if key.path[0] not in ("agents", "issuers")]
    issuers = [MATRIX["ingress"]["issuers"][0] | {"claims": {"groups": None}}]
    base = MATRIX["agents"] | {"issuers": issuers}
    rendered = render(_nulled(keys, base))

    assert _nulls_of(rendered) == []
    assert _rules(rendered) == _rules(render(base))
    assert {"runAsUser", "fsGroup"}.isdisjoint(
        name
        for where, pod in rendered.pods()
        if where.startswith("Deployment/")
        for name in pod["spec"]["securityContext"]
    )


def test_null_for_a_field_that_an_agent_had_before_is_refused_and_named() -> None:
    fields = [str(key.path[-1]) for key in _MEANT if key.path[:3] == ("agents", "items", 1)]
    item = {"name": "reader"} | dict.fromkeys(fields)
    text = refused({"agents": {"namespaces": ["team-b"], "items": [item]}})

    assert len(fields) > 20
    assert [field for field in fields if f"].{field} " not in text] == []


@pytest.mark.parametrize("key", _TAKES_AWAY, ids=lambda key: key.pointer)
def test_null_that_takes_a_default_away_opens_nothing(key: Key) -> None:
    base = MATRIX["agents"] | {"registry": {"autoscaling": _SCALED}}
    values = _nulled([key], base)
    try:
        rendered = render(values)
    except AssertionError as error:
        assert f".{key.path[-1]}" in str(error)  # noqa: PT017
        return

    assert _nulls_of(rendered) == []
    assert snapshot(rendered) != snapshot(render(base))
    assert _rules(rendered) == _rules(render(base))


@pytest.mark.parametrize("depth", ["matchLabels", "matchExpressions"])
def test_null_in_a_selector_of_agents_is_refused(depth: str) -> None:
    """An API server reads `matchLabels: null` as every namespace."""
    assert f"at '/networkPolicy/agentNamespaces/{depth}'" in refused(
        {"networkPolicy": {"agentNamespaces": {depth: None}}}
    )


@pytest.mark.parametrize("field", ["dnsEgress", "dnsPorts", "outsidePorts", "toolEgress"])
def test_an_empty_list_of_peers_or_ports_opens_nothing(field: str) -> None:
    """NetworkPolicy itself takes an empty list for every address or port."""
    base = MATRIX["agents"] | {"egress": {"allow": ["api.example.com"]}}
    before, after = _rules(render(base)), _rules(render(base | {"networkPolicy": {field: []}}))

    assert after.keys() == before.keys()
    assert after != before
    assert all(rule in before[where] for where, rules in after.items() for rule in rules)
