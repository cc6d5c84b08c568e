"""The flows that NetworkPolicies let pass. Nothing enforces them in these tests: they are read, not tried."""

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from chart import CHART, Object, Rendered, helm, render
from chart_agents import agent_pods
from chart_values import MATRIX
from realparts.apiserver import ApiServer

pytestmark = pytest.mark.real


def _policy(rendered: Rendered, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = rendered.one("NetworkPolicy", f"toolcrib-{name}")["spec"]
    return spec


def _component(name: str) -> Object:
    return {
        "podSelector": {
            "matchLabels": {
                "app.kubernetes.io/name": "toolcrib",
                "app.kubernetes.io/instance": "toolcrib",
                **({"app.kubernetes.io/component": name} if name else {}),
            }
        }
    }


def _ports(rule: Object) -> list[Any]:
    return [port["port"] for port in rule.get("ports", [])]


def _reaches(rules: list[Object], address: str) -> bool:
    """Whether some rule lets packets go to this address."""
    wanted = ipaddress.ip_address(address)
    for block in (peer["ipBlock"] for rule in rules for peer in rule.get("to", []) if "ipBlock" in peer):
        network = ipaddress.ip_network(block["cidr"])
        outside = [ipaddress.ip_network(text) for text in block.get("except", [])]
        if wanted in network and not any(wanted in hole for hole in outside):
            return True
    return False


def test_a_pod_of_the_release_may_do_nothing_that_is_not_named() -> None:
    spec = _policy(render(), "default-deny")
    assert spec["podSelector"] == _component("")["podSelector"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    assert "egress" not in spec


def test_every_component_has_a_policy() -> None:
    names = {item["metadata"]["name"] for item in render(MATRIX["agents"]).of("NetworkPolicy")}
    assert names >= {
        f"toolcrib-{name}" for name in ("operator", "registry", "weaviate", "agents", "dns", "default-deny")
    }
    assert "toolcrib-weaviate" not in {
        item["metadata"]["name"] for item in render(MATRIX["external-weaviate"]).of("NetworkPolicy")
    }


@pytest.mark.parametrize("name", MATRIX)
def test_no_rule_means_everybody_by_being_empty(name: str) -> None:
    """An absent or empty `from` or `to` lets all pass."""
    for item in render(MATRIX[name]).of("NetworkPolicy"):
        for rule in item["spec"].get("ingress", []):
            assert rule.get("from"), item["metadata"]["name"]
        for rule in item["spec"].get("egress", []):
            assert rule.get("to"), item["metadata"]["name"]


def test_a_weaviate_of_ones_own_is_reached_wherever_it_is_but_not_where_clouds_keep_credentials() -> None:
    rules = _policy(render(MATRIX["external-weaviate"]), "registry")["egress"]
    (rule,) = [rule for rule in rules if _ports(rule) == [443, 50051]]
    assert {"namespaceSelector": {}} in rule["to"], "to some network plugins a pod is no address"
    assert _reaches([rule], "8.8.8.8")
    assert _reaches([rule], "10.1.2.3")
    assert _reaches([rule], "fd12::1")
    for metadata in ("169.254.169.254", "fd00:ec2::254", "fe80::1"):
        assert not _reaches([rule], metadata)


def test_weaviate_hears_the_registry_alone_and_calls_nobody() -> None:
    spec = _policy(render(), "weaviate")
    assert [rule["from"] for rule in spec["ingress"]] == [[_component("registry")]]
    assert _ports(spec["ingress"][0]) == ["http", "grpc"]
    assert "egress" not in spec


@pytest.mark.parametrize("name", MATRIX)
def test_the_admin_listener_hears_the_operator_alone(name: str) -> None:
    for policy in render(MATRIX[name]).of("NetworkPolicy"):
        rules = [r for r in policy["spec"].get("ingress", []) if "admin" in _ports(r) or not _ports(r)]
        if policy["metadata"]["name"] == "toolcrib-registry":
            (peer,) = (peer for rule in rules for peer in rule["from"])
            assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
            assert "namespaceSelector" not in peer
        else:
            assert policy["metadata"]["name"] == "toolcrib-test" or rules == []


def _scrapers(values: dict[str, Any]) -> dict[str, list[Any]]:
    """Who may reach each port of metrics."""
    found: dict[str, list[Any]] = {}
    for name in ("registry", "operator", "agents"):
        rules = _policy(render({"agents": MATRIX["agents"]["agents"], **values}), name).get("ingress", [])
        found[name] = [peer for rule in rules if "metrics" in _ports(rule) for peer in rule["from"]]
    return found


def test_an_upgrade_can_take_the_former_word_for_who_may_scrape_out_of_the_values_it_reuses() -> None:
    assert _scrapers({"networkPolicy": {"monitoringNamespaces": None}})["registry"] == []


def test_nobody_may_scrape_until_it_is_said_who() -> None:
    assert _scrapers({}) == {"registry": [], "operator": [], "agents": []}


@pytest.mark.parametrize(
    ("given", "peer"),
    [
        (
            {"namespaces": ["monitoring", "ops"], "pods": {"app": "prometheus"}},
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "In",
                            "values": ["monitoring", "ops"],
                        }
                    ]
                },
                "podSelector": {"matchLabels": {"app": "prometheus"}},
            },
        ),
        ({"namespaces": ["*"]}, {"namespaceSelector": {}}),
    ],
    ids=["namespaces and pods", "everybody"],
)
def test_metrics_are_scraped_by_those_who_were_named_on_every_part(given: Object, peer: Object) -> None:
    assert _scrapers({"metrics": {"from": given}}) == {
        key: [peer] for key in ("registry", "operator", "agents")
    }


