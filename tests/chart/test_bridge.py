"""The example of a stdio server in a cluster: valid, closed to everybody but the registry, and imported where it listens."""

from typing import Any

import pytest
import yaml

from chart import NAMESPACE, ROOT, render
from kubernetes_schemas import VERSIONS, problems

FILE = ROOT / "examples" / "servers" / "bridge.yaml"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """Its objects by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(example: dict[str, Any], version: str) -> None:
    assert [text for item in example.values() for text in problems(item, version)] == []


@pytest.mark.real
def test_only_the_registry_reaches_the_bridge_and_it_reaches_nobody(example: dict[str, Any]) -> None:
    policy, labels = example["NetworkPolicy"]["spec"], example["Deployment"]["spec"]["selector"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    registry = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
        for _, pod in render().pods()
    }["registry"]

    assert policy["podSelector"] == labels == {"matchLabels": example["Service"]["spec"]["selector"]}
    assert peer["podSelector"]["matchLabels"].items() <= registry.items()
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    assert (policy["policyTypes"], "egress" in policy) == (["Ingress", "Egress"], False)


def test_the_toolserver_names_the_service_of_the_bridge(example: dict[str, Any]) -> None:
    (port,) = example["Service"]["spec"]["ports"]
    (container,) = example["Deployment"]["spec"]["template"]["spec"]["containers"]

    assert example["ToolServer"]["spec"]["mcp"]["service"] == {"name": "time-mcp", "port": port["port"]}
    assert {"name": port["targetPort"], "containerPort": 8080} in container["ports"]
    assert container["command"][container["command"].index("--port") + 1] == "8080"
