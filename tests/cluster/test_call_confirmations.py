"""Calls confirmed in a cluster with all the real parts: an API server with the policies, the operator, two replicas, Redis."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart import render
from cluster import EXAMPLES, UNPROVEN, Cluster
from manifests import binding, tool
from realparts import loaded
from realparts.processes import clean_environment, wait_until
from realparts.redis_server import Redis
from realparts.required import require_real
from stub_server import Answer, Asked, answering

pytestmark = pytest.mark.real

PAY = {"amount": 5}
RBAC = "rbac.authorization.k8s.io"
CALLS = "/apis/toolcrib.dev/v1alpha1/namespaces/heist/callconfirmations"


class Stage:
    """The cluster, what its tool was sent, and people with their kubeconfigs."""

    def __init__(self, cluster: Cluster, made: list[bytes]) -> None:
        self.cluster, self.made = cluster, made
        self.people: dict[str, Path] = {}

    def person(self, name: str, rules: list[dict[str, Any]]) -> Path:
        """Somebody with these rights in the namespace."""
        within = {"name": name, "namespace": "heist"}
        body = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
            {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": within, "rules": rules},
            {
                "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": within,
                "subjects": [{"kind": "ServiceAccount", **within}],
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            },
        ]  # fmt: skip
        apply(self.cluster, *body)
        return self.cluster.api.kubeconfig_for(self.cluster.api.token_request("heist", name))

    def calls(self, who: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`toolcrib calls` of a person."""
        return loaded.run(
            [
                sys.executable,
                "-m",
                "toolcrib_cli",
                "calls",
                *arguments,
                "--kubeconfig",
                str(self.people[who]),
            ],
            env=clean_environment({"HOME": os.environ.get("HOME", "/")}),
            timeout=90,
        )

    def pay(self, arguments: dict[str, Any], replica: int = 0, who: str = "payer") -> httpx.Response:
        return self.cluster.call(self.cluster.token("heist", who), "pay", arguments, replica)

    def asked(self, arguments: dict[str, Any], who: str = "payer") -> str:
        """The key of a call that waits, once people can see it."""
        told = self.pay(arguments, who=who)
        assert told.status_code == 409, told.text
        key = str(told.json()["confirmation"])
        wait_until(lambda: self.object(key) is not None, 30)
        return key

    def object(self, key: str) -> dict[str, Any] | None:
        answer = self.cluster.api.client.get(f"{CALLS}/{key.partition('/')[2]}")
        return answer.json() if answer.status_code == 200 else None


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, objects)))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with Redis() as redis:
        settings = {"counters": {"kind": "redis", "url": redis.url, "timeout": 5.0}}
        made: list[bytes] = []

        def paid(asked: Asked) -> Answer:
            made.append(asked.body)
            return Answer(b'{"paid": true}')

        with answering(paid) as port:
            settings["backends"] = {"heist/bank": f"127.0.0.1:{port}"}
            with Cluster(
                replicas=2, store="embedded", embedder="none", operator_flags=UNPROVEN, registry=settings
            ) as running:
                stage = Stage(running, made)
                running.kubectl("apply", "-f", str(EXAMPLES / "heist" / "00-namespace.yaml"))
                running.kubectl("create", "service", "clusterip", "bank", "--tcp=80", "-n", "heist")
                running.kubectl("create", "serviceaccount", "payer", "-n", "heist")
                http = {"service": {"name": "bank", "port": 80}, "path": "/pay", "method": "POST"}
                pay = tool("pay", "heist", scopes=["pay:use"], backend={"http": http})
                pay["metadata"]["annotations"] = {"toolcrib.dev/confirm": "always"}
                apply(running, pay, binding("payer", ["pay:use"]))
                running.wait_ready("toolcrib")
                role = render().one("ClusterRole", "toolcrib-call-confirmer")["rules"]
                other = [role[0], {**role[1], "resourceNames": ["another"]}]
                stage.people = {
                    "keeper": stage.person("keeper", role),
                    "reader": stage.person("reader", role[:1]),
                    "keeper of another": stage.person("keeper-of-another", other),
                    "payer": stage.person("payer", role),
                }
                for who in stage.people:
                    wait_until(lambda who=who: stage.calls(who, "pending", "-n", "heist").returncode == 0, 30)  # type: ignore[misc]
                wait_until(lambda: stage.pay({"warm": 1}).status_code == 409, 30)
                yield stage


