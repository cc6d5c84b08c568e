"""`toolcrib doctor` against a real API server that holds the rendered chart: each item by what was really applied."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from chart import render
from manifests import binding, cluster_binding, tool
from realparts import loaded
from realparts.apiserver import ApiServer
from realparts.processes import clean_environment, wait_until
from realparts.required import require_real
from toolcrib_cli.doctor import cluster, table

pytestmark = pytest.mark.real

SYSTEM, HOME = "toolcrib-system", "heist"
HARDENED = {
    "registry": {
        "audit": {"key": {"existingSecret": "our-audit-key"}},
        "assertion": {"keys": {"existingSecret": "our-assertion-keys"}},
    },
    "egress": {"cluster": ["10.96.0.0/12"]},
    "metrics": {"from": {"namespaces": ["monitoring"]}},
}
SKIPPED = ("Job", "Pod", "PersistentVolumeClaim", "Certificate")


def service(name: str, **labels: str) -> dict[str, Any]:
    spec = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": HOME},
        "spec": spec,
    }


def policy(name: str, ingress: list[dict[str, Any]], **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


REGISTRY_ALONE = [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}}]}]
TOOL = tool("calculator", backend={"http": {"service": {"name": "example-tools", "port": 80}}})


class Stage:
    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def apply(self, *manifests: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        done = self.server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=body)
        assert done.returncode == 0, done.stderr

    def delete(self, *arguments: str) -> None:
        done = self.server.kubectl("delete", *arguments, "--timeout=60s")
        assert done.returncode == 0, done.stderr

    def doctor(self, *more: str, kubeconfig: str | None = None) -> subprocess.CompletedProcess[str]:
        given = kubeconfig or str(self.server.admin_kubeconfig)
        argv = [sys.executable, "-m", "toolcrib_cli", "doctor", "--kubeconfig", given, *more]
        # a registry that other commands go to chooses nothing here
        env = clean_environment({"HOME": os.environ.get("HOME", "/"), "TOOLCRIB_URL": "http://127.0.0.1:1"})
        return loaded.run(argv, env=env, timeout=120)

    def items(self, kubeconfig: str | None = None) -> dict[str, tuple[str, str]]:
        facts = cluster.look(kubeconfig=kubeconfig or str(self.server.admin_kubeconfig))
        return {r.item.name: (str(r.verdict.outcome), r.verdict.found) for r in table.examine(facts)}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_real("kube-apiserver", "etcd", "kubectl", "helm")
    rendered = render(HARDENED)
    with ApiServer(users={"nobody": ("nobody-token", [])}) as server:
        made = Stage(server)
        for name in (SYSTEM, HOME):
            server.kubectl("create", "namespace", name)
        made.apply(*rendered.of("CustomResourceDefinition"))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        hooks = [o for o in rendered.objects if "helm.sh/hook" in (o["metadata"].get("annotations") or {})]
        wanted = [
            o for o in rendered.objects
            if o["kind"] not in ("CustomResourceDefinition", "Namespace", *SKIPPED) and o not in hooks
        ]  # fmt: skip
        made.apply(
            *(
                o if o["kind"] in _WIDE else {**o, "metadata": {"namespace": SYSTEM, **o["metadata"]}}
                for o in wanted
            )
        )
        made.apply(
            service("example-tools", app="example-tools"),
            policy("example-tools", REGISTRY_ALONE, app="example-tools"),
        )
        wait_until(
            lambda: server.kubectl("apply", "-f", "-", input=json.dumps(TOOL)).returncode == 0, timeout=60
        )
        yield made


_WIDE = (
    "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PriorityClass",
)  # fmt: skip


def test_a_hardened_chart_passes_every_item_and_the_command_ends_with_zero(stage: Stage) -> None:
    items = stage.items()
    assert {n: i for n, i in items.items() if i[0] != "pass"} == {}
    done = stage.doctor("-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {i["item"]: (i["outcome"], i["found"]) for i in told["items"]} == items


def test_a_service_behind_a_tool_that_no_policy_selects_fails_until_one_does(stage: Stage) -> None:
    other = tool("ledger", backend={"http": {"service": {"name": "ledger", "port": 80}}})
    stage.apply(service("ledger", app="ledger"), other)
    try:
        found = stage.items()["tool-services"]
        assert (found[0], "heist/ledger" in found[1]) == ("fail", True)
        stage.apply(policy("ledger", [{}], app="ledger"))
        found = stage.items()["tool-services"]
        assert (found[0], "everybody" in found[1]) == ("fail", True)
        stage.apply(policy("ledger", REGISTRY_ALONE, app="ledger"))
        assert stage.items()["tool-services"][0] == "pass"
        # a pod of the Service that the policy does not select
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "namespace": HOME, "labels": {"app": "ledger", "v": "2"}},
            "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "example.com/none"}]},
        }  # fmt: skip
        stage.server.kubectl("create", "serviceaccount", "default", "-n", HOME)
        stage.apply(pod, policy("ledger", REGISTRY_ALONE, app="ledger", v="1"))
        assert stage.items()["tool-services"][0] == "fail"
    finally:
        stage.delete(
            "-n",
            HOME,
            "pod/stray",
            "networkpolicy/ledger",
            "service/ledger",
            "tools.toolcrib.dev/ledger",
            "--ignore-not-found",
        )


def test_what_was_opened_by_hand_fails_with_a_name_and_a_remedy(stage: Stage) -> None:
    rule = {"apiGroups": ["toolcrib.dev"], "resources": ["bindings"], "verbs": ["release"]}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    stage.apply(
        {**rbac, "kind": "ClusterRole", "metadata": {"name": "releasers"}, "rules": [rule]},
        {**rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "releasers"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "releasers"},
         "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]},
        cluster_binding("everybody", ["calculator:use"], namespaceSelector={}),
        binding("over", ["calculator:use"], expiresAt="2020-01-01T00:00:00Z"),
        tool("plain", backend={"http": {"url": "http://tools.example.com/"}}),
    )  # fmt: skip
    stage.server.kubectl("delete", "validatingadmissionpolicybinding", "bindings-lift.toolcrib.dev")
    try:
        items = stage.items()
        found = {n: i[1] for n, i in items.items() if i[0] == "fail"}
        opened = {"admission-policies", "release-verb", "everywhere", "expiring", "plain-http"}
        assert set(found) == opened
        assert "User mallory" in found["release-verb"]
        assert "bindings-lift" in found["admission-policies"]
        assert "heist/plain" in found["plain-http"]
        done = stage.doctor()
        assert done.returncode == 1
        shown = done.stdout
        assert "remedy: `https://` in the Tool's" in shown
    finally:
        stage.delete(
            "clusterrolebinding/releasers", "clusterrole/releasers", "clusteragentscopebinding/everybody"
        )
        stage.delete("-n", HOME, "agentscopebinding/over", "tools.toolcrib.dev/plain")
        stage.apply(*(o for o in render(HARDENED).of("ValidatingAdmissionPolicyBinding")))


def test_who_may_read_nothing_learns_that_it_is_unknown_and_never_that_it_passes(stage: Stage) -> None:
    kubeconfig = str(stage.server.kubeconfig_for("nobody-token"))
    items = stage.items(kubeconfig)
    assert {i[0] for i in items.values()} == {"unknown"}
    assert "you may not list them" in items["tool-services"][1]
    assert stage.doctor(kubeconfig=kubeconfig).returncode == 2


def test_where_no_api_server_answers_the_command_ends_with_two(stage: Stage, tmp_path: Any) -> None:
    text = stage.server.admin_kubeconfig.read_text().replace(f":{stage.server.port}", ":1")
    (tmp_path / "gone").write_text(text)
    done = stage.doctor(kubeconfig=str(tmp_path / "gone"))
    assert done.returncode == 2
    assert "error:" in done.stderr


def test_it_calls_no_tool_and_writes_nothing(stage: Stage) -> None:
    before = stage.server.kubectl(
        "get", "tools.toolcrib.dev,asb,casb,configmap,networkpolicy", "-A", "-o", "json"
    ).stdout
    stage.items()
    after = stage.server.kubectl(
        "get", "tools.toolcrib.dev,asb,casb,configmap,networkpolicy", "-A", "-o", "json"
    ).stdout
    assert before == after
