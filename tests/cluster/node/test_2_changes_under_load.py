"""Changes while agents discover and call, on kept and on fresh connections: not one request fails."""

import time
from collections.abc import Callable

import pytest

import figures
from load import Load
from node_cluster import NodeCluster
from node_release import RELEASE, SYSTEM, Usage

pytestmark = pytest.mark.node

REGISTRY = f"deployment/{RELEASE}-registry"
_AFTER = 40  # requests after a change, by workers old and new


def _under_load(cluster: NodeCluster, token: str, what: str, change: Callable[[], None]) -> None:
    """Make a change under load, note the figures; every request was answered as it should be."""
    ca_file = str(cluster.ca_file) if cluster.tls else ""
    with Load(cluster.url, token, address=cluster.address, ca_file=ca_file) as load:
        load.go_on(_AFTER)
        change()
        load.go_on(_AFTER)
    figures.note(f"{what}, under load", str(load.result))

    assert not load.result.failed, str(load.result)


def _rolled(cluster: NodeCluster, component: str, old: list[str]) -> None:
    cluster.wait_ready(component, but=old)


def _names(cluster: NodeCluster, component: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.pods(component)]


def test_a_rolling_restart_of_the_registry_loses_no_request(cluster: NodeCluster, safecracker: str) -> None:
    def change() -> None:
        old = _names(cluster, "registry")
        cluster.node.kubectl("rollout", "restart", REGISTRY, "-n", SYSTEM)
        _rolled(cluster, "registry", old)

    _under_load(cluster, safecracker, "rolling restart of the registry", change)


def test_an_upgrade_that_replaces_every_pod_loses_no_request(cluster: NodeCluster, safecracker: str) -> None:
    def change() -> None:
        old = _names(cluster, "registry") + _names(cluster, "operator")
        stamp = str(int(time.time()))
        cluster.install(
            "--set-string", f"registry.podAnnotations.stamp={stamp}",
            "--set-string", f"operator.podAnnotations.stamp={stamp}",
        )  # fmt: skip
        _rolled(cluster, "", old)

    _under_load(cluster, safecracker, "helm upgrade of registry and operator", change)


def test_scaling_down_and_up_loses_no_request(cluster: NodeCluster, safecracker: str) -> None:
    def scale(to: int) -> None:
        cluster.node.kubectl("scale", REGISTRY, "-n", SYSTEM, f"--replicas={to}")
        cluster.wait_ready("registry")

    def change() -> None:
        scale(1)
        scale(3)
        scale(2)

    _under_load(cluster, safecracker, "scaling the registry 2, 1, 3, 2", change)


def test_an_eviction_honours_the_budget_and_loses_no_request(cluster: NodeCluster, safecracker: str) -> None:
    first, second = _names(cluster, "registry")
    answers: list[str] = []

    def evict(name: str) -> None:
        body = f'{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{name}", "namespace": "{SYSTEM}"}}}}'
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{name}/eviction"
        done = cluster.node.try_kubectl("create", "--raw", path, "-f", "-", input=body)
        answers.append(done.stdout + done.stderr)

    def change() -> None:
        evict(first)
        evict(second)
        cluster.wait_ready("registry", but=[first])

    _under_load(cluster, safecracker, "eviction of a registry pod", change)

    assert "Success" in answers[0]
    assert "disruption budget" in answers[1]
    assert second in _names(cluster, "registry")


def test_memory_and_cpu_at_rest_and_under_load(cluster: NodeCluster, safecracker: str) -> None:
    def look(later: float) -> dict[str, Usage]:
        """What kubelet saw of each pod so many seconds from now; it looks every 10 s or so."""
        since, found = time.time() + later, {}

        def looked() -> bool:
            found.update(cluster.usage())
            return all(used.at >= since for name, used in found.items() if name.startswith(RELEASE))

        cluster.node.until(looked, timeout=later + 60, interval=0.5)
        return found

    before = look(later=0)
    rest = look(later=10)
    ca_file = str(cluster.ca_file) if cluster.tls else ""
    with Load(cluster.url, safecracker, address=cluster.address, ca_file=ca_file, pause=0.02) as load:
        begun, sent, began = look(later=0), load.result.sent, time.monotonic()
        busy = look(later=10)
        rate = (load.result.sent - sent) / (time.monotonic() - began)
    rows = [
        (name, rest[name].since(before[name]), busy[name].since(begun[name]))
        for name in sorted(busy)
        if name.startswith(RELEASE) and name in before
    ]
    title = f"Each pod with 4 tools, at rest and at {rate:.0f} requests/s (half of them calls)"
    figures.table(title, ("pod", "at rest", "under load"), rows)

    assert {pod["metadata"]["name"] for pod in cluster.pods()} <= {row[0] for row in rows}
    assert all(used.memory < 600 for used in busy.values())
