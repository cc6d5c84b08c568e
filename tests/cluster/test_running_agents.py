"""Agents that the operator runs, with a real API server, the operator with its own rights, and one replica."""

import contextlib
import json
import shlex
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cluster import CRDS, EXAMPLES, UNPROVEN, Cluster
from manifests import binding, manifest
from realparts.processes import wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.guarantee]

IMAGE = "registry.example/toolcrib:1"
FLAGS = (
    "--agent-namespaces", "heist", "--agent-image", IMAGE, "--agent-registry-url", "https://registry.example",
    "--agent-ca", "toolcrib-ca",
)  # fmt: skip
MODEL = {"name": "m", "baseURL": "https://models.example/v1"}
KEYED = {**MODEL, "apiKeySecretRef": {"name": "model"}}
PLACES = {"Deployment": "/apis/apps/v1/namespaces/{}/deployments", "Job": "/apis/batch/v1/namespaces/{}/jobs"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with Cluster(
        replicas=1, store="embedded", embedder="none", operator_flags=(*UNPROVEN, *FLAGS)
    ) as running:
        running.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        bound = (
            "create",
            "rolebinding",
            "toolcrib-agents",
            "-n",
            "heist",
            "--clusterrole",
            "toolcrib-agents",
        )
        running.kubectl(*bound, "--serviceaccount", "toolcrib-system:toolcrib-operator")
        running.kubectl("create", "namespace", "elsewhere")
        running.kubectl("create", "serviceaccount", "bot", "-n", "elsewhere")
        running.wait_ready("toolcrib")
        yield running


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, objects)))


def agent(namespace: str = "heist", name: str = "bot", **spec: Any) -> dict[str, Any]:
    return manifest(
        "Agent", name, namespace, serviceAccountName="safecracker" if namespace == "heist" else "bot", **spec
    )


def read(cluster: Cluster, namespace: str = "heist") -> dict[str, Any]:
    found: dict[str, Any] = cluster.api.read("agents", "bot", namespace)
    return found


def said(cluster: Cluster, namespace: str = "heist") -> dict[str, tuple[str, str]]:
    found = read(cluster, namespace)
    status, generation = found.get("status") or {}, found["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        return {}
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}


def told(cluster: Cluster, kind: str, namespace: str = "heist") -> str:
    conditions = (read(cluster, namespace).get("status") or {}).get("conditions") or ()
    return str(next(c["message"] for c in conditions if c["type"] == kind))


def there(cluster: Cluster, kind: str, namespace: str = "heist") -> dict[str, dict[str, Any]]:
    answer = cluster.api.client.get(PLACES[kind].format(namespace))
    assert answer.status_code == 200, answer.text
    return {each["metadata"]["name"]: each for each in answer.json()["items"]}


