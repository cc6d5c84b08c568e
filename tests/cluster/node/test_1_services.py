"""Real Services behind a tool: kube-proxy and the controllers of a node, and every way out of the namespace."""

from collections.abc import Iterator
from typing import Any

import pytest

from node_cluster import NodeCluster
from node_release import RELEASE, SYSTEM
from realparts.processes import wait_until

pytestmark = pytest.mark.node

API = "toolcrib.dev/v1alpha1"
SERVICE = "byway"


def service(**spec: Any) -> dict[str, Any]:
    """A Service of the example tools; of `spec` a None takes a field away."""
    body = {"selector": {"app.kubernetes.io/name": "example-tools"}, "ports": [{"port": 8080}]} | spec
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": "heist"},
        "spec": {k: v for k, v in body.items() if v is not None},
    }


@pytest.fixture
def token(cluster: NodeCluster) -> Iterator[str]:
    """An agent that may call one tool, whose Service the test makes."""
    metadata = {"name": SERVICE, "namespace": "heist"}
    http = {"service": {"name": SERVICE, "port": 8080}, "path": "/tools/calculator"}
    cluster.node.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": API, "kind": "Tool", "metadata": metadata,
         "spec": {"description": "Computes.", "scopes": ["byway:use"], "backend": {"http": http}}},
        {"apiVersion": API, "kind": "AgentScopeBinding", "metadata": metadata,
         "spec": {"subjects": [{"kind": "ServiceAccount", "name": SERVICE}], "scopes": ["byway:use"]}},
    )  # fmt: skip
    yield cluster.token("heist", SERVICE)
    cluster.node.try_kubectl("delete", "-n", "heist", "service", SERVICE)
    kinds = ("agentscopebindings.toolcrib.dev", "tools.toolcrib.dev", "serviceaccount")
    for kind in kinds:
        cluster.node.kubectl("delete", "-n", "heist", kind, SERVICE)


def called(cluster: NodeCluster, token: str) -> int:
    return cluster.call(token, SERVICE, {"expression": "6 * 7"}).status_code


def remake(cluster: NodeCluster, **spec: Any) -> None:
    cluster.node.try_kubectl("delete", "-n", "heist", "service", SERVICE)
    cluster.node.apply(service(**spec))


def unsupported(cluster: NodeCluster) -> bool:
    tool = cluster.node.get("tools.toolcrib.dev", SERVICE, "-n", "heist")
    reasons = {c["type"]: c["reason"] for c in tool.get("status", {}).get("conditions", ())}
    return reasons.get("Accepted") == "ServiceUnsupported"


def test_a_service_is_called_once_it_exists_and_again_when_it_is_recreated(
    cluster: NodeCluster, token: str
) -> None:
    wait_until(lambda: called(cluster, token) == 503, timeout=60, interval=0.3)
    cluster.node.apply(service())
    wait_until(lambda: called(cluster, token) == 200, timeout=60, interval=0.3)
    remake(cluster)

    wait_until(lambda: called(cluster, token) == 200, timeout=60, interval=0.3)
    assert not unsupported(cluster)


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "ExternalName", "externalName": f"{RELEASE}-weaviate.{SYSTEM}.svc", "selector": None},
        {"clusterIP": "None"},
        {"selector": None},
    ],
    ids=["ExternalName", "headless", "no selector"],
)
def test_a_service_that_may_lead_elsewhere_is_not_called(
    cluster: NodeCluster, token: str, spec: dict[str, Any]
) -> None:
    cluster.node.apply(service())
    wait_until(lambda: called(cluster, token) == 200, timeout=60, interval=0.3)
    remake(cluster, **spec)
    wait_until(lambda: unsupported(cluster), timeout=60, interval=0.3)

    wait_until(lambda: called(cluster, token) == 403, timeout=60, interval=0.3)


def test_endpoints_of_another_namespace_refuse_the_service_until_they_are_gone(
    cluster: NodeCluster, token: str
) -> None:
    cluster.node.apply(service())
    wait_until(lambda: called(cluster, token) == 200, timeout=60, interval=0.3)
    victim = cluster.pods("operator")[0]["status"]["podIP"]
    cluster.node.apply({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "byway-evil", "namespace": "heist", "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "ports": [{"port": 8090}],
        "endpoints": [{"addresses": [victim]}],
    })  # fmt: skip
    wait_until(lambda: unsupported(cluster), timeout=60, interval=0.3)
    wait_until(lambda: called(cluster, token) == 403, timeout=60, interval=0.3)
    cluster.node.kubectl("delete", "-n", "heist", "endpointslice", "byway-evil")

    wait_until(lambda: called(cluster, token) == 200, timeout=60, interval=0.3)
