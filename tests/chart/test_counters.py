"""Where the registry of a release counts calls for the limits of bindings, and what the chart says of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import CHART, NAMESPACE, Rendered, helm, refused, render

pytestmark = pytest.mark.real

REDIS = {"kind": "redis", "url": "redis://redis.limits.svc"}


def _config(rendered: Rendered) -> dict[str, Any]:
    made = next(item for item in rendered.of("ConfigMap") if "registry.yaml" in (item["data"] or {}))
    found: dict[str, Any] = yaml.safe_load(made["data"]["registry.yaml"])["counters"]
    return found


def _notes(values: dict[str, Any], folder: Path) -> str:
    (folder / "values.json").write_text(json.dumps(values), encoding="utf-8")
    done = helm(
        *("install", "crib", str(CHART), "-n", NAMESPACE, "--dry-run=client"),
        *("--values", str(folder / "values.json"), "--disable-openapi-validation"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


@pytest.mark.parametrize(
    ("values", "several"),
    [
        ({}, True),
        ({"registry": {"replicas": 1}}, False),
        ({"registry": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": "1"}}}}, True),
        ({"profile": "embedded"}, False),
    ],
    ids=["default", "one", "autoscaled", "embedded"],
)
def test_replicas_that_would_count_apart_are_warned_of_and_know_it(
    values: dict[str, Any], several: bool, tmp_path: Path
) -> None:
    assert _config(render(values)) == {"kind": "memory"} | ({"several": True} if several else {})
    assert ("counted per replica" in _notes(values, tmp_path)) == several


def test_a_redis_is_reached_with_secrets_by_reference_alone(tmp_path: Path) -> None:
    counters = REDIS | {
        "url": "rediss://redis.limits.svc:6380/3",
        "username": "toolcrib",
        "passwordSecret": {"name": "redis", "key": "pw"},
        "caSecret": {"name": "redis-ca"},
    }
    values = {"registry": {"counters": counters}}
    rendered = render(values)
    assert _config(rendered) == {
        "kind": "redis",
        "url": "rediss://redis.limits.svc:6380/3",
        "username": "toolcrib",
        "password_file": "/etc/toolcrib/counters/password",
        "ca_file": "/etc/toolcrib/counters/ca.crt",
        "timeout": 0.25,
    }
    (pod,) = [
        p for _, p in rendered.pods() if p["metadata"]["labels"]["app.kubernetes.io/component"] == "registry"
    ]
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "counters"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "redis", "items": [{"key": "pw", "path": "password"}]}},
        {"secret": {"name": "redis-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    assert "counted per replica" not in _notes(values, tmp_path)


@pytest.mark.parametrize(
    ("url", "port"),
    [("redis://redis.limits.svc", 6379), ("redis://redis:7000/1", 7000), ("rediss://[fd00::1]:7001/1", 7001)],
)
def test_the_registry_may_reach_its_port_and_without_it_no_such_rule_is_made(url: str, port: int) -> None:
    def ports(values: dict[str, Any]) -> list[int]:
        (policy,) = [
            p for p in render(values).of("NetworkPolicy") if p["metadata"]["name"].endswith("-registry")
        ]
        return [p["port"] for rule in policy["spec"]["egress"] for p in rule.get("ports", [])]

    assert port in ports({"registry": {"counters": REDIS | {"url": url}}})
    assert port not in ports({})


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ({"kind": "redis"}, "needs registry.counters.url"),
        ({"url": "redis://redis"}, "registry.counters.kind is memory"),
        (REDIS | {"username": "x"}, "needs registry.counters.passwordSecret"),
        (REDIS | {"caSecret": {"name": "ca"}}, "rediss://"),
        (REDIS | {"url": "redis://:hunter2@redis"}, "does not match pattern"),
        (REDIS | {"url": "http://redis"}, "does not match pattern"),
    ],
)
def test_what_cannot_be_meant_is_refused(counters: dict[str, Any], said: str) -> None:
    assert said in refused({"registry": {"counters": counters}})