def test_the_agents_listener_hears_the_namespaces_that_were_chosen() -> None:
    spec = _policy(render(MATRIX["narrow-network"]), "registry")
    admitted = [peer for rule in spec["ingress"] if _ports(rule) == ["agents"] for peer in rule["from"]]
    assert {"namespaceSelector": {"matchLabels": {"agents": "yes"}}} in admitted
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}} in admitted
    assert {"namespaceSelector": {}} not in admitted


@pytest.mark.parametrize("component", ["operator", "registry", "agents", "hook"])
def test_the_public_internet_is_closed_unless_something_needs_it(component: str) -> None:
    rules = _policy(render(MATRIX["narrow-network"]), component)["egress"]
    assert not _reaches(rules, "8.8.8.8")
    if component != "agents":
        assert not _reaches(_policy(render(), component)["egress"], "8.8.8.8")


@pytest.mark.parametrize(
    "values",
    [
        {"egress": {"allow": ["api.example.com"]}},
        {"issuers": MATRIX["ingress"]["issuers"]},
        {"registry": {"embedder": MATRIX["extras"]["registry"]["embedder"]}},
    ],
    ids=["allowed hosts", "issuers", "embedder"],
)
def test_the_registry_reaches_public_addresses_where_its_settings_name_some(values: dict[str, Any]) -> None:
    rules = _policy(render(values), "registry")["egress"]
    assert _reaches(rules, "8.8.8.8")
    assert not _reaches(rules, "169.254.169.254"), "the metadata service of clouds"


def test_the_registry_reaches_tools_in_every_namespace_or_in_those_that_were_chosen() -> None:
    assert {"to": [{"namespaceSelector": {}}]} in _policy(render(), "registry")["egress"]
    chosen = {
        "networkPolicy": {
            "toolEgress": [{"namespaceSelector": {"matchLabels": {"tools": "yes"}}}],
            "toolPorts": [8000],
        }
    }
    rules = _policy(render(chosen), "registry")["egress"]
    assert {"to": [{"namespaceSelector": {}}]} not in rules
    assert [_ports(rule) for rule in rules if rule.get("to") == chosen["networkPolicy"]["toolEgress"]] == [
        [8000]
    ]


@pytest.mark.parametrize("name", ["default", "narrow-network"])
def test_the_registry_reaches_the_tool_of_the_releases_test_wherever_else_tools_are(name: str) -> None:
    rendered = render(MATRIX[name])
    rules = _policy(rendered, "registry")["egress"]
    (serving,) = rendered.one("Pod", "toolcrib-test")["spec"]["initContainers"]
    port = serving["ports"][0]["containerPort"]
    assert [_ports(rule) for rule in rules if rule.get("to") == [_component("test")]] == [[port]]
    untested = render(MATRIX[name] | {"helmTest": {"enabled": False}})
    assert not [
        rule for rule in _policy(untested, "registry")["egress"] if rule.get("to") == [_component("test")]
    ]


def test_agents_reach_their_models_where_they_are() -> None:
    inside = _policy(render(MATRIX["narrow-network"]), "agents")["egress"]
    assert {
        "to": [{"namespaceSelector": {"matchLabels": {"models": "yes"}}}],
        "ports": [{"protocol": "TCP", "port": 8000}],
    } in inside
    assert _reaches(_policy(render(MATRIX["agents"]), "agents")["egress"], "8.8.8.8")


def test_the_api_server_is_reached_by_address() -> None:
    assert _reaches(_policy(render(), "operator")["egress"], "10.96.0.1")
    narrow = _policy(render(MATRIX["narrow-network"]), "operator")["egress"]
    assert _reaches(narrow, "192.0.2.10")
    assert not _reaches(narrow, "10.96.0.1")


