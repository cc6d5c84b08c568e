"""How agents reach the registry, and how many of it there are: Services, Ingress, HTTPRoute, autoscaling, budgets."""

import json
from typing import Any

import pytest
import yaml

from chart import Rendered, named, refused, render
from chart_values import MATRIX

pytestmark = pytest.mark.real

_HOST = "toolcrib.example.com"


def _settings(rendered: Rendered) -> dict[str, Any]:
    text = rendered.one("ConfigMap", "toolcrib-registry")["data"]["registry.yaml"]
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


@pytest.mark.parametrize("name", MATRIX)
def test_nothing_leads_from_outside_to_the_admin_listener_or_to_metrics(name: str) -> None:
    rendered = render(MATRIX[name])
    for item in rendered.of("Ingress", "HTTPRoute", "BackendTLSPolicy"):
        assert "admin" not in json.dumps(item["spec"]), named(item)
        assert "metrics" not in json.dumps(item["spec"]), named(item)
    for service in rendered.of("Service"):
        ports = {port["targetPort"] for port in service["spec"]["ports"]}
        assert ports <= {"admin", "metrics"} or not ports & {"admin", "metrics"}, named(service)
        if ports & {"admin", "metrics"}:
            assert service["spec"]["clusterIP"] == "None", "headless: no node port, no load balancer"


def test_the_admin_service_shows_every_replica_and_the_agents_service_ready_ones() -> None:
    """A replica becomes ready by being published to."""
    rendered = render()
    assert rendered.one("Service", "toolcrib-registry-admin")["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in rendered.one("Service", "toolcrib-registry")["spec"]


def test_an_ingress_leads_to_the_agents_listener_over_tls() -> None:
    ingress = render(MATRIX["ingress"]).one("Ingress", "toolcrib-registry")
    rule = ingress["spec"]["rules"][0]
    assert rule["host"] == _HOST
    assert rule["http"]["paths"][0]["backend"]["service"] == {
        "name": "toolcrib-registry",
        "port": {"name": "agents"},
    }
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"


def test_an_ingress_speaks_http_to_a_registry_without_tls_and_a_users_word_counts() -> None:
    plain = render(MATRIX["ingress"] | {"tls": {"mode": "off"}}).one("Ingress", "toolcrib-registry")
    assert "annotations" not in plain["metadata"]
    key = "nginx.ingress.kubernetes.io/backend-protocol"
    own = {"registry": {"publicHost": _HOST, "ingress": {"enabled": True, "annotations": {key: "GRPCS"}}}}
    assert render(own).one("Ingress", "toolcrib-registry")["metadata"]["annotations"][key] == "GRPCS"


def test_several_hosts_are_several_rules_and_the_registry_answers_under_each() -> None:
    hosts = ["a.example.com", "b.example.com"]
    rendered = render({"registry": {"ingress": {"enabled": True, "hosts": hosts}}})
    rules = rendered.one("Ingress", "toolcrib-registry")["spec"]["rules"]
    assert [rule["host"] for rule in rules] == hosts
    assert set(hosts) <= set(_settings(rendered)["allowed_hosts"])


def test_a_route_leads_to_the_agents_listener_and_the_gateway_verifies_it() -> None:
    rendered = render(MATRIX["gateway"])
    route = rendered.one("HTTPRoute", "toolcrib-registry")["spec"]
    assert route["hostnames"] == [_HOST]
    assert route["rules"][0]["backendRefs"] == [{"name": "toolcrib-registry", "port": 443}]
    policy = rendered.one("BackendTLSPolicy", "toolcrib-registry")["spec"]
    assert policy["targetRefs"] == [{"group": "", "kind": "Service", "name": "toolcrib-registry"}]
    assert policy["validation"]["hostname"] == "toolcrib-registry.toolcrib-system.svc"
    authority = policy["validation"]["caCertificateRefs"][0]["name"]
    assert "ca.crt" in rendered.one("ConfigMap", authority)["data"]


def test_a_gateway_needs_the_authority_in_a_configmap() -> None:
    values = MATRIX["gateway"] | {"tls": {"mode": "certManager"}}
    assert "tls.ca.bundle, or caConfigMap" in refused(values)
    route = MATRIX["gateway"]["registry"]["httpRoute"] | {"backendTLSPolicy": {"caConfigMap": "bundle"}}
    values["registry"] = MATRIX["gateway"]["registry"] | {"httpRoute": route}
    policy = render(values).one("BackendTLSPolicy", "toolcrib-registry")["spec"]
    assert policy["validation"]["caCertificateRefs"][0]["name"] == "bundle"


def test_without_tls_a_route_needs_no_policy_and_finds_the_other_port() -> None:
    rendered = render(MATRIX["gateway"] | {"tls": {"mode": "off"}})
    assert not rendered.of("BackendTLSPolicy")
    assert rendered.one("HTTPRoute", "toolcrib-registry")["spec"]["rules"][0]["backendRefs"][0]["port"] == 80


def test_discovery_names_the_public_host_and_requests_may_come_under_it() -> None:
    settings = _settings(render(MATRIX["ingress"]))
    assert (settings["public_host"], settings["public_port"]) == (_HOST, 443)
    assert _HOST in settings["allowed_hosts"]
    inside = _settings(render())
    assert (inside["public_host"], inside["public_port"]) == ("toolcrib-registry.toolcrib-system.svc", 443)


def test_an_autoscaler_chooses_the_number_of_pods_and_the_deployment_says_none() -> None:
    rendered = render(MATRIX["autoscaled"])
    assert "replicas" not in rendered.one("Deployment", "toolcrib-registry")["spec"]
    scaler = rendered.one("HorizontalPodAutoscaler", "toolcrib-registry")["spec"]
    assert scaler["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "toolcrib-registry",
    }
    targets = {
        item["resource"]["name"]: item["resource"]["target"]["averageUtilization"]
        for item in scaler["metrics"]
    }
    assert targets == {"cpu": 70, "memory": 80}
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 9)
    down = scaler["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] >= 300
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}], "each has to drain"
    assert not render().of("HorizontalPodAutoscaler")


def test_budgets_leave_room_to_drain_a_node() -> None:
    budgets = {item["metadata"]["name"]: item["spec"] for item in render().of("PodDisruptionBudget")}
    assert set(budgets) == {"toolcrib-operator", "toolcrib-registry"}
    for budget in budgets.values():
        assert budget["maxUnavailable"] == 1
        assert "minAvailable" not in budget
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("name", ["single", "embedded", "bare"])
def test_a_single_pod_has_no_budget_that_would_block_the_drain_of_its_node(name: str) -> None:
    names = {item["metadata"]["name"] for item in render(MATRIX[name]).of("PodDisruptionBudget")}
    assert "toolcrib-registry" not in names


@pytest.mark.parametrize("least", [2, "100%"])
def test_a_budget_that_would_block_every_drain_is_refused(least: object) -> None:
    assert "registry.pdb.minAvailable" in refused({"registry": {"pdb": {"minAvailable": least}}})


def test_a_minimum_replaces_the_maximum() -> None:
    budget = render({"registry": {"replicas": 3, "pdb": {"minAvailable": 2}}}).one(
        "PodDisruptionBudget", "toolcrib-registry"
    )
    assert budget["spec"]["minAvailable"] == 2
    assert "maxUnavailable" not in budget["spec"]
