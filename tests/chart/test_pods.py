"""What holds for every pod that the chart makes, whatever the values: hooks, tests and agent runners included."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart import Object, Rendered, containers, render
from chart_agents import agent_pods
from chart_values import COMPONENTS, MATRIX, agent_pod, extras

pytestmark = pytest.mark.real

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
# Containers that users add are theirs; `extras` adds one before and one beside.
_FOREIGN = ("init-", "beside-")


def _own(pod: Object) -> list[Object]:
    return [item for item in containers(pod) if not item["name"].startswith(_FOREIGN)]


def _long_running(rendered: Rendered) -> Iterator[tuple[str, Object]]:
    return ((name, pod) for name, pod in rendered.pods() if name.startswith(("Deployment/", "StatefulSet/")))


@pytest.mark.parametrize("name", MATRIX)
def test_every_pod_meets_the_restricted_pod_security_standard(name: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and a read-only root besides."""
    for where, pod in render(MATRIX[name]).pods():
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & spec.keys(), where
        for volume in spec.get("volumes", []):
            assert len(volume.keys() & _VOLUMES) == 1, f"{where}: {volume}"
        outer = spec["securityContext"]
        assert outer["runAsNonRoot"] is True, where
        assert outer["runAsUser"] != 0, where
        assert outer["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert "sysctls" not in outer, where
        for container in _own(pod):
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False, where
            assert inner["capabilities"] == {"drop": ["ALL"]}, where
            assert inner["readOnlyRootFilesystem"] is True, where
            assert not inner.get("privileged"), where
            assert all("hostPort" not in port for port in container.get("ports", [])), where


@pytest.mark.parametrize("name", MATRIX)
def test_every_container_says_what_it_needs_and_which_image_it_is(name: str) -> None:
    for where, pod in render(MATRIX[name]).pods():
        for container in _own(pod):
            resources = container.get("resources", {})
            assert {"cpu", "memory"} <= resources.get("requests", {}).keys(), where
            assert "memory" in resources.get("limits", {}), where
            _, _, tag = container["image"].rpartition("/")[2].partition(":")
            assert "@sha256:" in container["image"] or tag not in ("", "latest"), (
                f"{where}: {container['image']}"
            )


@pytest.mark.parametrize("name", MATRIX)
def test_every_long_running_pod_has_probes_on_ports_that_it_names(name: str) -> None:
    for where, pod in _long_running(render(MATRIX[name])):
        container = _own(pod)[0]
        names = {port["name"] for port in container["ports"]}
        needed = {"startupProbe", "livenessProbe"}
        if "agent" not in where:  # nobody calls an agent runner
            needed.add("readinessProbe")
        assert needed <= container.keys(), where
        assert {container[probe]["httpGet"]["port"] for probe in needed} <= names, where


@pytest.mark.parametrize("name", MATRIX)
def test_only_those_who_ask_the_api_server_get_a_token_for_it(name: str) -> None:
    """The operator and the hooks work with it. The registry projects one of its own, for the signing keys."""
    for where, pod in render(MATRIX[name]).pods():
        labels = pod["metadata"]["labels"]
        if labels["app.kubernetes.io/component"] in ("registry", "weaviate", "agent"):
            assert pod["spec"]["automountServiceAccountToken"] is False, where
        assert "automountServiceAccountToken" in pod["spec"], where


@pytest.mark.parametrize("name", MATRIX)
def test_service_accounts_hand_out_no_token_by_themselves(name: str) -> None:
    assert all(
        item["automountServiceAccountToken"] is False for item in render(MATRIX[name]).of("ServiceAccount")
    )


def _audiences(pod: Object) -> set[str]:
    return {
        source["serviceAccountToken"].get("audience", "(the API server's)")
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    }


def test_each_projected_token_is_for_one_audience() -> None:
    pods = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod
        for _, pod in (*render(MATRIX["agents"]).pods(), *agent_pods(render(MATRIX["agents"])))
    }
    assert _audiences(pods["operator"]) == {"toolcrib-admin"}
    assert _audiences(pods["agent"]) == {"toolcrib"}
    assert _audiences(pods["registry"]) == {"(the API server's)"}
    assert _audiences(pods["weaviate"]) == set()


def test_agents_get_tokens_for_the_registrys_audience_whatever_it_is() -> None:
    rendered = render(MATRIX["agents"] | {"registry": {"audience": "tools.example.com"}})
    for where, pod in agent_pods(rendered):
        assert _audiences(pod) == {"tools.example.com"}, where
    assert "tools.example.com" in rendered.one("ConfigMap", "toolcrib-registry")["data"]["registry.yaml"]


