"""A Prometheus in a pod, with nothing but the ConfigMap that the chart makes: every part is scraped, every rule is well."""

from collections.abc import Iterator

import pytest

from node_cluster import NodeCluster
from node_release import RELEASE, SYSTEM, condition
from realparts.images import images
from realparts.prometheus import Api

pytestmark = pytest.mark.node

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "prometheus", "namespace": SYSTEM, "labels": {"app.kubernetes.io/name": "prometheus"}},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "prometheus",
                "image": "local/prometheus:1",
                "imagePullPolicy": "Never",
                "args": ["--config.file=/etc/toolcrib/prometheus.yml", "--storage.tsdb.path=/data"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "ports": [{"name": "http", "containerPort": 9090}],
                "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1},
                "volumeMounts": [
                    {"name": "config", "mountPath": "/etc/toolcrib", "readOnly": True},
                    {"name": "data", "mountPath": "/data"},
                ],
            }
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{RELEASE}-prometheus"}},
            {"name": "data", "emptyDir": {}},
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def prometheus(cluster: NodeCluster) -> Iterator[Api]:
    """Its API, once it is ready."""
    cluster.node.import_image(*images(("prometheus",)))
    cluster.values["monitoring"] = {"scrapeConfig": {"enabled": True, "interval": "1s"}}
    cluster.values["metrics"] = {"from": {"namespaces": [SYSTEM], "pods": POD["metadata"]["labels"]}}
    cluster.install()
    cluster.node.apply(POD)

    def ready() -> bool:
        return condition(cluster.node.get("pod", "prometheus", "-n", SYSTEM), "Ready") == "True"

    try:
        cluster.node.until(ready, timeout=60, interval=0.5)
        address = cluster.node.get("pod", "prometheus", "-n", SYSTEM)["status"]["podIP"]
        yield Api(f"http://{address}:9090")
    finally:
        print(cluster.node.logs("prometheus", SYSTEM, "--tail", "5"))
        cluster.node.kubectl("delete", "pod", "prometheus", "-n", SYSTEM)


def test_every_part_is_scraped_by_the_chart_s_own_configuration(
    cluster: NodeCluster, prometheus: Api
) -> None:
    def all_there() -> bool:
        up = [t["labels"]["job"] for t in prometheus.targets() if t["health"] == "up"]
        return len(up) == len(
            [*cluster.pods("registry"), *cluster.pods("operator"), *cluster.running_agents()]
        )

    cluster.node.until(all_there, timeout=60, interval=0.5)
    assert {t["labels"]["job"] for t in prometheus.targets()} == {
        "toolcrib-registry",
        "toolcrib-operator",
        "toolcrib-agent",
    }
    agents = {pod["metadata"]["namespace"] for pod in cluster.running_agents()}
    assert {t["labels"]["namespace"] for t in prometheus.targets()} == {SYSTEM, *agents}
    urls = {t["labels"]["job"]: t["scrapeUrl"] for t in prometheus.targets()}
    assert urls["toolcrib-registry"].startswith("https://")
    # the admin listener, which no policy opens to Prometheus, has none
    assert urls["toolcrib-registry"].endswith(":8091/metrics")


def test_the_chart_s_rules_are_loaded_and_count_a_call_and_a_refusal(
    cluster: NodeCluster, prometheus: Api, safecracker: str
) -> None:
    prometheus.wait_rules(timeout=60)

    def counted() -> bool:
        cluster.call(safecracker, "calculator", {"expression": "6*7"})
        cluster.call(safecracker, "database_query", {"query": "select 1"})
        calls = prometheus.value(
            'sum(toolcrib:calls:rate5m{agent="heist/safecracker",tool="heist/calculator"})'
        )
        denials = prometheus.value('sum(toolcrib:denials:rate5m{agent="heist/safecracker"})')
        return bool(calls and denials)

    cluster.node.until(counted, timeout=60, interval=0.5)
    assert prometheus.value("sum by (namespace) (toolcrib_operator_leader)") == 1
    # the chart was given no base of runbooks: its alerts carry no link that leads nowhere
    assert [r for r in prometheus.rules() if "runbook_url" in r.get("annotations", {})] == []


def test_nothing_fires_in_a_cluster_that_is_well(prometheus: Api) -> None:
    firing = {a["metric"]["alertname"] for a in prometheus.query('ALERTS{alertstate="firing"}')}
    # on a machine that runs other tests too, changes may really be slow
    assert firing - {"ToolcribPropagationBurnFast"} == set()
