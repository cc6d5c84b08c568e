"""Names, labels and selectors: objects find each other, and no other release's."""

import json
import re
from typing import Any

import pytest

from chart import Object, Rendered, containers, named, render
from chart_agents import agent_pods, agent_workloads
from chart_values import MATRIX
from toolcrib.resources import admission

pytestmark = pytest.mark.real

_OF_CRDS = ("CustomResourceDefinition", admission.POLICY, admission.BINDING)
_CLUSTER_SCOPED = (
    *_OF_CRDS,
    "ClusterRole",
    "ClusterRoleBinding",
    "Namespace",
    "ClusterAgentScopeBinding",
)
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LONG = "an-uncommonly-long-name-of-a-release-by-somebody-who"  # 53 characters, helm's limit
# Sets that make between them every object that there is.
_WIDE = ["agents", "embedded", "extras", "gateway", "prometheus", "prometheus-operator", "registrations"]
_CHARTS_OWN = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
}
_OPERATORS_OWN = {"app.kubernetes.io/name", "app.kubernetes.io/component", "app.kubernetes.io/managed-by"}


def _matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def _pod_labels(rendered: Rendered) -> list[dict[str, str]]:
    return [pod["metadata"]["labels"] for _, pod in (*rendered.pods(), *agent_pods(rendered))]


def _selectors(item: Object) -> list[dict[str, str]]:
    """Every label selector by which an object chooses pods of this release."""
    spec = item["spec"]
    match item["kind"]:
        case "Service":
            return [spec["selector"]]
        case "Deployment" | "StatefulSet" | "PodDisruptionBudget" | "PodMonitor" | "ServiceMonitor":
            return [spec["selector"]["matchLabels"]]
        case "NetworkPolicy":
            peers = [peer for rule in spec.get("ingress", []) for peer in rule.get("from", [])]
            peers += [peer for rule in spec.get("egress", []) for peer in rule.get("to", [])]
            own = [peer["podSelector"] for peer in peers if peer.keys() == {"podSelector"}]
            return [item["matchLabels"] for item in [spec["podSelector"], *own]]
    return []


_SELECTING = ("Service", "Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor", "NetworkPolicy")


@pytest.mark.parametrize("name", MATRIX)
def test_every_selector_finds_pods_of_the_release(name: str) -> None:
    rendered = render(MATRIX[name])
    pods = _pod_labels(rendered)
    for item in rendered.of(*_SELECTING):
        if item["metadata"]["name"].startswith("toolcrib-tools-"):
            continue  # of `networkPolicy.tools`: the pods of somebody's tools, in their namespace
        for selector in _selectors(item):
            assert any(_matches(selector, labels) for labels in pods), f"{named(item)}: {selector}"
            # the operator, of which there is one a cluster, knows no release
            ours = {"app.kubernetes.io/instance": "toolcrib"}.items() <= selector.items()
            assert ours or selector["app.kubernetes.io/managed-by"] == "toolcrib-operator", named(item)


@pytest.mark.parametrize("name", MATRIX)
def test_a_component_selects_its_own_pods_alone(name: str) -> None:
    rendered = render(MATRIX[name])
    for item in rendered.of("Service", "Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor"):
        component = item["metadata"]["labels"].get("app.kubernetes.io/component")
        found = [labels for labels in _pod_labels(rendered) if _matches(_selectors(item)[0], labels)]
        assert {labels["app.kubernetes.io/component"] for labels in found} == {component}, named(item)


def test_an_agent_with_a_task_is_a_job_and_one_without_a_deployment() -> None:
    made = {item["kind"]: item for item in agent_workloads(render(MATRIX["agents"]))}
    assert made.keys() == {"Job", "Deployment"}
    assert made["Deployment"]["metadata"]["name"] == "agent-reader"
    assert made["Deployment"]["spec"]["replicas"] == 2
    accounts = [item["spec"]["template"]["spec"]["serviceAccountName"] for item in made.values()]
    assert accounts == ["toolcrib-agent-safecracker", "toolcrib-agent-reader"]


