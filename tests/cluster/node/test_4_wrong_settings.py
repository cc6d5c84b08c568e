"""What an administrator gets wrong: the running pods go on, the new one says what is wrong and does not crash in a loop."""

import base64

import pytest

from load import Load
from node_cluster import NodeCluster
from node_release import RELEASE, SYSTEM, condition

pytestmark = pytest.mark.node


def _names(cluster: NodeCluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods("registry")}


def _back(cluster: NodeCluster) -> None:
    cluster.install()
    cluster.wait_ready()


def test_a_missing_secret_keeps_the_old_pods_and_is_told_in_the_events(
    cluster: NodeCluster, safecracker: str
) -> None:
    old, before = _names(cluster), cluster.restarts()
    cluster.install("--set", "weaviate.mode=external", "--set", "weaviate.external.host=elsewhere.example.com",
                    "--set", "weaviate.apiKey.existingSecret=not-there", wait=False)  # fmt: skip

    def told() -> bool:
        events = cluster.node.kubectl("get", "events", "-n", SYSTEM)
        return 'secret "not-there" not found' in events

    try:
        cluster.node.until(told, timeout=120, interval=0.5)

        assert old <= _names(cluster)
        cluster.node.until(lambda: len(cluster.discover(safecracker)) == 1, timeout=60)
        assert sum(cluster.restarts().values()) <= sum(before.values())
    finally:
        _back(cluster)


def test_a_weaviate_that_refuses_the_key_is_told_in_readiness_and_log(
    cluster: NodeCluster, safecracker: str
) -> None:
    wrong = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "wrong-key", "namespace": SYSTEM},
        "data": {"api-key": base64.b64encode(b"wrong").decode()},
    }
    cluster.node.apply(wrong)
    registry = f"deployment/{RELEASE}-registry"
    before = cluster.restarts()
    # The Secret of the registry alone: Weaviate keeps the right one.
    volumes = cluster.node.get(registry, "-n", SYSTEM)["spec"]["template"]["spec"]["volumes"]
    index = next(i for i, volume in enumerate(volumes) if volume["name"] == "weaviate")
    place = f"/spec/template/spec/volumes/{index}/projected/sources/0/secret/name"
    right = cluster.weaviate_secret()
    assert volumes[index]["projected"]["sources"][0]["secret"]["name"] == right

    def scale(to: int) -> None:
        cluster.node.kubectl("scale", registry, "-n", SYSTEM, f"--replicas={to}")

    def mount(secret: str) -> None:
        old = _names(cluster)
        patch = f'[{{"op": "replace", "path": "{place}", "value": "{secret}"}}]'
        cluster.node.kubectl("patch", registry, "-n", SYSTEM, "--type=json", "-p", patch)
        cluster.wait_ready("registry", but=old, timeout=240)

    # one replica is enough for it, and starts in half the time
    scale(1)
    try:
        mount("wrong-key")
        found = cluster.search(safecracker, "compute an expression")
        cluster.node.until(lambda: "refuses the API key" in _said(cluster), timeout=120, interval=0.5)

        assert found["search_mode"] == "lexical"
        assert cluster.call(safecracker, "calculator", {"expression": "1"}).is_success
        assert sum(cluster.restarts().values()) <= sum(before.values())
    finally:
        # by the hand that changed it: helm would call it a conflict
        mount(right)
        scale(2)


def _said(cluster: NodeCluster) -> str:
    """The operators' logs: it is the operator that fills the index."""
    return "".join(cluster.node.logs(pod["metadata"]["name"], SYSTEM) for pod in cluster.pods("operator"))


def test_without_the_definitions_the_operator_says_so_and_waits(
    cluster: NodeCluster, safecracker: str
) -> None:
    before = cluster.restarts()
    ca_file = str(cluster.ca_file) if cluster.tls else ""
    definitions = cluster.node.get("crd", "clusteragentscopebindings.toolcrib.dev")
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
        definitions["metadata"].pop(field, None)
    definitions.pop("status")
    cluster.node.kubectl("delete", "crd", "clusteragentscopebindings.toolcrib.dev")
    try:
        with Load(cluster.url, safecracker, address=cluster.address, ca_file=ca_file) as load:
            cluster.node.until(lambda: "is the CRD installed?" in _said(cluster), timeout=120, interval=0.5)
            load.go_on(30)
        assert not load.result.failed, str(load.result)
        ready = {condition(p, "Ready") for p in cluster.pods("operator")}
        assert ready
        assert ready <= {"True", "False"}
        # nobody, for a moment, where a leader has ended itself and another is about to lead
        cluster.node.until(lambda: bool(cluster.leader()), timeout=60, interval=0.2)
        assert sum(cluster.restarts().values()) - sum(before.values()) <= 2
    finally:
        cluster.node.apply(definitions)
        cluster.wait_ready(timeout=180)
