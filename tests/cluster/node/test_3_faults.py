"""What breaks in a cluster, one thing at a time: it comes back by itself, and says in the meantime what is wrong."""

import os
import signal
import time

import httpx
import pytest

import figures
from load import Load
from node_cluster import NodeCluster
from node_release import AGENTS, RELEASE, SYSTEM, agent_binding, condition

pytestmark = pytest.mark.node


def _name(pod: dict[str, object]) -> str:
    return str(pod["metadata"]["name"])  # type: ignore[index]


def _works(cluster: NodeCluster, token: str) -> bool:
    """Discovery and a call succeed."""
    try:
        called = cluster.call(token, "calculator", {"expression": "1"}).is_success
    except httpx.TransportError:
        return False
    return called and len(cluster.discover(token)) == 1


def _propagates(cluster: NodeCluster, timeout: float = 60) -> float:
    """A change of the agent's grant takes effect in its running pod; seconds until it did."""
    token = cluster.token(AGENTS, f"{RELEASE}-agent-safecracker")
    began = time.monotonic()
    cluster.node.apply(agent_binding("calculator:use"))
    cluster.node.until(lambda: cluster.discover(token) == ["calculator"], timeout=timeout, interval=0.1)
    took = time.monotonic() - began
    cluster.node.apply(agent_binding("calculator:use", "simulation:read"))
    cluster.node.until(lambda: len(cluster.discover(token)) == 2, timeout=60, interval=0.1)
    return took


def test_a_registry_pod_deleted_by_force_is_replaced(cluster: NodeCluster, safecracker: str) -> None:
    victim = _name(cluster.pods("registry")[0])
    cluster.node.kubectl("delete", "pod", victim, "-n", SYSTEM, "--force", "--grace-period=0")
    took = cluster.wait_ready("registry", but=[victim])
    figures.note("registry pod deleted by force: replaced after", f"{took:.1f} s")

    # the node still sends some to where it was, until it has been told
    cluster.node.until(lambda: _works(cluster, safecracker), timeout=60)


def test_a_registry_process_killed_is_started_again_and_the_other_answers(
    cluster: NodeCluster, safecracker: str
) -> None:
    pod = cluster.pods("registry")[0]
    before = cluster.restarts()[_name(pod)]
    for pid in cluster.node.container_pids(pod, "registry"):
        os.kill(pid, signal.SIGKILL)
    cluster.node.until(lambda: cluster.restarts().get(_name(pod), 0) > before, timeout=120, interval=0.2)
    cluster.wait_ready("registry")

    cluster.node.until(lambda: _works(cluster, safecracker), timeout=60)


def test_when_the_leading_operator_is_killed_the_other_takes_over(cluster: NodeCluster) -> None:
    holder = cluster.holder()
    pod = next(pod for pod in cluster.pods("operator") if _name(pod) == cluster.leader())
    began = time.monotonic()
    for pid in cluster.node.container_pids(pod, "operator"):
        os.kill(pid, signal.SIGKILL)
    cluster.node.until(lambda: cluster.holder() not in ("", holder), timeout=120, interval=0.1)
    led = time.monotonic() - began
    assert led < 30  # the Lease runs for 15 s, and is tried for every 2 s
    propagated = led + _propagates(cluster)
    figures.note(
        "operator failover (leader killed with -9)",
        f"{led:.1f} s, a change in force after {propagated:.1f} s",
    )
    cluster.wait_ready("operator")


def test_when_the_leading_operator_ends_in_order_the_lease_is_handed_over(cluster: NodeCluster) -> None:
    leader = cluster.leader()
    began = time.monotonic()
    cluster.node.kubectl("delete", "pod", leader, "-n", SYSTEM, "--wait=false")
    cluster.node.until(lambda: cluster.leader() not in ("", leader), timeout=120, interval=0.1)
    figures.note("operator handover (leader's pod deleted)", f"{time.monotonic() - began:.1f} s")
    cluster.wait_ready("operator", but=[leader])

    assert _propagates(cluster) < 30


def test_without_weaviate_calls_and_searches_go_on_and_it_comes_back(
    cluster: NodeCluster, safecracker: str
) -> None:
    """Replicas hold the vectors of what is published."""
    tools = cluster.indexed()
    cluster.scale_weaviate(0)
    ca_file = str(cluster.ca_file) if cluster.tls else ""
    with Load(cluster.url, safecracker, address=cluster.address, ca_file=ca_file) as load:
        load.go_on(40)
        found = cluster.search(safecracker, "compute an expression")
    ready = [condition(pod, "Ready") for pod in cluster.pods("registry")]
    cluster.scale_weaviate(1)
    cluster.node.until(lambda: cluster.indexed() == tools, timeout=120, interval=0.5)

    assert not load.result.failed, str(load.result)
    assert found["search_mode"] == "hybrid"
    assert found["tools"][0]["name"] == "calculator"
    assert ready == ["True", "True"]


def test_a_restart_of_the_api_server_loses_no_request_and_no_pod(
    cluster: NodeCluster, safecracker: str
) -> None:
    before = cluster.restarts()
    ca_file = str(cluster.ca_file) if cluster.tls else ""
    address = cluster.address
    with Load(cluster.url, safecracker, address=address, ca_file=ca_file) as load:
        began = time.monotonic()
        cluster.node.restart_apiserver()
        away = time.monotonic() - began
        load.go_on(40)
    figures.note(f"API server killed, away for {away:.1f} s", str(load.result))

    assert not load.result.failed, str(load.result)
    _propagates(cluster)
    cluster.wait_ready()
    # A leader that cannot renew its Lease ends itself: that one restart is by design.
    assert sum(cluster.restarts().values()) - sum(before.values()) <= 1
