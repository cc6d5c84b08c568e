"""The decision log in the chart: its key, where it is written, and who keeps its heads."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from chart import Object, Rendered, refused, render
from chart_values import MATRIX
from toolcrib.audit.chain import AuditKey
from toolcrib_operator import options
from toolcrib_registry.settings_sections import Audit

pytestmark = pytest.mark.real


def _audit(rendered: Rendered) -> Audit | None:
    text = rendered.one("ConfigMap", "toolcrib-registry")["data"]["registry.yaml"]
    found = yaml.safe_load(text).get("audit")
    return None if found is None else Audit.model_validate(found)


def _pod(rendered: Rendered, component: str) -> Object:
    found: Object = next(
        pod
        for _, pod in rendered.pods()
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
    )
    return found


def _mounts(rendered: Rendered) -> dict[str, Any]:
    pod = _pod(rendered, "registry")
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    return {
        mount["mountPath"]: (mount, volumes.get(mount["name"], {}))
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
    }


def test_the_log_goes_to_standard_output_chained_with_a_key_that_the_chart_makes_and_keeps() -> None:
    rendered = render()
    audit = _audit(rendered)
    assert audit is not None
    assert (audit.path, audit.mode, audit.arguments) == ("-", "lenient", "hash")
    assert audit.key_file == "/etc/toolcrib/audit/key"
    secret = rendered.one("Secret", "toolcrib-audit-key")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert AuditKey.of(base64.b64decode(secret["data"]["key"])).keyed
    _, volume = _mounts(rendered)["/etc/toolcrib/audit"]
    # the registry refuses a key that everybody can read
    assert volume["secret"]["defaultMode"] & 0o007 == 0
    assert volume["secret"]["items"] == [{"key": "key", "path": "key"}]


@pytest.mark.parametrize(
    ("values", "path", "volume"),
    [
        ("embedded", "/data/audit/decisions.jsonl", None),
        ("embedded-without-volume", "/var/log/toolcrib/decisions.jsonl", {"emptyDir": {"sizeLimit": "2Gi"}}),
        (
            "external-weaviate",
            "/var/log/toolcrib/decisions.jsonl",
            {"persistentVolumeClaim": {"claimName": "audit"}},
        ),
    ],
)
def test_a_file_has_a_volume_and_each_pod_its_own_folder(
    values: str, path: str, volume: dict[str, Any] | None
) -> None:
    rendered = render(MATRIX[values])
    audit, mounts = _audit(rendered), _mounts(rendered)
    assert audit is not None
    assert audit.path == path
    if volume is None:
        assert "/data" in mounts
        assert "/var/log/toolcrib" not in mounts
        return
    mount, found = mounts["/var/log/toolcrib"]
    assert {k: v for k, v in found.items() if k != "name"} == volume
    assert mount.get("subPathExpr") == ("$(TOOLCRIB_REPLICA)" if "persistentVolumeClaim" in volume else None)


def test_a_secret_and_modes_of_ones_own_are_used() -> None:
    rendered = render(MATRIX["external-weaviate"])
    audit = _audit(rendered)
    assert audit is not None
    assert (audit.mode, audit.arguments, audit.max_bytes, audit.keep) == ("strict", "omit", 64 << 20, 15)
    assert not [s for s in rendered.of("Secret") if "audit" in s["metadata"]["name"]]
    _, volume = _mounts(rendered)["/etc/toolcrib/audit"]
    assert volume["secret"]["secretName"] == "audit-secret"
    assert volume["secret"]["items"] == [{"key": "chain", "path": "key"}]


@pytest.mark.parametrize(
    ("values", "anchored"),
    [({}, True), ({"registry": {"audit": {"anchors": False}}}, False), (MATRIX["bare"], False)],
)
def test_the_operator_keeps_the_heads_and_has_the_right_to_one_configmap(
    values: dict[str, Any], anchored: bool
) -> None:
    rendered = render(values)
    _, *arguments = _pod(rendered, "operator")["spec"]["containers"][0]["args"]
    anchors = options.parse(arguments, {}).anchors
    assert (anchors is not None) is anchored
    rules = [
        rule for role in rendered.of("Role") for rule in role["rules"] if "configmaps" in rule["resources"]
    ]
    if anchors is None:
        assert rules == []
        return
    assert anchors.name == "toolcrib-audit-anchors"
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["create"], None),
        (["get", "patch"], ["toolcrib-audit-anchors"]),
    ]


def test_without_a_log_there_is_neither_key_nor_volume() -> None:
    rendered = render(MATRIX["bare"])
    assert _audit(rendered) is None
    assert not [s for s in rendered.of("Secret") if "audit" in s["metadata"]["name"]]
    assert "/etc/toolcrib/audit" not in _mounts(rendered)


def test_what_was_called_decision_log_is_named_in_the_refusal() -> None:
    assert "decisionLog" in refused({"registry": {"decisionLog": {"enabled": True}}})
