"""Services behind Tools on a real API server: their addresses are published as they change, and no way out is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifests import endpoint_slice, tool
from operator_harness import HttpReplica, conditions
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real

ROOT = Path(__file__).parents[2]
READY = ("True", "Ready")
UNSUPPORTED = ("False", "ServiceUnsupported")

pytestmark = pytest.mark.real


class Stage:
    """An API server, an operator with the rights of rbac.yaml, and one replica."""

    def __init__(self, server: ApiServer, replica: HttpReplica) -> None:
        self.server, self.replica = server, replica

    def apply(self, *manifests: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        done = self.server.kubectl("apply", "-f", "-", input=body)
        assert done.returncode == 0, done.stderr

    def delete(self, kind: str, name: str) -> None:
        done = self.server.kubectl("delete", "-n", "heist", kind, name, "--timeout=60s")
        assert done.returncode == 0, done.stderr

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.server.read(kind, name, "heist")

    def cluster_ip(self) -> str:
        return str(self.get("services", "example-tools")["spec"]["clusterIP"])

    def published(self) -> str | None:
        """The address that the replica has; `absent` where it has no such tool."""
        found = self.replica.snapshot.tools.get("heist/calculator")
        return "absent" if found is None or found.backend is None else found.backend.cluster_ip

    def dialled(self) -> None:
        """Wait until the replica has the Service's present address and the Tool says that it is ready."""
        ip = self.cluster_ip()
        wait_until(lambda: self.published() == ip)
        wait_until(lambda: self.said("Ready")[0] == READY)

    def refused(self, *words: str) -> None:
        """Wait until the replica lacks the tool and its condition says why, in these words."""
        wait_until(lambda: self.published() == "absent")
        wait_until(lambda: self.said("Accepted")[0] == UNSUPPORTED)
        assert all(word in self.said("Accepted")[1] for word in words)

    def said(self, kind: str) -> tuple[tuple[str, str], str]:
        """Status and reason of a condition of the Tool, and its message."""
        status = self.get("tools", "calculator").get("status", {})
        message = [c["message"] for c in status.get("conditions", ()) if c["type"] == kind]
        return conditions(status).get(kind, ("", "")), "".join(message)


def service(**spec: Any) -> dict[str, Any]:
    body = {"selector": {"app": "example-tools"}, "ports": [{"port": 8080}]} | spec
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "example-tools", "namespace": "heist"},
        "spec": {k: v for k, v in body.items() if v is not None},
    }


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        server.create_namespace("heist")
        wait_until(lambda: server.kubectl("get", "toolcrib", "-A").returncode == 0)
        yield server


@pytest.fixture(scope="module")
def stage(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    token = server.token_request("toolcrib-system", "toolcrib-operator")
    folder = tmp_path_factory.mktemp("operator")
    with (
        HttpReplica() as replica,
        running(OperatorProcess(server.kubeconfig_for(token), [replica.url], folder)),
    ):
        yield Stage(server, replica)


@pytest.fixture(autouse=True)
def clean(stage: Stage) -> Iterator[None]:
    """Before each test the Tool is there and its Service is not."""
    stage.apply(tool("calculator"))
    yield
    stage.server.kubectl("delete", "-n", "heist", "endpointslices,services", "--all", "--timeout=60s")
    stage.delete("tools.toolcrib.dev", "calculator")
    wait_until(lambda: stage.published() == "absent")


def test_a_service_is_published_when_it_comes_goes_and_comes_back_elsewhere(stage: Stage) -> None:
    wait_until(lambda: stage.said("Ready")[0] == ("False", "ServiceMissing"))
    assert "Service heist/example-tools does not exist" in stage.said("Ready")[1]
    assert stage.said("Accepted")[0] == ("True", "Accepted")
    assert stage.published() is None

    stage.apply(service())
    stage.dialled()
    first = stage.cluster_ip()
    stage.delete("service", "example-tools")
    wait_until(lambda: stage.published() is None)
    stage.apply(service(clusterIP=None, ports=[{"port": 9090}]))
    wait_until(lambda: "no TCP port 8080" in stage.said("Ready")[1])
    stage.apply(service())
    stage.dialled()
    assert first


def test_a_recreated_service_is_dialled_at_its_new_address(stage: Stage) -> None:
    stage.apply(service())
    stage.dialled()
    first = stage.cluster_ip()
    # its address stays taken, so that the next one is another
    stage.delete("service", "example-tools")
    held = service(clusterIP=first)
    held["metadata"]["name"] = "keeps-the-address"
    stage.apply(held, service())
    stage.dialled()

    assert stage.published() != first


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "ExternalName", "externalName": "metadata.internal", "selector": None}, "ExternalName"),
        ({"clusterIP": "None"}, "headless"),
        ({"selector": None}, "no selector"),
    ],
)
def test_a_service_that_may_lead_elsewhere_is_refused_until_it_is_replaced(
    stage: Stage, spec: dict[str, Any], said: str
) -> None:
    stage.apply(service(**spec))
    stage.refused(said, "Use a Service with a selector and a cluster IP")
    stage.delete("service", "example-tools")
    stage.apply(service())
    stage.dialled()


def test_a_service_that_becomes_an_external_name_is_no_longer_dialled(stage: Stage) -> None:
    stage.apply(service())
    stage.dialled()
    change = {
        "type": "ExternalName",
        "externalName": "weaviate.toolcrib-system.svc",
        "clusterIP": None,
        "clusterIPs": None,
    }
    done = stage.server.kubectl(
        "patch", "-n", "heist", "service", "example-tools", "--type=merge", "-p", json.dumps({"spec": change})
    )
    assert done.returncode == 0, done.stderr
    stage.refused("ExternalName")


@pytest.mark.parametrize(
    "how", [{"manager": None}, {"manager": "somebody"}, {"owner": None}, {"targets": [None]}]
)
def test_endpoints_written_by_hand_refuse_the_service_until_they_are_gone(
    stage: Stage, how: dict[str, Any]
) -> None:
    stage.apply(service())
    stage.dialled()
    forged = endpoint_slice("example-tools-evil", **({"owner": None} | how))
    if how.get("owner", True) is not None and "manager" not in how:
        uid = stage.get("services", "example-tools")["metadata"]["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "Service",
            "name": "example-tools",
            "uid": uid,
            "controller": True,
        }
        forged["metadata"]["ownerReferences"] = [owner]
    stage.apply(forged)
    stage.refused("EndpointSlice example-tools-evil", "delete that EndpointSlice")
    stage.delete("endpointslice", "example-tools-evil")
    stage.dialled()


def test_a_tool_says_whether_its_service_has_a_ready_endpoint_and_stays_ready(stage: Stage) -> None:
    endpoints = endpoint_slice() | {"ports": [{"name": "", "port": 8080}]}
    stage.apply(endpoints, service())
    stage.dialled()
    wait_until(lambda: stage.said("BackendReachable")[0] == ("True", "EndpointsReady"))

    endpoints["endpoints"][0]["conditions"] = {"ready": False}
    stage.apply(endpoints)
    wait_until(lambda: stage.said("BackendReachable")[0] == ("False", "NoReadyEndpoints"))
    assert "no ready endpoint for port 8080" in stage.said("BackendReachable")[1]
    assert stage.said("Ready")[0] == READY
    assert stage.published() == stage.cluster_ip()
