"""`toolcrib agent suspend` and `resume` against a real API server with the policies and a real operator, by chart roles."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart import render
from operator_harness import HttpReplica
from operator_process import OperatorProcess
from realparts import loaded
from realparts.apiserver import ApiServer
from realparts.processes import clean_environment, wait_until
from realparts.required import require_real

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
GROUP = "rbac.authorization.k8s.io"


class Stage:
    """A cluster with one namespace, and the kubeconfigs of an editor and of who may resume."""

    def __init__(self, server: ApiServer, replica: HttpReplica) -> None:
        self.server, self.replica = server, replica
        rendered = render()
        self.editor = self._account("editor", "toolcrib-edit", rendered)
        self.keeper = self._account("keeper", "toolcrib-agent-keeper", rendered)

    def _account(self, name: str, role: str, rendered: Any) -> Path:
        rules = [*rendered.one("ClusterRole", role)["rules"]]
        if name == "editor":  # as the cluster's own `edit` holds what may be read
            rules += rendered.one("ClusterRole", "toolcrib-view")["rules"]
        within = {"name": name, "namespace": "heist"}
        subject = {"kind": "ServiceAccount", **within}
        body = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
            {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": within, "rules": rules},
            {
                "apiVersion": f"{GROUP}/v1", "kind": "RoleBinding", "metadata": within, "subjects": [subject],
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
            },
        ]  # fmt: skip
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": body})
        done = self.server.kubectl("apply", "-f", "-", input=listed)
        assert done.returncode == 0, done.stderr
        return self.server.kubeconfig_for(self.server.token_request("heist", name))

    def run(self, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return loaded.run(
            [sys.executable, "-m", "toolcrib_cli", "agent", *arguments, "--kubeconfig", str(kubeconfig)],
            env=clean_environment({"HOME": os.environ.get("HOME", "/")}),
            timeout=90,
        )

    def stopped(self) -> list[str]:
        """Which accounts the replica refuses everything."""
        held = (b for b in self.replica.snapshot.bindings.values() if b.suspends)
        return [f"{s.namespace}/{s.name}" for b in held for s in b.subjects]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server, HttpReplica() as replica:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        served = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        assert served.returncode == 0, served.stderr
        wait_until(lambda: server.kubectl("get", "toolcrib", "-A").returncode == 0)
        server.create_namespace("heist")
        made = Stage(server, replica)
        kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
        with OperatorProcess(kubeconfig, [replica.url], tmp_path_factory.mktemp("operator")) as operator:
            operator.wait_ready(operator.leads, timeout=60)
            yield made


def test_an_editor_stops_an_agent_and_who_may_resume_starts_it_again(stage: Stage) -> None:
    stopped = stage.run(stage.editor, "suspend", "heist/hacker", "--reason", "incident 7", "--wait", "60")
    assert (stopped.returncode, stopped.stdout) == (0, "heist/hacker is suspended on every replica.\n"), (
        stopped.stderr
    )
    assert stage.stopped() == ["heist/hacker"]

    refused = stage.run(stage.editor, "resume", "hacker", "-n", "heist")
    assert (refused.returncode != 0, "you may not resume the agent 'hacker'" in refused.stderr) == (
        True,
        True,
    ), refused.stderr
    assert "kubectl auth can-i resume agents.toolcrib.dev/hacker -n heist" in refused.stderr
    assert stage.stopped() == ["heist/hacker"]

    resumed = stage.run(stage.keeper, "resume", "heist/hacker", "--wait", "60")
    assert (resumed.returncode, resumed.stdout) == (0, "heist/hacker is resumed on every replica.\n"), (
        resumed.stderr
    )
    assert stage.stopped() == []
    found = stage.server.read("agents", "hacker", "heist")
    assert (found["spec"]["suspended"], "reason" in found["spec"]) == (False, False)


def test_who_may_write_no_agent_stops_none(stage: Stage) -> None:
    nobody = stage.server.token_request("toolcrib-system", "toolcrib-registry")
    refused = stage.run(stage.server.kubeconfig_for(nobody), "suspend", "heist/other")
    assert (refused.returncode, "cannot" in refused.stderr) == (4, True), refused.stderr
    assert "heist/other" not in stage.stopped()
