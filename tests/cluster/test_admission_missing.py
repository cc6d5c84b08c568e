"""An operator with the rights of rbac.yaml, on a real API server whose admission policies go away, change and come back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifests import binding
from operator_harness import HttpReplica, conditions
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.guarantee]

ROOT = Path(__file__).parents[2]
WAITS = ("False", "AdmissionPolicyUnread")
REFUSED = ("False", "AdmissionPolicyMissing")
ACCEPTED = ("True", "Accepted")


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """One of its own: its policies come and go."""
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            do(server, "apply", "-f", str(ROOT / path))
        do(server, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        server.create_namespace("heist")
        yield server


def do(server: ApiServer, *arguments: str, **kwargs: Any) -> str:
    done = server.kubectl(*arguments, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(server: ApiServer, *manifests: dict[str, Any]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    do(server, "apply", "-f", "-", input=body)


def accepted(server: ApiServer, name: str) -> tuple[str, str] | None:
    """The condition, if it is about the present generation."""
    manifest = server.read("agentscopebindings", name, "heist")
    status = manifest.get("status") or {}
    current = status.get("observedGeneration") == manifest.get("metadata", {}).get("generation")
    return conditions(status).get("Accepted") if current else None


def granted(replica: HttpReplica) -> set[str]:
    return {b.name for b in replica.snapshot.bindings.values() if b.scopes}


def in_force(server: ApiServer, replica: HttpReplica, name: str) -> None:
    """Wait until it is accepted, and granted alone: the one comes before the other."""
    wait_until(lambda: accepted(server, name) == ACCEPTED)
    wait_until(lambda: granted(replica) == {name})


def intact(operator: OperatorProcess) -> bool:
    return operator.metric("toolcrib_admission_policy_intact") == 1


@pytest.fixture
def replica(server: ApiServer) -> Iterator[HttpReplica]:
    with HttpReplica() as replica:
        yield replica
    server.purge()
    do(server, "apply", "-f", str(ROOT / "crds"))


def operator(server: ApiServer, replica: HttpReplica, folder: Path, *options: str) -> OperatorProcess:
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    return OperatorProcess(kubeconfig, [replica.url], folder, *options)


def test_while_a_policy_is_away_no_new_grant_takes_effect_and_old_ones_stay(
    server: ApiServer, replica: HttpReplica, tmp_path: Path
) -> None:
    with running(operator(server, replica, tmp_path)) as leader:
        apply(server, binding("old", ["calculator:use"]))
        in_force(server, replica, "old")
        assert intact(leader)
        do(server, "delete", "validatingadmissionpolicybinding/bindings-equip.toolcrib.dev")
        # at once, before anything was noticed
        apply(server, binding("new", ["calculator:use"], tools={"deny": ["secret"]}))
        wait_until(lambda: accepted(server, "new") == REFUSED)
        assert not intact(leader)
        assert "ValidatingAdmissionPolicyBinding bindings-equip.toolcrib.dev is missing" in str(
            leader.report()
        )
        assert leader.get("/readyz").status_code == 200
        assert granted(replica) == {"old"}
        # the refusal is told before the replica has what is denied all the same
        wait_until(lambda: "new" in {b.name for b in replica.snapshot.bindings.values()})
        assert [b.deny for b in replica.snapshot.bindings.values() if b.name == "new"] == [("secret",)]
        assert granted(replica) == {"old"}
        events = ("get", "events", "-n", "heist", "--field-selector", "involvedObject.name=new")
        wait_until(lambda: "No policy checked whether its author" in do(server, *events))

        do(server, "apply", "-f", str(ROOT / "crds"))
        wait_until(lambda: intact(leader))
        assert accepted(server, "new") == REFUSED
        assert do(server, *events).count("No policy checked") == 1
        apply(server, binding("new", ["calculator:use"], tools={"deny": ["secret", "other"]}))
        wait_until(lambda: accepted(server, "new") == ACCEPTED)
        wait_until(lambda: granted(replica) == {"old", "new"})

        patch = '{"spec": {"validationActions": ["Audit"]}}'
        named = ("validatingadmissionpolicybinding", "bindings-grant.toolcrib.dev")
        do(server, "patch", *named, "--type=merge", "-p", patch)
        wait_until(lambda: "bindings-grant.toolcrib.dev was altered" in str(leader.report()))


def test_a_new_leader_keeps_what_was_in_effect_and_external_admission_asks_for_no_policy(
    server: ApiServer, replica: HttpReplica, tmp_path: Path
) -> None:
    with running(operator(server, replica, tmp_path)):
        apply(server, binding("old", ["calculator:use"]))
        in_force(server, replica, "old")
    patch = '{"spec": {"failurePolicy": "Ignore"}}'
    do(server, "patch", "validatingadmissionpolicy", "tools-gate.toolcrib.dev", "--type=merge", "-p", patch)
    apply(server, binding("new", ["calculator:use"]))
    with operator(server, replica, tmp_path) as second:
        second.wait_ready(lambda: second.report().get("role") == "leader", 60)
        wait_until(lambda: accepted(server, "new") == REFUSED)
        assert granted(replica) == {"old"}
        assert "tools-gate.toolcrib.dev was altered: spec.failurePolicy" in str(second.report())
    with running(operator(server, replica, tmp_path, "--admission", "external")) as third:
        wait_until(lambda: accepted(server, "new") == ACCEPTED)
        wait_until(lambda: granted(replica) == {"old", "new"})
        assert "toolcrib_admission_policy_intact" not in third.get("/metrics").text


def test_no_grant_slips_in_where_the_policies_and_the_right_to_read_them_go_together(
    server: ApiServer, replica: HttpReplica, tmp_path: Path
) -> None:
    """As `kubectl delete -f`, a prune or an uninstall takes them."""
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    with running(operator(server, replica, tmp_path)) as leader:
        apply(server, binding("old", ["calculator:use"]))
        in_force(server, replica, "old")
        without_right(server)
        do(server, "delete", kinds, "-l", "app.kubernetes.io/part-of=toolcrib")
        apply(server, binding("early", ["calculator:use"]))
        wait_until(lambda: accepted(server, "early") == WAITS)
        wait_until(lambda: not intact(leader), 90)
        apply(server, binding("late", ["calculator:use"]))
        wait_until(lambda: accepted(server, "late") == WAITS)
        assert accepted(server, "early") == WAITS
        assert granted(replica) == {"old"}
    for path in ("crds", "examples/cluster/rbac.yaml"):
        do(server, "apply", "-f", str(ROOT / path))
    # the next leader has never seen the policies of before, but knows that these grants waited for them
    with running(operator(server, replica, tmp_path)) as leader:
        wait_until(lambda: accepted(server, "early") == accepted(server, "late") == REFUSED)
        wait_until(lambda: intact(leader))
        assert granted(replica) == {"old"}


def without_right(server: ApiServer) -> None:
    """The operator may no longer read the policies."""
    role = json.loads(do(server, "get", "clusterrole", "toolcrib-operator", "-o", "json"))
    less = [r for r in role["rules"] if "admissionregistration.k8s.io" not in r["apiGroups"]]
    do(server, "replace", "-f", "-", input=json.dumps(role | {"rules": less}))


def test_an_operator_that_may_not_read_them_says_so(
    server: ApiServer, replica: HttpReplica, tmp_path: Path
) -> None:
    without_right(server)
    with operator(server, replica, tmp_path) as leader:
        leader.wait_ready(lambda: leader.report().get("role") == "leader", 60)
        apply(server, binding("planner", ["calculator:use"]))
        wait_until(lambda: accepted(server, "planner") == REFUSED)
        assert "cannot list resource" in str(leader.report()["problems"])
        assert "validatingadmissionpolicies" in leader.log.read_text()
    do(server, "apply", "-f", str(ROOT / "examples/cluster/rbac.yaml"))