@pytest.mark.parametrize("name", MATRIX)
def test_no_secret_is_written_where_it_can_be_read(name: str) -> None:
    """Keys come by reference or as files: never in a ConfigMap, an argument or an environment variable."""
    rendered = render(MATRIX[name])
    secrets = {
        value
        for item in rendered.of("Secret")
        for key, value in item.get("data", {}).items()
        if not key.endswith(".crt")
    }
    elsewhere = json.dumps([item for item in rendered.objects if item["kind"] != "Secret"])
    assert not [value for value in secrets if value in elsewhere]
    assert "PRIVATE KEY" not in elsewhere
    for where, pod in rendered.pods():
        for variable in (entry for container in _own(pod) for entry in container.get("env", [])):
            if variable["name"].endswith(("KEY", "KEYS", "SECRET", "PASSWORD", "TOKEN")):
                assert "value" not in variable, f"{where}: {variable['name']}"


@pytest.mark.parametrize("name", MATRIX)
def test_every_volume_is_mounted_and_every_mount_has_a_volume(name: str) -> None:
    rendered = render(MATRIX[name])
    claims = {
        f"StatefulSet/{item['metadata']['name']}": {
            claim["metadata"]["name"] for claim in item["spec"]["volumeClaimTemplates"]
        }
        for item in rendered.of("StatefulSet")
        if "volumeClaimTemplates" in item["spec"]
    }
    for where, pod in rendered.pods():
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])} | claims.get(where, set())
        mounts = {mount["name"] for item in containers(pod) for mount in item.get("volumeMounts", [])}
        assert volumes == mounts, where


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_people_add_to_a_component_reaches_its_pods_and_no_others(component: str) -> None:
    added = extras(component)
    for where, pod in render({component: added}).pods():
        text = json.dumps(pod)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] != component:
            assert f"env-{component}" not in text, (
                where
            )  # where they run, hooks have in common with the operator
            continue
        spec = pod["spec"]
        main = _own(pod)[0]
        assert added["extraEnv"][0] in main["env"], where
        assert added["extraEnvFrom"][0] in main["envFrom"], where
        assert added["extraVolumes"][0] in spec["volumes"], where
        assert added["extraVolumeMounts"][0] in main["volumeMounts"], where
        assert added["extraArgs"][0] in main["args"], where
        assert added["extraContainers"][0] in spec["containers"], where
        assert pod["metadata"]["labels"]["example.com/label"] == component, where
        assert pod["metadata"]["annotations"]["example.com/annotation"] == component, where
        for field in (
            "initContainers",
            "nodeSelector",
            "tolerations",
            "affinity",
            "topologySpreadConstraints",
            "priorityClassName",
            "runtimeClassName",
            "hostAliases",
            "dnsConfig",
        ):
            assert spec[field] == added[field], f"{where}: {field}"


@pytest.mark.parametrize("component", COMPONENTS)
def test_security_contexts_can_be_replaced_field_by_field(component: str) -> None:
    """OpenShift chooses users itself: null takes a field out and the rest stays."""
    rendered = render({component: {"podSecurityContext": {"runAsUser": None, "fsGroup": 2000}}})
    pod = next(
        pod
        for _, pod in rendered.pods()
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component
    )
    assert pod["spec"]["securityContext"].get("runAsUser") is None
    assert pod["spec"]["securityContext"]["fsGroup"] == 2000
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"repository": "registry.example.com/toolcrib", "tag": "1.2"}, "registry.example.com/toolcrib:1.2"),
        ({"digest": "sha256:" + "a" * 64}, "toolcrib@sha256:" + "a" * 64),
        ({"tag": "1.2", "digest": "sha256:" + "a" * 64}, "toolcrib@sha256:" + "a" * 64),
    ],
)
def test_one_image_runs_all_our_programs(image: dict[str, str], expected: str) -> None:
    for where, pod in render(MATRIX["agents"] | {"image": image}).pods():
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] != "weaviate":
            assert {item["image"] for item in containers(pod)} == {expected}, where


def test_a_changed_setting_of_the_registry_restarts_its_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        pod = render(values).one("Deployment", "toolcrib-registry")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"operator": {"replicas": 3}})
    assert checksum({}) != checksum({"registry": {"policyMaxAge": 60}})


