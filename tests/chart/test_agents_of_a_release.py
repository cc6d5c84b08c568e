"""Agents of a release at a real API server: written where a policy checks them, and as suspended as people left them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from chart import NAMESPACE, RELEASE, helm, try_install
from realparts.apiserver import ApiServer
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.guarantee]

POLICIES = "/apis/admissionregistration.k8s.io/v1"
POLICY = f"{POLICIES}/validatingadmissionpolicies/agents-run.toolcrib.dev"
BINDING = f"{POLICIES}/validatingadmissionpolicybindings/agents-run.toolcrib.dev"
AGENTS = "agents"
HOOK = "helm.sh/hook"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """One of its own: definitions and policies come and go here."""
    require_real("kube-apiserver", "etcd", "kubectl", "helm")
    with ApiServer() as running:
        running.create_namespace(NAMESPACE)
        running.create_namespace(AGENTS)
        yield running


def install(server: ApiServer, *items: dict[str, Any], **sets: Any) -> None:
    said = try_install(
        server, "--force-conflicts", sets={"agents.items": list(items), "agents.namespaces": [AGENTS], **sets}
    )
    assert not said, said


def read(server: ApiServer, name: str) -> dict[str, Any]:
    answer = server.client.get(f"/apis/toolcrib.dev/v1alpha1/namespaces/{AGENTS}/agents/{name}")
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def notes(item: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return found


def test_an_upgrade_that_brings_the_policy_of_runs_writes_new_agents_after_it(server: ApiServer) -> None:
    """Helm writes Agents before policies, and a run that no policy has checked is not run."""
    install(server, {"name": "old"})
    server.client.delete(POLICY).raise_for_status()
    install(server, {"name": "old"}, {"name": "new"})
    policy = server.client.get(POLICY).raise_for_status().json()
    new, old = read(server, "new"), read(server, "old")
    assert int(new["metadata"]["resourceVersion"]) > int(policy["metadata"]["resourceVersion"])
    assert (HOOK in notes(new), HOOK in notes(old)) == (True, False), "one that is there is not made again"

    server.client.delete(BINDING).raise_for_status()
    install(server, {"name": "old"}, {"name": "new", "attempt": 2}, {"name": "newer"})
    after = read(server, "new")
    assert (after["metadata"]["uid"], HOOK in notes(after)) == (new["metadata"]["uid"], False)
    assert after["spec"]["run"] == {"attempt": 2}
    assert HOOK in notes(read(server, "newer"))


def test_a_suspension_by_hand_outlives_upgrades_and_rollbacks(server: ApiServer) -> None:
    install(server, {"name": "bot"})
    shown = helm("history", RELEASE, "-n", NAMESPACE, "-o", "json", kubeconfig=server.admin_kubeconfig)
    revision = json.loads(shown.stdout)[-1]["revision"]
    stop = json.dumps({"spec": {"suspended": True, "reason": "incident"}})
    stopped = server.kubectl("patch", "agents.toolcrib.dev", "bot", "-n", AGENTS, "--type=merge", "-p", stop)
    assert stopped.returncode == 0, stopped.stderr

    install(server, {"name": "bot", "mode": "auto"}, **{"operator.replicas": 3})
    assert read(server, "bot")["spec"]["mode"] == "auto"
    assert read(server, "bot")["spec"]["suspended"] is True
    done = helm("rollback", RELEASE, str(revision), "-n", NAMESPACE, kubeconfig=server.admin_kubeconfig)
    assert done.returncode == 0, done.stderr
    assert "mode" not in read(server, "bot")["spec"]
    assert read(server, "bot")["spec"]["suspended"] is True