def test_an_agent_and_its_account_are_where_it_says_or_in_the_first_namespace() -> None:
    rendered = render(MATRIX["agents"])
    found = [
        (item["metadata"]["name"], item["metadata"]["namespace"])
        for item in rendered.of("Agent", "ServiceAccount")
        if item["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"
    ]
    assert set(found) == {
        ("safecracker", "team-b"), ("reader", "team-c"),
        ("toolcrib-agent-safecracker", "team-b"), ("toolcrib-agent-reader", "team-c"),
    }  # fmt: skip


@pytest.mark.parametrize("known", [True, False], ids=["upgrade", "first install"])
def test_agents_follow_the_kind_where_the_cluster_does_not_have_it_yet(known: bool) -> None:
    """Helm looks every kind up before it creates anything: an ordinary object of a new kind would stop the install."""
    there = ["toolcrib.dev/v1alpha1/Agent"] if known else []
    hooks = [
        (item["metadata"]["annotations"].get("helm.sh/hook"), "run" in item["spec"])
        for item in render(MATRIX["agents"] | {"commonAnnotations": {"a": "b"}}, api_versions=there).of(
            "Agent"
        )
    ]
    last, first = ("pre-delete", False), ("post-install,post-upgrade,post-rollback", True)
    assert hooks == ([(None, True)] * 2 if known else [first, last] * 2)


@pytest.mark.parametrize("name", MATRIX)
def test_service_ports_are_ports_of_the_pods_they_select(name: str) -> None:
    rendered = render(MATRIX[name])
    for service in rendered.of("Service"):
        for _, pod in rendered.pods():
            if not _matches(service["spec"]["selector"], pod["metadata"]["labels"]):
                continue
            ports = [port for item in containers(pod) for port in item.get("ports", [])]
            known = {port["name"] for port in ports} | {port["containerPort"] for port in ports}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= known, named(service)


@pytest.mark.parametrize("name", _WIDE)
def test_every_object_carries_the_usual_labels_with_valid_values(name: str) -> None:
    for item in render(MATRIX[name], release=_LONG).objects:
        if item["kind"] in _OF_CRDS:
            continue  # as in crds/, to the letter
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == _LONG, named(item)
        assert labels["app.kubernetes.io/managed-by"] == "Helm", named(item)
        for key, value in labels.items():
            assert _LABEL.fullmatch(value), f"{named(item)}: {key}={value}"


def test_selectors_hold_nothing_that_a_user_or_a_version_changes() -> None:
    """The selector of a Deployment cannot be changed: an upgrade would fail."""
    for item in render(MATRIX["extras"]).of(*_SELECTING):
        for selector in _selectors(item):
            assert selector.keys() <= _CHARTS_OWN or selector.keys() == _OPERATORS_OWN, named(item)


def test_common_labels_and_annotations_are_on_every_object() -> None:
    for item in render(MATRIX["extras"]).objects:
        if item["kind"] not in _OF_CRDS:
            assert item["metadata"]["labels"]["example.com/owner"] == "platform", named(item)
        assert item["metadata"]["annotations"]["example.com/ticket"] == "42", named(item)
    assert all(labels["example.com/owner"] == "platform" for labels in _pod_labels(render(MATRIX["extras"])))


def test_a_label_may_be_set_for_all_and_otherwise_for_one() -> None:
    values = {
        "commonLabels": {"team": "platform"},
        "registry": {
            "podLabels": {"team": "tools"},
            "service": {"labels": {"team": "tools"}},
        },
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"team": "tools"}}},
    }
    rendered = render(values)
    pod = rendered.one("Deployment", "toolcrib-registry")["spec"]["template"]
    monitor = rendered.one("ServiceMonitor", "toolcrib-registry")
    service = rendered.one("Service", "toolcrib-registry")
    assert {item["metadata"]["labels"]["team"] for item in (pod, monitor, service)} == {"tools"}