def patch(cluster: Cluster, kind: str, name: str, body: dict[str, Any], sub: str = "") -> None:
    answer = cluster.api.client.patch(
        f"{PLACES[kind].format('heist')}/{name}{sub}",
        content=json.dumps(body),
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text


def until(cluster: Cluster, kind: str, wanted: tuple[str, str], namespace: str = "heist") -> None:
    wait_until(lambda: said(cluster, namespace).get(kind) == wanted, 30, 0.1)


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    for namespace in ("heist", "elsewhere"):
        path = f"/apis/toolcrib.dev/v1alpha1/namespaces/{namespace}/agents/bot"
        with contextlib.suppress(AssertionError):
            cluster.kubectl(
                "patch",
                "agents.toolcrib.dev",
                "bot",
                "-n",
                namespace,
                "--type=merge",
                "-p",
                '{"spec":{"run":null,"suspended":false}}',
            )
            wait_until(
                lambda n=namespace: not there(cluster, "Deployment", n) and not there(cluster, "Job", n), 30
            )  # type: ignore[misc]
        cluster.api.client.delete(path)
        wait_until(lambda p=path: cluster.api.client.get(p).status_code == 404, 30)  # type: ignore[misc]


def test_a_run_is_a_deployment_that_is_mended_and_goes_with_the_field(clean: Cluster) -> None:
    cluster = clean
    apply(cluster, agent(run={"replicas": 2}, mode="dynamic"))
    until(cluster, "Deployed", ("True", "Deployed"))
    made = there(cluster, "Deployment")["agent-bot"]

    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "Agent",
        read(cluster)["metadata"]["uid"],
        True,
    )
    pod = made["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["containers"][0]["image"]) == ("safecracker", IMAGE)
    assert made["spec"]["replicas"] == 2
    assert said(cluster)["Discovering"] == ("False", "NotDiscovered")
    assert said(cluster)["Ready"] == ("False", "NotDiscovered")
    tools = cluster.discover(cluster.token("heist", "safecracker"))
    assert not [name for name in tools if name in json.dumps(made)], "no list of tools in it"

    patch(cluster, "Deployment", "agent-bot", {"status": {"replicas": 2, "readyReplicas": 2}}, "/status")
    until(cluster, "Ready", ("True", "Ready"))
    assert read(cluster)["status"]["tools"] == len(tools) > 0

    patch(cluster, "Deployment", "agent-bot", {"spec": {"replicas": 0}})
    wait_until(lambda: there(cluster, "Deployment")["agent-bot"]["spec"]["replicas"] == 2, 30)
    cluster.kubectl("delete", "deployment", "agent-bot", "-n", "heist")
    wait_until(lambda: "agent-bot" in there(cluster, "Deployment"), 30)

    apply(cluster, agent())
    wait_until(lambda: not there(cluster, "Deployment"), 30)
    wait_until(lambda: "Deployed" not in said(cluster), 30)
    assert {"tools", "run"}.isdisjoint(read(cluster)["status"])


def test_an_edit_reaches_the_workload_and_a_suspension_leaves_it_alone(clean: Cluster) -> None:
    cluster = clean
    apply(cluster, agent(run={}, mode="auto", model=MODEL))
    until(cluster, "Deployed", ("True", "Deployed"))
    apply(cluster, agent(run={}, mode="auto"))
    until(cluster, "Deployed", ("True", "Deployed"))
    env = there(cluster, "Deployment")["agent-bot"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert "TOOLCRIB_MODEL_URL" not in {each["name"] for each in env}, (
        "what goes from the Agent goes from its pods"
    )

    before = there(cluster, "Deployment")["agent-bot"]["metadata"]
    apply(cluster, agent(run={}, mode="auto", suspended=True))
    until(cluster, "Suspended", ("True", "Suspended"))
    wait_until(lambda: read(cluster)["status"].get("tools") == 0, 30)
    apply(cluster, agent(run={}, mode="auto", suspended=False))
    until(cluster, "Suspended", ("False", "NotSuspended"))
    wait_until(lambda: read(cluster)["status"].get("tools"), 30)
    after = there(cluster, "Deployment")["agent-bot"]["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])


def test_a_task_is_run_once_and_another_task_by_another_job(clean: Cluster) -> None:
    cluster = clean
    apply(cluster, agent(run={"task": "one"}, model=MODEL))
    wait_until(lambda: read(cluster).get("status", {}).get("lastRun", {}).get("outcome") == "Running", 30)
    (first,) = there(cluster, "Job")
    apply(cluster, agent(run={"task": "two"}, model=MODEL))
    wait_until(lambda: there(cluster, "Job") and first not in there(cluster, "Job"), 30)
    (second,) = there(cluster, "Job")

    now = "2026-11-28T05:00:00Z"
    done = [
        {"type": each, "status": "True", "lastTransitionTime": now}
        for each in ("SuccessCriteriaMet", "Complete")
    ]
    ended = {
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "uncountedTerminatedPods": {},
        "conditions": done,
    }
    patch(cluster, "Job", second, {"status": ended}, "/status")
    wait_until(lambda: read(cluster)["status"]["lastRun"].get("outcome") == "Succeeded", 30)
    assert read(cluster)["status"]["lastRun"] == {
        "job": second, "startedAt": now, "completedAt": now, "outcome": "Succeeded",
    }  # fmt: skip
    until(cluster, "Ready", ("True", "Ready"))
    cluster.kubectl("delete", "job", second, "-n", "heist")
    apply(cluster, agent(run={"task": "two"}, model=MODEL, reason="an edit of something else"))
    until(cluster, "Deployed", ("True", "Deployed"))
    assert not there(cluster, "Job"), "it is not run again"


def test_a_task_that_comes_before_its_grant_begins_with_it(clean: Cluster) -> None:
    cluster = clean
    cluster.kubectl("create", "serviceaccount", "fresh", "-n", "heist")
    task = manifest("Agent", "bot", "heist", serviceAccountName="fresh", run={"task": "one"}, model=MODEL)
    apply(cluster, task)
    until(cluster, "Deployed", ("False", "WaitsForTools"))
    assert not there(cluster, "Job")
    apply(cluster, binding("fresh", ["calculator:use"]))
    wait_until(lambda: there(cluster, "Job"), 25)
    assert cluster.discover(cluster.token("heist", "fresh")) == ["calculator"]
    cluster.kubectl("delete", "agentscopebinding,serviceaccount", "fresh", "-n", "heist")


def test_a_namespace_that_is_not_named_gets_nothing_and_a_hint(clean: Cluster) -> None:
    apply(clean, agent("elsewhere", run={}))
    until(clean, "Deployed", ("False", "NamespaceNotRun"), "elsewhere")
    assert "agents.namespaces" in told(clean, "Deployed", "elsewhere")
    assert not there(clean, "Deployment", "elsewhere")


def test_a_model_key_takes_a_secret_with_the_label_and_the_host(clean: Cluster) -> None:
    cluster = clean
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "model", "namespace": "heist"},
        "stringData": {"api-key": "s3cret-of-a-model"},
    }  # fmt: skip
    metadata: dict[str, Any] = secret["metadata"]  # type: ignore[assignment]
    apply(cluster, secret, agent(run={}, model=KEYED))
    until(cluster, "Deployed", ("False", "ModelKeyMissing"))
    metadata["labels"] = {"toolcrib.dev/model-key": "true"}
    apply(cluster, secret)
    until(cluster, "Deployed", ("False", "ModelKeyNotAllowed"))
    assert "models.example" in told(cluster, "Deployed")
    assert not there(cluster, "Deployment")
    metadata["annotations"] = {"toolcrib.dev/hosts": "models.example"}
    apply(cluster, secret)
    until(cluster, "Deployed", ("True", "Deployed"))
    pod = there(cluster, "Deployment")["agent-bot"]["spec"]["template"]["spec"]
    assert "s3cret-of-a-model" not in json.dumps(pod)
    assert [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v] == ["model"]
    metadata["annotations"] = {"toolcrib.dev/hosts": "elsewhere.example"}
    apply(cluster, secret)
    wait_until(lambda: not there(cluster, "Deployment"), 30)
    cluster.kubectl("delete", "secret", "model", "-n", "heist")


@pytest.mark.long
def test_a_run_without_a_policy_is_not_run_until_the_command_in_its_status_is_entered(clean: Cluster) -> None:
    cluster = clean
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    cluster.kubectl("delete", kinds, "agents-run.toolcrib.dev")
    task = {"task": "one"}
    apply(cluster, agent(run=task, model=MODEL))
    until(cluster, "Deployed", ("False", "AdmissionPolicyMissing"))
    cluster.kubectl("apply", "-f", str(CRDS / "admission-policies.yaml"))
    metrics = f"{cluster.operators[-1].url}/metrics"  # type: ignore[attr-defined]
    good = "toolcrib_admission_policy_intact 1.0"
    wait_until(lambda: good in httpx.get(metrics, trust_env=False).text, 60)
    assert said(cluster)["Deployed"] == ("False", "AdmissionPolicyMissing"), "what nobody checked stays so"
    assert not there(cluster, "Job")

    command = shlex.split(told(cluster, "Deployed").rpartition(": ")[2].removeprefix("kubectl "))
    cluster.kubectl(*command)
    until(cluster, "Deployed", ("True", "Deployed"))
    assert read(cluster)["spec"]["run"] == {**task, "attempt": 2}
    (first,) = there(cluster, "Job")
    cluster.kubectl(*(word.replace("2", "3") for word in command))
    wait_until(lambda: set(there(cluster, "Job")) - {first}, 30)


def test_an_operator_that_takes_over_writes_nothing(clean: Cluster) -> None:
    cluster = clean
    apply(cluster, agent(run={}))
    until(cluster, "Deployed", ("True", "Deployed"))
    wait_until(lambda: read(cluster)["status"].get("tools"), 30)
    workload, status = there(cluster, "Deployment")["agent-bot"]["metadata"], read(cluster)["metadata"]
    old = cluster.operators.pop()
    old.stop()
    log = cluster.folder / f"{old.name}.log"
    before = len(log.read_text())
    new = cluster.add_operator()
    # it has looked at what is run once it mends what others change
    wait_until(lambda: cluster.leader() == new.name, 60)
    patch(cluster, "Deployment", "agent-bot", {"metadata": {"labels": {"other": "label"}}})
    cluster.kubectl("create", "serviceaccount", "late", "-n", "heist")
    apply(cluster, manifest("Agent", "late", "heist", run={}))
    wait_until(lambda: "agent-late" in there(cluster, "Deployment"), 60)
    after = there(cluster, "Deployment")["agent-bot"]["metadata"]
    assert (after["generation"], int(after["resourceVersion"]) > int(workload["resourceVersion"])) == (
        workload["generation"],
        True,
    )
    assert "mended Deployment heist/agent-bot" not in log.read_text()[before:]
    assert read(cluster)["metadata"]["resourceVersion"] == status["resourceVersion"]
    cluster.kubectl(
        "patch", "agents.toolcrib.dev", "late", "-n", "heist", "--type=merge", "-p", '{"spec":{"run":null}}'
    )
    wait_until(lambda: "agent-late" not in there(cluster, "Deployment"), 60)
    cluster.kubectl("delete", "agents.toolcrib.dev", "late", "-n", "heist")
