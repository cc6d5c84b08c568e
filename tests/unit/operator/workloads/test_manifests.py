"""The workload of an Agent: a restricted pod of our image, by its account, that is told no tool."""

import json
from typing import Any

import pytest

from manifests import manifest
from toolcrib.resources import parse
from toolcrib.resources.agents import Agent
from toolcrib_operator.settings import AgentSettings
from toolcrib_operator.workloads import names
from toolcrib_operator.workloads.manifests import workload

SETTINGS = AgentSettings(
    namespaces=("heist",),
    image="registry.example/toolcrib@sha256:1",
    pull_policy="Always",
    pull_secrets=("pull",),
    registry_url="https://toolcrib-registry.toolcrib-system.svc",
    ca_config_map="toolcrib-ca",
)
MODEL = {
    "name": "m",
    "baseURL": "https://models.example/v1",
    "apiKeySecretRef": {"name": "model", "key": "token"},
}


def agent(name: str = "hacker", **spec: Any) -> Agent:
    made = manifest("Agent", name, "heist", **{"run": {}} | spec)
    made["metadata"]["uid"] = "uid-1"
    found = parse(made)
    assert isinstance(found, Agent)
    return found


def pod(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["template"]["spec"]
    return found


def env(made: dict[str, Any]) -> dict[str, str]:
    (container,) = pod(made)["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_without_a_task_it_is_a_deployment_that_the_agent_owns() -> None:
    made = workload(agent(run={"replicas": 3}), SETTINGS)

    assert (made["apiVersion"], made["kind"]) == ("apps/v1", "Deployment")
    labels = {
        "app.kubernetes.io/name": "toolcrib",
        "app.kubernetes.io/component": "agent",
        "app.kubernetes.io/managed-by": "toolcrib-operator",
        "toolcrib.dev/agent": "hacker",
    }
    owner = {
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "name": "hacker", "uid": "uid-1", "controller": True,
        "blockOwnerDeletion": False,
    }  # fmt: skip
    (written,) = made["metadata"].pop("annotations")
    assert written == "toolcrib.dev/written"
    assert made["metadata"] == {
        "name": "agent-hacker", "namespace": "heist", "labels": labels, "ownerReferences": [owner],
    }  # fmt: skip
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["template"]["metadata"]["labels"] == labels
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_its_pod_is_restricted_and_has_no_token_but_one_for_the_registry() -> None:
    spec = pod(workload(agent(serviceAccountName="bot"), SETTINGS))
    (container,) = spec["containers"]

    assert spec["serviceAccountName"] == "bot"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    volumes = {v["name"]: v for v in spec["volumes"]}
    (source,) = volumes["token"]["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "audience": "toolcrib",
        "expirationSeconds": 3600,
        "path": "token",
    }
    assert all(volumes[name]["emptyDir"] == {"sizeLimit": "64Mi"} for name in ("tmp", "state"))
    assert volumes["ca"]["configMap"]["name"] == "toolcrib-ca"
    assert (container["image"], container["imagePullPolicy"]) == (SETTINGS.image, "Always")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert container["resources"]["limits"] == {"memory": "256Mi"}


def test_mode_core_and_model_are_passed_by_environment_and_the_key_as_a_file() -> None:
    made = workload(agent(mode="hybrid", core=["heist/calculator", "heist/notes"], model=MODEL), SETTINGS)

    said = env(made)
    assert (
        said.items()
        >= {
            "TOOLCRIB_URL": SETTINGS.registry_url,
            "TOOLCRIB_MODE": "hybrid",
            "TOOLCRIB_CORE_TOOLS": "heist/calculator,heist/notes",
            "TOOLCRIB_MODEL": "m",
            "TOOLCRIB_MODEL_URL": "https://models.example/v1",
            "TOOLCRIB_MODEL_KEY_FILE": "/var/run/secrets/model/api-key",
        }.items()
    )
    (key,) = [v for v in pod(made)["volumes"] if v["name"] == "model-key"]
    assert key["secret"] == {
        "secretName": "model",
        "defaultMode": 0o440,
        "items": [{"key": "token", "path": "api-key"}],
    }
    assert all(set(each) == {"name", "value"} for each in pod(made)["containers"][0]["env"])


def test_a_task_is_a_job_of_one_attempt_and_another_run_is_another_job() -> None:
    tasks: list[dict[str, Any]] = [
        {"task": "count to $(TEN)"}, {"task": "count"}, {"task": "count", "systemPrompt": "Be short."},
    ]  # fmt: skip
    made = [workload(agent(run=run, model=MODEL), SETTINGS) for run in tasks]
    made.append(workload(agent(run=tasks[1], model=MODEL, mode="auto"), SETTINGS))

    assert {each["kind"] for each in made} == {"Job"}
    assert len({each["metadata"]["name"] for each in made}) == 4
    assert made[0]["spec"]["backoffLimit"] == 0
    assert pod(made[0])["restartPolicy"] == "Never"
    assert env(made[0])["TOOLCRIB_TASK"] == "count to $$(TEN)", "the kubelet leaves it as it is"
    assert "--keep-serving" not in pod(made[0])["containers"][0]["args"]


def test_what_does_not_say_what_is_run_makes_no_other_job() -> None:
    run = {"task": "count"}
    plain = workload(agent(run=run, model=MODEL), SETTINGS)
    for other in (agent(run=run, model=MODEL, suspended=True), agent(run=run, model=MODEL, reason="x")):
        assert workload(other, SETTINGS) == plain
    upgraded = AgentSettings(image="another", registry_url="https://r")
    assert workload(agent(run=run, model=MODEL), upgraded)["metadata"]["name"] == plain["metadata"]["name"], (
        "an upgrade runs no task again"
    )


def test_nothing_in_it_lists_tools() -> None:
    granted = "heist/calculator"
    for run in ({}, {"task": "count"}):
        text = json.dumps(workload(agent(run=run, model=MODEL), SETTINGS))
        assert granted not in text
        assert "inputSchema" not in text


def test_defaults_of_pods_are_put_over_it_and_null_takes_a_field_away() -> None:
    pod_defaults = {
        "resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
        "podLabels": {"team": "x", "toolcrib.dev/agent": "another"}, "podAnnotations": {"c": "d"},
        "podSecurityContext": {"runAsUser": None}, "extraEnv": [{"name": "E", "value": "1"}],
    }  # fmt: skip
    made = workload(agent(), AgentSettings(image="i", registry_url="https://r", pod=pod_defaults))
    metadata, spec = made["spec"]["template"]["metadata"], pod(made)

    assert spec["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"a": "b"}, [{"operator": "Exists"}])
    assert metadata["labels"].items() >= {"team": "x", "toolcrib.dev/agent": "hacker"}.items()
    assert metadata["annotations"] == {"c": "d"}
    assert "runAsUser" not in spec["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert env(made)["E"] == "1"


@pytest.mark.parametrize("name", ["a", "a.b", "a-b", "x" * 60, "x" * 253, f"{'x' * 59}.y"])
def test_names_are_as_long_as_kubernetes_takes_them(name: str) -> None:
    deployment, job = names.deployment(name), names.job(name, "0123456789")
    assert len(deployment) <= 63
    assert len(job) <= 52
    assert all(c.isalnum() or c == "-" for c in deployment + job)
    assert len(names.labels(name)["toolcrib.dev/agent"]) <= 63


def test_two_agents_never_share_a_name() -> None:
    given = ["a.b", "a-b", "x" * 60, "x" * 61, "x" * 62]
    assert len({names.deployment(each) for each in given}) == len(given)
    assert len({names.job(each, "0123456789") for each in given}) == len(given)
    long = ["x" * 64, "x" * 65]
    assert len({names.labels(each)["toolcrib.dev/agent"] for each in long}) == 2
