"""What outlives the release: custom resources and data, through an upgrade of the chart and through its removal."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import figures
from load import Load
from node_cluster import ROOT, NodeCluster
from node_release import AGENTS, RELEASE, SYSTEM, condition

pytestmark = pytest.mark.node

# The first commit from whose chart one can upgrade: with it StatefulSets got their podManagementPolicy, which cannot change.
EARLIER = "218864a"


def _rights_of_today() -> list[dict[str, Any]]:
    """What today's operator needs and the earlier chart's role does not name: an upgrade brings both, this one has
    today's image and policies from the start."""
    name = "toolcrib-operator-of-today"
    group = "rbac.authorization.k8s.io"
    reads = {"verbs": ["list", "watch"]}
    rules = [
        {"apiGroups": [""], "resources": ["serviceaccounts", "services"], **reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **reads},
        {"apiGroups": ["toolcrib.dev"], "resources": ["toolservers", "agents", "toolcanaries"], **reads},
        {
            "apiGroups": ["toolcrib.dev"],
            "resources": ["accessrequests"],
            "verbs": [*reads["verbs"], "create", "delete"],
        },
        {"apiGroups": ["toolcrib.dev"], "resources": ["accessrequests/status"], "verbs": ["patch"]},
        {"apiGroups": ["toolcrib.dev"], "resources": ["bindings"], "verbs": ["release"]},
    ]
    subject = {"kind": "ServiceAccount", "name": f"{RELEASE}-operator", "namespace": SYSTEM}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    ]


def _contents(cluster: NodeCluster) -> dict[str, str]:
    """Every object of ours and its unique id, without what is the release's."""
    found = cluster.node.get("toolcrib", "-A")["items"]
    items = [item for item in found if item["metadata"].get("namespace") not in (SYSTEM, AGENTS)]
    return {
        f"{item['kind']}/{item['metadata'].get('namespace')}/{item['metadata']['name']}": item["metadata"][
            "uid"
        ]
        for item in items
    }


def test_uninstall_keeps_the_custom_resources_and_a_new_release_takes_them_up(
    cluster: NodeCluster, safecracker: str
) -> None:
    before = _contents(cluster)
    assert before
    said = cluster.uninstall()
    kept = _contents(cluster)
    left = [pod["metadata"]["name"] for pod in cluster.node.get("pods", "-n", SYSTEM)["items"]]

    assert "kept due to the resource policy" in said
    assert kept == before
    assert left == []


def test_an_upgrade_from_an_earlier_chart_keeps_objects_and_data(
    cluster: NodeCluster, safecracker: str, tmp_path: Path
) -> None:
    before = _contents(cluster)
    archive = subprocess.run(
        ["git", "archive", EARLIER, "helm/toolcrib"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        tar.extractall(tmp_path)
    cluster.node.apply(*_rights_of_today())
    later = {name: cluster.values.pop(name) for name in ("metrics", "agents") if name in cluster.values}
    # today's chart trusts the namespaces of Agents by itself
    trusting = ("--set", "tls.trustNamespaces={heist}")
    cluster.install("--take-ownership", "--force-conflicts", *trusting, chart=tmp_path / "helm" / "toolcrib")
    cluster.values |= later
    # as in a cluster of a chart without runs: today's brings the policy, and its agents follow
    policies = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    cluster.node.kubectl("delete", policies, "agents-run.toolcrib.dev")
    cluster.forget_address()
    # the earlier chart knows no key for assertions: tools may require them once all replicas send them
    cluster.apply_tools(verified=False)
    cluster.node.kubectl("rollout", "status", "deployment/example-tools", "-n", "heist", "--timeout=110s")
    cluster.node.until(lambda: len(cluster.discover(safecracker)) == 1, timeout=120, interval=0.2)
    cluster.node.until(lambda: cluster.indexed() == _tools(before), timeout=300, interval=1)
    volume = _volume(cluster)

    ca_file = str(cluster.ca_file) if cluster.tls else ""
    with Load(cluster.url, safecracker, address=cluster.address, ca_file=ca_file) as load:
        load.go_on(30)
        cluster.install("--force-conflicts")
        cluster.wait_ready(timeout=240)
        load.go_on(30)
    figures.note("upgrade from an earlier chart, under load", str(load.result))
    for each in _rights_of_today():
        cluster.node.kubectl("delete", each["kind"], each["metadata"]["name"])

    cluster.node.until(
        lambda: condition(cluster.agent("safecracker"), "Deployed") == "True", timeout=60, interval=0.5
    )
    assert not load.result.failed, str(load.result)
    assert _contents(cluster) == before
    assert _volume(cluster) == volume
    assert cluster.indexed() == _tools(before)


def _tools(contents: dict[str, str]) -> int:
    return sum(name.startswith("Tool/") for name in contents)


def _volume(cluster: NodeCluster) -> str:
    claim = cluster.node.get("pvc", f"data-{RELEASE}-weaviate-0", "-n", SYSTEM)
    return f"{claim['metadata']['uid']} {claim['spec']['volumeName']}"


def test_the_embedded_profile_takes_the_same_objects_and_keeps_its_index_through_a_restart(
    cluster: NodeCluster, safecracker: str
) -> None:
    cluster.uninstall()
    cluster.node.kubectl("delete", "namespace", "catalog", "--wait=false", "--ignore-not-found")
    cluster.install("--set", "profile=embedded", "--set", "agents.items=null")
    cluster.forget_address()
    cluster.node.until(lambda: len(cluster.discover(safecracker)) == 1, timeout=120, interval=0.2)
    (pod,) = cluster.pods("registry")
    cluster.node.kubectl("delete", "pod", pod["metadata"]["name"], "-n", SYSTEM, "--wait=false")

    def replaced() -> bool:
        return all(each["metadata"]["uid"] != pod["metadata"]["uid"] for each in cluster.pods("registry"))

    cluster.node.until(replaced, timeout=120, interval=0.3)
    cluster.wait_ready("registry")
    cluster.node.until(lambda: len(cluster.discover(safecracker)) == 1, timeout=120, interval=0.2)

    assert cluster.pods("weaviate") == []
    found = cluster.search_by_meaning(safecracker, "square root of 2 to four digits")
    assert found["tools"][0]["name"] == "calculator"