def test_a_person_confirms_a_call_and_one_replica_makes_it_once(stage: Stage) -> None:
    key = stage.asked(PAY)
    before = len(stage.made)
    found = stage.object(key)
    assert found is not None
    assert (found["spec"]["tool"], found["spec"]["agent"]) == ("pay", "heist/payer")
    listed = stage.calls("keeper", "pending", "-n", "heist", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert {each["id"]: each["arguments"] for each in json.loads(listed.stdout)}[key] == '{"amount": 5}'

    done = stage.calls("keeper", "confirm", key, "--yes")
    assert (done.returncode, f"{key} confirmed." in done.stdout) == (0, True), done.stderr

    wait_until(lambda: stage.pay(PAY, replica=1).status_code == 200, 30)
    assert [json.loads(body) for body in stage.made[before:]] == [PAY]
    assert [stage.pay(PAY, replica=i).status_code for i in (0, 1)] == [409, 409]
    wait_until(lambda: stage.object(key) is None, 30)
    assert len(stage.made) == before + 1


def test_hidden_arguments_are_confirmed_by_a_flag_or_by_their_number(stage: Stage) -> None:
    arguments = {"note": "pay Eve # sk-proj-abcdefghijklmnopqrst"}
    key = stage.asked(arguments)
    unflagged = stage.calls("keeper", "confirm", key, "--yes")
    assert (unflagged.returncode, "--with-hidden-arguments" in unflagged.stderr) == (2, True)
    assert "pay Eve # ***(28 characters hidden)" in unflagged.stdout
    answer = stage.cluster.api.client.patch(
        f"{CALLS}/{key.partition('/')[2]}",
        content=json.dumps({"spec": {"decision": "Confirmed", "decidedBy": "system:admin"}}),
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert (answer.status_code, "repeat spec.hiddenCharacters" in answer.text) == (422, True), answer.text
    done = stage.calls("keeper", "confirm", key, "--yes", "--with-hidden-arguments")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: stage.pay(arguments).status_code == 200, 30)


@pytest.mark.parametrize("who", ["reader", "keeper of another", "payer"])
def test_who_may_not_confirm_does_not(stage: Stage, who: str) -> None:
    """`payer` is the caller, and holds the verb."""
    key = stage.asked({"amount": 6})
    refused = stage.calls(who, "confirm", key, "--yes")
    assert refused.returncode != 0
    why = (
        "cannot confirm its own call"
        if who == "payer"
        else "you may not confirm or reject calls of the Tool 'pay'"
    )
    assert why in refused.stderr
    found = stage.object(key)
    assert found is not None
    assert "decision" not in found["spec"]


def test_nobody_signs_for_somebody_else_or_changes_what_is_shown(stage: Stage) -> None:
    key = stage.asked({"amount": 7})
    path = f"{CALLS}/{key.partition('/')[2]}"
    tried = {
        "another's name": {"decision": "Confirmed", "decidedBy": "alice"},
        "no name": {"decision": "Confirmed"},
        "other arguments": {"arguments": '{"amount": 1}'},
        "a longer time": {"expiresAt": "2126-01-01T00:00:00Z"},
    }
    for way, spec in tried.items():
        answer = stage.cluster.api.client.patch(
            path,
            content=json.dumps({"spec": spec}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status_code in (403, 422), (way, answer.text)


def test_a_decision_is_final(stage: Stage) -> None:
    key = stage.asked({"amount": 8})
    assert stage.calls("keeper", "reject", key, "--yes").returncode == 0
    wait_until(lambda: stage.pay({"amount": 8}).json()["code"] == "confirmation_rejected", 30)
    name = "system:admin"
    path = f"{CALLS}/{key.partition('/')[2]}"
    answer = stage.cluster.api.client.patch(
        path,
        content=json.dumps({"spec": {"decision": "Confirmed", "decidedBy": name}}),
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert (answer.status_code, "the decision is final" in answer.text) == (422, True), answer.text


def test_a_grant_that_was_revoked_meanwhile_makes_a_confirmation_worthless(stage: Stage) -> None:
    key = stage.asked({"amount": 9})
    before = len(stage.made)
    assert stage.calls("keeper", "confirm", key, "--yes").returncode == 0
    stage.cluster.kubectl("delete", "agentscopebindings", "payer", "-n", "heist")
    try:
        for _ in range(20):
            told = stage.pay({"amount": 9})
            assert (told.status_code, told.json()["code"]) == (403, "not_permitted")
            time.sleep(0.1)
        assert len(stage.made) == before
    finally:
        apply(stage.cluster, binding("payer", ["pay:use"]))
        wait_until(lambda: stage.pay({"warm": 2}).status_code != 403, 30)


def test_a_decision_that_no_policy_judged_does_not_count(stage: Stage) -> None:
    key = stage.asked({"amount": 10})
    before = len(stage.made)
    stage.cluster.kubectl("delete", "validatingadmissionpolicybinding", "calls-confirm.toolcrib.dev")
    try:

        def written() -> bool:
            return stage.calls("payer", "confirm", key, "--yes").returncode == 0

        def undone() -> bool:
            # a replica that had not yet heard of the object asks for the call again
            found = stage.object(key)
            return found is None or "decision" not in found["spec"]

        wait_until(written, 30, 0.5)
        wait_until(undone, 30)
        assert stage.pay({"amount": 10}).status_code == 409
        assert len(stage.made) == before
    finally:
        stage.cluster.kubectl("apply", "-f", "crds/admission-policies.yaml")