def test_rolling_updates_of_the_registry_take_no_pod_away_first() -> None:
    strategy = render().one("Deployment", "toolcrib-registry")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("name", MATRIX)
def test_a_pod_that_never_became_ready_can_be_replaced(name: str) -> None:
    """By default a StatefulSet waits for it for ever, however often its template is put right."""
    for item in render(MATRIX[name]).of("StatefulSet"):
        assert item["spec"]["podManagementPolicy"] == "Parallel", item["metadata"]["name"]


_SCRIPT = """#!/bin/sh
case $1 in
tools) echo '[{"name": "helm_test"}]' ;;
call) echo '%s' ;;
esac
"""


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ('{"result": {"expression": "6 * 7", "result": 42}, "request_id": "1"}', 0),
        ('{"result": {"expression": "6 * 7", "result": 41}, "request_id": "42"}', 1),
        ('{"result": {"expression": "6 * 7", "result": 421}}', 1),
    ],
)
def test_the_test_of_a_release_passes_with_the_right_answer_alone(
    answer: str, code: int, tmp_path: Path
) -> None:
    pod = render({"helmTest": {"timeout": 10}}).one("Pod", "toolcrib-test")
    (container,) = pod["spec"]["containers"]
    script = container["args"][0].replace("+ 10 )", "+ 1 )")
    program = tmp_path / "toolcrib"
    program.write_text(_SCRIPT % answer, encoding="utf-8")
    program.chmod(0o755)
    done = subprocess.run(
        [*container["command"], script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TOOLCRIB_URL": "https://example.com"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == code, done.stdout


def test_what_people_set_for_agents_reaches_the_pods_of_all_of_them() -> None:
    rendered = render(MATRIX["extras"])
    given = agent_pod()
    pods = [pod for _, pod in agent_pods(rendered)]
    assert pods
    for pod in pods:
        spec = pod["spec"]
        assert given["extraEnv"][0] in _own(pod)[0]["env"]
        assert pod["metadata"]["labels"]["example.com/label"] == "agent"
        assert pod["metadata"]["annotations"]["example.com/annotation"] == "agent"
        assert spec["imagePullSecrets"] == [{"name": "pull"}]
        assert _own(pod)[0]["image"] == f"toolcrib@{MATRIX['extras']['image']['digest']}"
        for field in given.keys() - {"extraEnv", "podLabels", "podAnnotations"}:
            assert spec[field] == given[field], field


def test_no_agent_pod_has_a_list_of_tools() -> None:
    for where, pod in agent_pods(render(MATRIX["agents"] | {"tls": {"mode": "off"}})):
        names = {item["name"] for item in _own(pod)[0]["env"]}
        assert not {name for name in names if "TOOL" in name.removeprefix("TOOLCRIB_")} - {
            "TOOLCRIB_CORE_TOOLS"
        }, where


@pytest.mark.parametrize("text", ["Sum $(HOME) up", "$$(HOME)", "$5 or $$ or $(", "$(TOOLCRIB_URL"])
def test_a_task_reaches_its_agent_to_the_letter(text: str) -> None:
    agent = MATRIX["agents"]["agents"]["items"][0] | {"task": text, "systemPrompt": text}
    ((_, pod),) = agent_pods(render({"agents": {"items": [agent], "namespaces": ["team-b"]}}))
    found = {item["name"]: item.get("value", "") for item in _own(pod)[0]["env"]}
    for name in ("TOOLCRIB_TASK", "TOOLCRIB_SYSTEM_PROMPT"):
        assert _as_the_kubelet_reads_it(found[name]) == text


def _as_the_kubelet_reads_it(value: str) -> str:
    """Two dollars are one, and `$(NAME)` is a variable's value: kubernetes/third_party/forked/golang/expansion."""
    return re.sub(r"\$\$|\$\(\w+\)", lambda found: "$" if found[0] == "$$" else "(expanded)", value)


@pytest.mark.parametrize("values", [{}, {"profile": "embedded"}], ids=["weaviate", "embedded"])
def test_the_registry_can_be_switched_off(values: dict[str, Any]) -> None:
    rendered = render(values | {"registry": {"replicas": 0}})
    (workload,) = [
        item
        for item in rendered.of("Deployment", "StatefulSet")
        if item["metadata"]["name"] == "toolcrib-registry"
    ]
    assert workload["spec"]["replicas"] == 0
    assert not rendered.find("PodDisruptionBudget", "toolcrib-registry")