@pytest.mark.parametrize("name", _WIDE)
def test_names_are_short_enough_for_whatever_is_made_of_them(name: str) -> None:
    """A Service's name is a DNS label; a StatefulSet's gets `-0` and, as a label of its pods, a revision's hash."""
    for item in render(MATRIX[name], release=_LONG).objects:
        text = item["metadata"]["name"]
        limit = {"StatefulSet": 52, "Deployment": 57}.get(item["kind"], 63)
        assert len(text) <= limit, f"{named(item)}: {len(text)} characters"
        assert not text.endswith("-"), named(item)


def test_a_release_named_after_the_chart_does_not_say_it_twice() -> None:
    assert render(release="toolcrib").find("Deployment", "toolcrib-registry")
    assert render(release="my-toolcrib").find("Deployment", "my-toolcrib-registry")
    assert render(release="tools").find("Deployment", "tools-toolcrib-registry")
    assert render({"fullnameOverride": "crib"}).find("Deployment", "crib-registry")


@pytest.mark.parametrize("release", ["toolcrib.v1", "a.b.toolcrib", "x" * 38 + ".v1"])
def test_a_release_with_dots_in_its_name_gives_names_without(release: str) -> None:
    """A Service's name is one label of DNS."""
    for item in render(MATRIX["agents"], release=release).objects:
        if item["kind"] in ("Service", "Deployment", "StatefulSet"):
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", item["metadata"]["name"]), named(item)


def test_a_name_that_would_begin_with_a_digit_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        AssertionError, match=r"1-toolcrib-registry is not a valid name .* set fullnameOverride"
    ):
        render(release="1")
    assert render({"fullnameOverride": "one"}, release="1").find("Deployment", "one-registry")


def test_objects_are_named_for_their_release() -> None:
    """A cluster takes one release (test_upgrade); what another left behind is still not this one's to overwrite."""
    first, second = render(release="blue", namespace="one"), render(release="green", namespace="one")
    shared = {named(item) for item in first.objects} & {named(item) for item in second.objects}
    assert {name.partition("/")[0] for name in shared} == set(_OF_CRDS)


@pytest.mark.parametrize("name", _WIDE)
def test_objects_outside_the_release_namespace_are_named_for_the_release(name: str) -> None:
    rendered = render(MATRIX[name], release="blue", namespace="one")
    chosen = MATRIX[name].get("runtimeRegistration", {}).get("namespace", "toolcrib-runtime")
    for item in rendered.objects:
        elsewhere = item["metadata"].get("namespace", "one") != "one" or item["kind"] in _CLUSTER_SCOPED
        if elsewhere and item["kind"] not in (*_OF_CRDS, "Agent") and named(item) != f"Namespace/{chosen}":
            assert item["metadata"]["name"].startswith("blue-toolcrib"), named(item)


@pytest.mark.parametrize("name", _WIDE)
def test_nothing_in_a_release_points_into_another_namespace_by_accident(name: str) -> None:
    """A name that was written out instead of taken from the release would show here."""
    text = json.dumps(
        [item for item in render(MATRIX[name], release="blue", namespace="one").objects if _ours(item)]
    )
    assert "toolcrib-system" not in text
    # as the operator marks what it runs
    text = text.replace('"app.kubernetes.io/managed-by": "toolcrib-operator"', "")
    assert not re.search(r'"toolcrib-(operator|registry|weaviate|ca)\b', text)


def _ours(item: dict[str, Any]) -> bool:
    # what has to do with monitoring knows jobs, which are called alike in every release
    foreign = ("CustomResourceDefinition", "PrometheusRule", "PodMonitor", "ServiceMonitor")
    words = ("-dashboard-", "-rules", "-prometheus")
    return item["kind"] not in foreign and not any(word in named(item) for word in words)
