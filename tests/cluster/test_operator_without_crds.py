"""An operator that comes before its CRDs, or without its rights: it says so, publishes nothing and waits."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_harness import HttpReplica
from operator_process import OperatorProcess
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.watches.recorder import Memo, watch
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        yield server


def test_it_waits_for_its_namespace_its_rights_and_its_crds_and_then_works(
    server: ApiServer, tmp_path: Path
) -> None:
    with (
        HttpReplica() as replica,
        OperatorProcess(server.admin_kubeconfig, [replica.url], tmp_path) as operator,
    ):
        operator.wait_ready(lambda: bool(operator.report()), 60)
        wait_until(lambda: "namespace toolcrib-system" in str(operator.report()))
        assert server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml")).returncode == 0
        wait_until(lambda: "kubectl apply -f crds/" in str(operator.report()))
        assert operator.report()["revision"] is None
        assert replica.snapshot.revision is None
        pid = operator.pid
        assert server.kubectl("apply", "-f", str(ROOT / "crds")).returncode == 0
        operator.wait_ready(operator.leads, 60)
        assert operator.pid == pid
        heist = str(ROOT / "examples/heist")
        wait_until(lambda: server.kubectl("apply", "-f", heist).returncode == 0)
        wait_until(lambda: len(replica.snapshot.tools) == 4)


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("tools", "Tool cannot be listed"),
        ("namespaces", "Namespace cannot be listed"),
        ("serviceaccounts", 'cannot list resource "serviceaccounts"'),
    ],
)
def test_a_kind_that_may_not_be_listed_stops_publishing(
    server: ApiServer, tmp_path: Path, resource: str, said: str
) -> None:
    for path in ("crds", "examples/cluster/rbac.yaml"):
        assert server.kubectl("apply", "-f", str(ROOT / path)).returncode == 0
    role = server.kubectl("get", "clusterrole", "toolcrib-operator", "-o", "json").stdout
    kept = role.replace(f'"{resource}",', "").replace(f'"{resource}"', '"nothing"')
    assert server.kubectl("replace", "-f", "-", input=kept).returncode == 0
    token = server.token_request("toolcrib-system", "toolcrib-operator")
    with HttpReplica() as replica:
        process = OperatorProcess(server.kubeconfig_for(token), [replica.url], tmp_path)
        with process as operator:
            operator.wait_ready(lambda: said in str(operator.report()), 60)
            assert operator.get("/readyz").status_code == 503
            assert replica.snapshot.revision is None
            assert server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml")).returncode == 0
            operator.wait_ready(operator.leads, 60)


def test_crds_that_go_and_come_back_end_neither_the_process_nor_its_watches(
    server: ApiServer, tmp_path: Path
) -> None:
    for path in ("crds", "examples/cluster/rbac.yaml", "examples/heist"):
        assert server.kubectl("apply", "-f", str(ROOT / path)).returncode == 0
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    with HttpReplica() as replica, OperatorProcess(kubeconfig, [replica.url], tmp_path) as operator:
        operator.wait_ready(operator.leads, 60)
        wait_until(lambda: len(replica.snapshot.tools) == 4)
        gone = server.kubectl("delete", "crd", "tools.toolcrib.dev", "--timeout=60s")
        assert gone.returncode == 0, gone.stderr
        wait_until(lambda: "kubectl apply -f crds/" in str(operator.report()))
        assert server.kubectl("apply", "-f", str(ROOT / "crds")).returncode == 0
        heist = str(ROOT / "examples/heist")
        wait_until(lambda: server.kubectl("apply", "-f", heist).returncode == 0)
        wait_until(lambda: len(replica.snapshot.tools) == 4)
        operator.wait_ready(operator.leads, 60)


def test_a_watch_that_fails_for_good_is_told_and_not_waited_for(server: ApiServer) -> None:
    """Otherwise the operator would go on without any watch, and see every change some 20 s late."""
    for path in ("crds", "examples/cluster/rbac.yaml"):
        assert server.kubectl("apply", "-f", str(ROOT / path)).returncode == 0
    token = server.token_request("toolcrib-system", "toolcrib-registry")  # has no rights at all
    kube, world, told = Kube(server.kubeconfig_for(token)), World(), []

    def run() -> None:
        try:
            watch(kube, Memo(world, Resync(world, Cluster(kube))), threading.Event(), retries=(0.1,))
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    kube.close()
    assert not thread.is_alive()
    assert "forbidden" in str(told)
