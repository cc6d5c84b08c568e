"""The power goes: every pod, containerd, kubelet, the API server and etcd end at once. All of it comes back by itself."""

import time

import pytest

import figures
from node_cluster import NodeCluster

pytestmark = pytest.mark.node


def test_after_a_restart_of_the_node_everything_comes_back_by_itself(
    cluster: NodeCluster, safecracker: str
) -> None:
    tools = len(cluster.node.get("tools.toolcrib.dev", "-A")["items"])
    uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
    began = time.monotonic()
    cluster.node.reboot()
    up = time.monotonic() - began
    # Until kubelet has seen that they are gone, the API server shows the pods as they were.
    cluster.node.until(lambda: len(cluster.discover(safecracker)) == 1, timeout=180, interval=0.3)
    figures.note(
        "node restarted: tools discovered again after",
        f"{time.monotonic() - began:.1f} s ({up:.1f} s of it the node)",
    )
    cluster.wait_ready(timeout=180)
    cluster.node.until(
        lambda: cluster.call(safecracker, "calculator", {"expression": "1"}).is_success,
        timeout=60,
        interval=0.5,
    )
    cluster.node.until(lambda: cluster.indexed() == tools, timeout=240, interval=1)

    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == uids
    assert len(cluster.node.get("tools.toolcrib.dev", "-A")["items"]) == tools
