"""An MCP server in a pod is imported through its Service; what its ToolServer brought goes with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_cluster import NodeCluster
from realparts.processes import wait_until

pytestmark = pytest.mark.node

API = "toolcrib.dev/v1alpha1"
NAME = "clerk"
PROGRAM = Path(__file__).parents[2] / "support" / "mcp_in_a_pod.py"
WITHIN = 60.0


def pod() -> dict[str, Any]:
    container = {
        "name": "server", "image": "toolcrib:test", "imagePullPolicy": "Never",
        "command": ["python3", "-c", PROGRAM.read_text()],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }  # fmt: skip
    metadata = {"name": NAME, "namespace": "heist", "labels": {"app": NAME}}
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def token(cluster: NodeCluster) -> Iterator[str]:
    """An agent that may use the server's tools; the server, its Service and its ToolServer are there."""
    metadata = {"name": NAME, "namespace": "heist"}
    cluster.node.apply(
        pod(),
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
         "spec": {"selector": {"app": NAME}, "ports": [{"port": 8080}]}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": API, "kind": "AgentScopeBinding", "metadata": metadata,
         "spec": {"subjects": [{"kind": "ServiceAccount", "name": NAME}], "scopes": ["clerk:use"]}},
        {"apiVersion": API, "kind": "ToolServer", "metadata": metadata,
         "spec": {"mcp": {"service": {"name": NAME, "port": 8080}}, "defaults": {"scopes": ["clerk:use"]}}},
    )  # fmt: skip
    yield cluster.token("heist", NAME)
    for kind in (
        "toolservers.toolcrib.dev", "agentscopebindings.toolcrib.dev", "service", "pod", "serviceaccount",
    ):  # fmt: skip
        cluster.node.try_kubectl("delete", "-n", "heist", kind, NAME)


def written(cluster: NodeCluster) -> list[dict[str, Any]]:
    """The Tools that the server brought."""
    found = cluster.node.get("tools.toolcrib.dev", "-n", "heist")["items"]
    return [tool for tool in found if tool["spec"].get("server") == NAME]


def test_its_tools_are_called_in_the_pod_and_are_collected_when_the_toolserver_is_deleted(
    cluster: NodeCluster, token: str
) -> None:
    wait_until(lambda: cluster.discover(token) == ["stamp"], timeout=WITHIN, interval=0.2)
    answer = cluster.call(token, "stamp", {"text": "plan"})
    assert (answer.status_code, answer.json()) == (200, {"stamped": "plan"})
    (tool,) = written(cluster)
    assert [owner["kind"] for owner in tool["metadata"]["ownerReferences"]] == ["ToolServer"]

    cluster.node.kubectl("delete", "-n", "heist", "toolservers.toolcrib.dev", NAME)
    wait_until(lambda: cluster.discover(token) == [], timeout=WITHIN, interval=0.2)
    # the controller manager's collector, not ours, deletes them
    wait_until(lambda: written(cluster) == [], timeout=WITHIN, interval=0.5)