@pytest.fixture
def api_server_elsewhere(apiserver: ApiServer) -> Iterator[int]:
    """The port at which the cluster says its API server is; this one, on loopback, says nothing itself."""
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    said = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.20"]}],
        "ports": [{"name": "https", "port": 16443, "protocol": "TCP"}],
    }
    apiserver.client.post(slices, json=said).raise_for_status()
    yield 16443
    apiserver.client.delete(f"{slices}/kubernetes").raise_for_status()


@pytest.mark.parametrize(("chosen", "reached"), [([], "192.0.2.20"), (["192.0.2.10/32"], "192.0.2.10")])
def test_what_the_cluster_says_of_its_api_server_is_open(
    apiserver: ApiServer, namespace: str, api_server_elsewhere: int, chosen: list[str], reached: str
) -> None:
    """Minikube has port 8443, MicroK8s 16443. Nothing is installed: helm asks, and says what it would make."""
    done = helm(
        *("install", "toolcrib", str(CHART), "-n", namespace, "--dry-run=server", "--no-hooks"),
        *("--set-json", f"networkPolicy.apiServerCIDRs={json.dumps(chosen)}", "--set", "crds.install=false"),
        "--disable-openapi-validation",
        kubeconfig=apiserver.admin_kubeconfig,
    )
    assert done.returncode == 0, done.stderr
    manifest = done.stdout.partition("MANIFEST:\n")[2].partition("\nNOTES:")[0]
    rendered = Rendered([item for item in yaml.safe_load_all(manifest) if item])
    for component in ("operator", "registry", "hook"):
        rules = _policy(rendered, component)["egress"]
        open_to = [rule for rule in rules if _ports(rule) == [443, 6443, api_server_elsewhere]]
        assert _reaches(open_to, reached), component


def test_pods_of_agents_reach_the_registry_from_each_of_their_namespaces_and_nothing_else_of_the_cluster() -> (
    None
):
    rendered = render(
        MATRIX["agents"] | {"networkPolicy": {"agentNamespaces": {"matchLabels": {"no": "body"}}}}
    )
    policies = [
        item for item in rendered.of("NetworkPolicy") if item["metadata"]["name"] == "toolcrib-agents"
    ]
    assert [item["metadata"]["namespace"] for item in policies] == ["team-b", "team-c"]
    registry = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "toolcrib-system"}},
        **_component("registry"),
    }
    pods = [pod["metadata"]["labels"] for _, pod in agent_pods(rendered)]
    for policy in policies:
        spec = policy["spec"]
        assert [rule["to"] for rule in spec["egress"] if _ports(rule) == ["agents"]] == [[registry]]
        assert not _reaches(spec["egress"], "10.0.0.1")
        assert all(spec["podSelector"]["matchLabels"].items() <= labels.items() for labels in pods)
    admitted = [
        peer
        for rule in _policy(rendered, "registry")["ingress"]
        if _ports(rule) == ["agents"]
        for peer in rule["from"]
    ]
    (peer,) = [peer for peer in admitted if peer.keys() == {"namespaceSelector", "podSelector"}]
    assert peer["podSelector"] == policies[0]["spec"]["podSelector"]
    (named,) = peer["namespaceSelector"]["matchExpressions"]
    assert (named["key"], named["values"]) == ("kubernetes.io/metadata.name", ["team-b", "team-c"])


def test_rules_of_ones_own_are_added() -> None:
    extra = MATRIX["narrow-network"]["networkPolicy"]["extraEgress"][0]
    for component in ("operator", "registry", "agents"):
        assert extra in _policy(render(MATRIX["narrow-network"]), component)["egress"]


def test_policies_can_be_left_out() -> None:
    assert not render(MATRIX["bare"]).of("NetworkPolicy")


def test_on_cilium_the_api_server_is_reached_by_its_entity_too() -> None:
    """There an address never means a node, nor the API server on it: cilium/cilium#20550."""
    assert not render().of("CiliumNetworkPolicy")
    rendered = render(api_versions=["cilium.io/v2/CiliumNetworkPolicy"])
    spec = rendered.one("CiliumNetworkPolicy", "toolcrib-api-server")["spec"]
    assert spec["egress"] == [{"toEntities": ["kube-apiserver"]}]
    assert spec["endpointSelector"]["matchExpressions"][0]["values"] == ["operator", "registry", "hook"]


def test_the_test_of_a_release_speaks_with_the_registry_and_nobody_else() -> None:
    spec = _policy(render(), "test")
    assert [rule["from"] for rule in spec["ingress"]] == [[_component("registry")]]
    assert [(rule["to"], _ports(rule)) for rule in spec["egress"]] == [([_component("registry")], ["agents"])]
    assert not render(MATRIX["bare"] | {"networkPolicy": {"enabled": True}}).find(
        "NetworkPolicy", "toolcrib-test"
    )
