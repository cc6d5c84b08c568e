"""Values that contradict each other are refused before anything reaches the cluster, with what to do."""

from typing import Any

import pytest

from chart import refused, render
from chart_values import MATRIX

pytestmark = pytest.mark.real

Values = dict[str, Any]
_HOST = {"publicHost": "toolcrib.example.com"}


def _env(component: str, name: str) -> Values:
    return {component: {"extraEnv": [{"name": name, "value": "x"}]}}


_CONTRADICTIONS: dict[str, tuple[Values, str]] = {
    "no policies, and an operator that wants them": (
        {"admission": {"install": False}},
        "so no new grant would take effect: set admission.install=true, or operator.admission=external",
    ),
    "embedded with replicas": (
        {"profile": "embedded", "registry": {"replicas": 2}},
        "leave it unset, or set profile=weaviate",
    ),
    "embedded with an autoscaler": (
        {"profile": "embedded", "registry": {"autoscaling": {"enabled": True}}},
        "set profile=weaviate, or switch it off",
    ),
    "embedded with a Weaviate": (
        {"profile": "embedded", "weaviate": {"mode": "external", "external": {"host": "w"}}},
        "set profile=weaviate, or leave weaviate out",
    ),
    "external without a host": ({"weaviate": {"mode": "external"}}, "needs weaviate.external.host"),
    "bundled with a host": (
        {"weaviate": {"external": {"host": "w"}}},
        "set weaviate.mode=external, or clear the host",
    ),
    "bundled with copies": ({"weaviate": {"replicationFactor": 3}}, "set weaviate.mode=external"),
    "an authority for no TLS": (
        {
            "weaviate": {
                "mode": "external",
                "external": {"host": "w", "tls": False, "caSecret": {"name": "ca"}},
            }
        },
        "needs weaviate.external.tls=true",
    ),
    "replicas and an autoscaler": (
        {"registry": {"replicas": 3, "autoscaling": {"enabled": True}}},
        "leave registry.replicas unset",
    ),
    "fewest above most": (
        {"registry": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        "minReplicas is above maxReplicas",
    ),
    "nothing to scale by": (
        {"registry": {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": None}}},
        "nothing to scale by",
    ),
    "a share of nothing": (
        {"registry": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}},
        "registry.resources.requests.cpu, which is not set",
    ),
    "killed while it drains": (
        {"registry": {"drainSeconds": 60, "terminationGracePeriodSeconds": 30}},
        "would be killed while it drains",
    ),
    "existing without Secrets": ({"tls": {"mode": "existing"}}, "tls.existing.registrySecret"),
    "existing without Weaviate's": (
        {"tls": {"mode": "existing", "existing": {"registrySecret": "a"}}},
        "tls.existing.weaviateSecret",
    ),
    "existing without an authority": (
        {"tls": {"mode": "existing", "existing": {"registrySecret": "a", "weaviateSecret": "b"}}},
        "tls.ca.configMap or tls.ca.bundle",
    ),
    "two authorities": (
        {"tls": {"mode": "certManager", "ca": {"configMap": "a", "bundle": "-----BEGIN CERTIFICATE-----"}}},
        "keep one",
    ),
    "an authority beside the chart's": ({"tls": {"ca": {"configMap": "a"}}}, "not for generate"),
    "trust without TLS": ({"tls": {"mode": "off", "trustNamespaces": ["a"]}}, "there is nothing to trust"),
    "trust in the unknown": ({"tls": {"mode": "certManager", "trustNamespaces": ["a"]}}, "trust-manager"),
    "always new certificates": (
        {"tls": {"generate": {"certificateDays": 100, "renewBeforeDays": 100}}},
        "every upgrade would make new certificates",
    ),
    "longer than the authority": (
        {"tls": {"generate": {"caDays": 700}}},
        "certificates would outlive their authority",
    ),
    "an ingress without a host": ({"registry": {"ingress": {"enabled": True}}}, "registry.ingress.hosts"),
    "a route without a gateway": (
        {"registry": _HOST | {"httpRoute": {"enabled": True}}},
        "registry.httpRoute.parentRefs",
    ),
    "a route without a host": (
        {"registry": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}},
        "registry.httpRoute.hostnames",
    ),
    "a resource's URL for every path": (
        {
            "registry": {"publicUrl": "https://crib.example.com"},
            "issuers": [
                {"issuer": "https://l.example.com", "audience": ["toolcrib", "https://crib.example.com/mcp"]}
            ],
        },
        "issuers[0].audience contains https://crib.example.com/mcp: it is accepted on that path already",
    ),
    "a login at a stranger's": (
        {"registry": {"oauth": {"authorizationServers": ["https://other.example.com"]}}},
        "https://other.example.com is not the issuer of an entry of issuers",
    ),
    "a node port of no node": (
        {"registry": {"service": {"nodePort": 30443}}},
        "type NodePort or LoadBalancer",
    ),
    "an endpoint without an address": (
        {"registry": {"embedder": {"kind": "openai"}}},
        "needs baseUrl, model and dimension",
    ),
    "a model without a folder": (
        {"registry": {"embedder": {"kind": "onnx"}}},
        "registry.embedder.kind onnx needs path",
    ),
    "agents who could publish": ({"registry": {"audience": "toolcrib-admin"}}, "every agent could publish"),
    "an issuer twice": ({"issuers": MATRIX["ingress"]["issuers"] * 2}, "is listed twice: keep one entry"),
    "an agent twice": (
        {"agents": {"items": MATRIX["agents"]["agents"]["items"][:1] * 2}},
        "is used twice: rename one",
    ),
    "an agent without a model": (
        {"agents": {"items": [{"name": "a", "task": "do"}]}},
        "set model.url and model.name",
    ),
    "pods of an agent whose task is run once": (
        {"agents": {"items": [MATRIX["agents"]["agents"]["items"][0] | {"replicas": 2}]}},
        "remove replicas",
    ),
    "a key for no endpoint": (
        {"agents": {"items": [{"name": "a", "model": {"apiKeySecret": {"name": "key"}}}]}},
        "set the endpoint that the key is for",
    ),
    "agents in no namespace": (
        {"agents": {"items": [{"name": "a"}]}},
        "so toolcrib-system, where this release keeps its own keys, is a poor choice",
    ),
    "an agent where none are run": (
        {"agents": {"items": [{"name": "a", "namespace": "elsewhere"}], "namespaces": ["team-a"]}},
        "agents.items[0].namespace elsewhere is not one of agents.namespaces",
    ),
    "agents as a list, as they were": ({"agents": [{"name": "a"}]}, "write its entries under agents.items"),
    "what is set for all agents at once": (
        {"agents": {"items": [{"name": "a", "nodeSelector": {"a": "b"}}]}},
        "agents.items[0].nodeSelector is set for all agents at once: move it to agents.pod.nodeSelector",
    ),
    "an image for one agent": (
        {"agents": {"items": [{"name": "a", "image": {"tag": "1"}}]}},
        "move it to agents.image",
    ),
    "a container beside an agent": (
        {"agents": {"items": [{"name": "a", "extraContainers": [{"name": "b"}]}]}},
        "agents.items[0].extraContainers was removed",
    ),
    "agents that could not verify the registry": (
        MATRIX["cert-manager"] | {"agents": {"namespaces": ["team-a"]}},
        "agents need a ConfigMap with the authority's certificates",
    ),
    "registrations at home": (
        {"runtimeRegistration": {"enabled": True, "namespace": "toolcrib-system"}},
        "belong in another",
    ),
    "secrets in a ConfigMap": (
        {"registry": {"config": {"store": {"api_key": "s"}}}},
        "registry.config.store.api_key: this would put a secret into a ConfigMap: use a Secret, as in weaviate.apiKey",
    ),
    "secrets in a list of a ConfigMap": (
        {"registry": {"config": {"issuers": [{"clientSecret": "s"}]}}},
        "registry.config.issuers[0].clientSecret",
    ),
    "a scrape without an authority": (
        {"tls": {"mode": "certManager"}, "monitoring": {"scrapeConfig": {"enabled": True}}},
        "set tls.ca.bundle",
    ),
    "a scrape that does not know the authority": (
        MATRIX["existing-tls"] | {"monitoring": {"scrapeConfig": {"enabled": True}}},
        "set tls.ca.bundle",
    ),
    "a variable of the operator twice": (
        {"operator": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
        "operator.extraEnv: A would be set twice: remove it",
    ),
    "the registry's variable": (_env("registry", "TOOLCRIB_REPLICA"), "registry.extraEnv: TOOLCRIB_REPLICA"),
    "Weaviate's variable": (_env("weaviate", "LOG_LEVEL"), "weaviate.extraEnv: LOG_LEVEL"),
    "an agent's variable": (
        {"agents": {"pod": {"extraEnv": [{"name": "TOOLCRIB_URL", "value": "u"}]}}},
        "agents.pod.extraEnv: TOOLCRIB_URL",
    ),
    "a label of ours for all": (
        {"commonLabels": {"app.kubernetes.io/part-of": "platform"}},
        "commonLabels: app.kubernetes.io/part-of is the chart's own label: leave it out",
    ),
    "a label of ours for pods": (
        {"registry": {"podLabels": {"app.kubernetes.io/component": "tools"}}},
        "registry.podLabels: app.kubernetes.io/component",
    ),
    "a label of ours for a Service": (
        {"registry": {"service": {"labels": {"app.kubernetes.io/name": "tools"}}}},
        "registry.service.labels: app.kubernetes.io/name",
    ),
    "a label of ours for an agent": (
        {"agents": {"pod": {"podLabels": {"toolcrib.dev/agent": "b"}}}},
        "agents.pod.podLabels: toolcrib.dev/agent",
    ),
    "nothing may be away": (
        {"registry": {"pdb": {"maxUnavailable": 0}}},
        "set at least 1, or pdb.enabled=false",
    ),
    "no share may be away": (
        {"operator": {"pdb": {"maxUnavailable": "0%"}}},
        "operator.pdb.maxUnavailable lets no pod be evicted",
    ),
    "nobody's pods may scrape": (
        {"metrics": {"from": {"pods": {"app": "prometheus"}}}},
        "set metrics.from.namespaces too",
    ),
    "the former word for who may scrape": (
        {"networkPolicy": {"monitoringNamespaces": {}}},
        "name the namespaces that may scrape in metrics.from.namespaces",
    ),
    "no node could be drained": ({"operator": {"pdb": {"minAvailable": 2}}}, "so no node could be drained"),
}


@pytest.mark.parametrize("name", _CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused_with_the_remedy(name: str) -> None:
    values, remedy = _CONTRADICTIONS[name]
    assert remedy in refused(values)


def test_what_only_looks_like_a_secret_or_a_variable_of_ours_is_taken() -> None:
    """Names of files and of Services, and variables that the chart does not set as the values are."""
    config = {"store": {"api_key_file": "/etc/key"}, "backends": {"team/my-token": "127.0.0.1:80"}}
    assert render({"registry": {"config": config}}).objects


def test_a_registry_that_is_switched_off_needs_no_other_budget() -> None:
    values = {"registry": {"replicas": 0, "pdb": {"minAvailable": 1}}, "operator": {"replicas": 0}}
    assert not render(values).of("PodDisruptionBudget")


def test_all_contradictions_are_named_at_once() -> None:
    said = refused({"tls": {"mode": "existing"}, "weaviate": {"replicationFactor": 3}})
    for remedy in ("tls.existing.registrySecret", "tls.ca.configMap", "weaviate.replicationFactor"):
        assert remedy in said


def test_each_of_the_sets_that_are_tested_is_taken() -> None:
    assert all(render(values).objects for values in MATRIX.values())
