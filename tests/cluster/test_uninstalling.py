"""`toolcrib operator --release-finalizers`: what the chart runs before it is uninstalled."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import binding, cluster_binding
from operator_harness import HttpReplica
from operator_process import OperatorProcess, running
from realparts import processes
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real

ROOT = Path(__file__).parents[2]
FINALIZER = "toolcrib.dev/revocation"
KINDS = ("agentscopebindings", "clusteragentscopebindings")

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        yield server


def of_the_operator(server: ApiServer) -> Path:
    """A kubeconfig with the rights of examples/cluster/rbac.yaml and no others: those of the operator and of the hook."""
    return server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))


def release(
    server: ApiServer, folder: Path, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """As the chart's hook runs it, with a Lease that its holder gives up fast."""
    command = [sys.executable, "-m", "toolcrib_operator.main", "--release-finalizers"]
    options = [
        "--kubeconfig",
        str(kubeconfig or server.admin_kubeconfig),
        "--lease-retry",
        "0.3",
        *OperatorProcess.FAST,
    ]
    return subprocess.run(
        [*command, *options],
        env=processes.clean_environment(), cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def finalizers(server: ApiServer) -> list[list[str]]:
    found = [
        o
        for kind in KINDS
        for o in json.loads(server.kubectl("get", kind, "-A", "-o", "json").stdout)["items"]
    ]
    return [o["metadata"].get("finalizers", []) for o in found]


def test_without_our_kinds_there_is_nothing_to_release(server: ApiServer, tmp_path: Path) -> None:
    ended = release(server, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "removed the finalizer from 0 bindings" in ended.stderr


def test_the_leader_ends_and_bindings_can_be_deleted_without_an_operator(
    server: ApiServer, tmp_path: Path
) -> None:
    for path in ("crds", "examples/cluster/rbac.yaml"):
        assert server.kubectl("apply", "-f", str(ROOT / path)).returncode == 0
    server.create_namespace("heist")
    with HttpReplica() as replica:
        account = of_the_operator(server)
        operator = OperatorProcess(account, [replica.url], tmp_path, *OperatorProcess.FAST)
        with running(operator):
            both = [
                binding("planner", ["a:use"]),
                cluster_binding("auditors", ["a:use"], namespaces=["heist"]),
            ]
            items = json.dumps({"apiVersion": "v1", "kind": "List", "items": both})
            applied = server.kubectl("apply", "-f", "-", input=items)
            assert applied.returncode == 0, applied.stderr
            wait_until(lambda: finalizers(server) == [[FINALIZER], [FINALIZER]])
            more = '{"metadata":{"finalizers":["toolcrib.dev/revocation","example.com/kept"]}}'
            patched = server.kubectl("patch", "casb", "auditors", "--type=merge", "-p", more)
            assert patched.returncode == 0, patched.stderr
            ended = release(server, tmp_path, account)
            assert ended.returncode == 0, ended.stderr
            assert "removed the finalizer from 2 bindings" in ended.stderr
            assert finalizers(server) == [[], ["example.com/kept"]]
            wait_until(lambda: not operator.running)
    assert server.kubectl("delete", "asb", "-A", "--all", "--timeout=60s").returncode == 0


def test_without_an_operator_a_deleted_binding_waits_for_the_hook_whatever_its_editors_do(
    server: ApiServer, tmp_path: Path
) -> None:
    server.create_namespace("closed")
    held = binding("held", ["a:use"], "closed")
    held["metadata"]["finalizers"] = [FINALIZER]
    applied = server.kubectl("apply", "-f", "-", input=json.dumps(held))
    assert applied.returncode == 0, applied.stderr
    rights = ("--verb=get,list,update,patch,delete", "--resource=agentscopebindings.toolcrib.dev")
    assert server.kubectl("create", "clusterrole", "binding-editor", *rights).returncode == 0
    bound = ("rolebinding", "editors", "-n", "closed", "--clusterrole=binding-editor", "--user=editor")
    assert server.kubectl("create", *bound).returncode == 0
    editor = ("-n", "closed", "--as", "editor")

    def released() -> subprocess.CompletedProcess[str]:
        none = '{"metadata":{"finalizers":null}}'
        return server.kubectl("patch", "asb", "held", "--type=merge", "-p", none, *editor)

    wait_until(lambda: server.kubectl("get", "asb", "held", *editor).returncode == 0)
    wait_until(lambda: "'bindings-release.toolcrib.dev'" in released().stderr)
    deleted = server.kubectl("delete", "asb", "held", "--wait=false", *editor)
    assert deleted.returncode == 0, deleted.stderr
    refused = released()
    assert refused.returncode == 1
    assert (
        "you may not remove the finalizer toolcrib.dev/revocation from held in the namespace closed"
        in refused.stderr
    )
    ended = release(server, tmp_path, of_the_operator(server))
    assert ended.returncode == 0, ended.stderr
    assert "removed the finalizer from 1 bindings" in ended.stderr
    assert "NotFound" in server.kubectl("get", "asb", "held", *editor).stderr
