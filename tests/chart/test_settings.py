"""What the chart tells our programs is what they take: their own settings read it, for every set of values."""

from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from chart import Object, Rendered, render
from chart_agents import agent_pods
from chart_values import MATRIX
from toolcrib_operator import options
from toolcrib_operator.settings import OperatorSettings
from toolcrib_registry.settings import RegistrySettings, from_env
from toolcrib_runner.main import parser
from toolcrib_runner.settings import SOURCE as RUNNER

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples" / "issuers"
ISSUER = "https://kubernetes.default.svc.cluster.local"


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the kubelet puts it into the pod: the registry reads its issuer."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(jwt.encode({"iss": ISSUER}, "0" * 32, algorithm="HS256"))
    return file


def _container(rendered: Rendered, component: str) -> Object:
    for _, pod in rendered.pods():
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component:
            found: Object = pod["spec"]["containers"][0]
            return found
    raise AssertionError(f"no pod of {component}")


def _environment(container: Object) -> dict[str, str]:
    """The literal variables, with what the kubelet puts in."""
    literals = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    return {
        name: value.replace("$(KUBERNETES_SERVICE_HOST)", "10.96.0.1") for name, value in literals.items()
    }


def _registry(rendered: Rendered, token: Path, folder: Path) -> RegistrySettings:
    config = next(item for item in rendered.of("ConfigMap") if "registry.yaml" in (item["data"] or {}))
    text = config["data"]["registry.yaml"].replace("/var/run/secrets/toolcrib/token", str(token))
    (folder / "registry.yaml").write_text(text, encoding="utf-8")
    return from_env(_environment(_container(rendered, "registry")), str(folder / "registry.yaml"))


def _operator(rendered: Rendered) -> OperatorSettings:
    name, *arguments = _container(rendered, "operator")["args"]
    assert name == "operator"
    return options.parse([text for text in arguments if not text.startswith("--extra=")], {})


@pytest.mark.parametrize("name", MATRIX)
def test_the_registry_takes_its_configuration(name: str, token: Path, tmp_path: Path) -> None:
    settings = _registry(render(MATRIX[name]), token, tmp_path)
    settings.refuse_dev_issuers()
    assert settings.issuers[0].issuer == ISSUER
    assert "10.96.0.1" in settings.egress.forbidden, "the API server is never called for a tool"
    kind = "embedded" if MATRIX[name].get("profile") == "embedded" else "weaviate"
    assert settings.store.kind == kind


@pytest.mark.parametrize("name", MATRIX)
def test_the_operator_takes_its_options_and_may_publish(name: str, token: Path, tmp_path: Path) -> None:
    rendered = render(MATRIX[name])
    settings = _operator(rendered)
    registry = _registry(rendered, token, tmp_path)
    assert settings.registry_service == "toolcrib-system/toolcrib-registry-admin"
    secure = registry.admin_tls.cert_file is not None
    assert settings.registry_scheme == ("https" if secure else "http")
    assert (settings.registry_ca is not None) is secure
    operator = next(pod for _, pod in rendered.pods() if pod["spec"]["containers"][0]["name"] == "operator")
    account = operator["spec"]["serviceAccountName"]
    assert f"system:serviceaccount:toolcrib-system:{account}" in registry.admin_subjects
    assert (settings.registration is not None) is registry.registration


def test_names_in_the_certificate_are_those_under_which_the_registry_is_verified() -> None:
    rendered = render(MATRIX["cert-manager"])
    names = rendered.one("Certificate", "toolcrib-registry-tls")["spec"]["dnsNames"]
    assert _operator(rendered).registry_server_name in names
    assert "toolcrib-registry.toolcrib-system.svc" in names


@pytest.mark.parametrize("name", ["agents", "extras", "prometheus-operator"])
def test_agent_runners_take_their_options(name: str) -> None:
    _, pod = next(agent_pods(render(MATRIX[name])))
    (container,) = pod["spec"]["containers"]
    assert container["args"][:2] == ["agent", "run"]
    given: dict[str, Any] = vars(parser().parse_args(container["args"][2:]))
    settings = RUNNER.read(given, _environment(container))
    assert settings.registry_url == "https://toolcrib-registry.toolcrib-system.svc"
    assert settings.metrics_port == 8092
    assert settings.model == "gpt-5-mini"


def test_further_settings_go_over_what_the_chart_makes(token: Path, tmp_path: Path) -> None:
    own = {"registry": {"config": {"policy_max_age": 30, "discovery": {"anonymous": "list"}}}}
    settings = _registry(render(own), token, tmp_path)
    assert settings.policy_max_age == 30
    assert (settings.discovery.anonymous, settings.discovery.totals) == ("list", "visible")


def test_the_tools_of_mcp_are_those_that_the_values_switch_on(token: Path, tmp_path: Path) -> None:
    plain = _registry(render(), token, tmp_path).mcp
    split = _registry(render({"registry": {"mcp": {"splitCalls": True}}}), token, tmp_path).mcp
    both = {"splitCalls": True, "compatibleNames": True, "requestAccess": True}
    all_of_them = _registry(render({"registry": {"mcp": both}}), token, tmp_path).mcp

    assert (plain.split_calls, plain.compatible_names) == (False, False)
    assert (split.split_calls, split.compatible_names) == (True, False)
    assert (all_of_them.split_calls, all_of_them.compatible_names) == (True, True)
    assert (split.request_access, all_of_them.request_access) == (False, True)


def test_issuers_and_hosts_of_the_values_reach_the_registry(token: Path, tmp_path: Path) -> None:
    settings = _registry(render(MATRIX["ingress"]), token, tmp_path)
    assert [issuer.issuer for issuer in settings.issuers] == [
        ISSUER,
        "https://login.example.com/realms/agents",
    ]
    assert settings.issuers[0].cluster
    assert list(settings.egress.allow) == ["api.example.com"]
    assert settings.public_host == "toolcrib.example.com"


def test_what_mcp_clients_are_told_reaches_the_registry(token: Path, tmp_path: Path) -> None:
    settings = _registry(render(MATRIX["ingress"]), token, tmp_path)
    assert settings.own_url == "https://toolcrib.example.com"
    assert settings.oauth.authorization_servers == ("https://login.example.com/realms/agents",)
    assert settings.oauth.scopes_supported == ("calculator:use",)
    assert settings.discovery.step_up
    plain = _registry(render({"issuers": MATRIX["ingress"]["issuers"]}), token, tmp_path)
    assert plain.own_url == "https://toolcrib-registry.toolcrib-system.svc"
    assert plain.authorization_servers == ("https://login.example.com/realms/agents",)
    assert not plain.discovery.step_up
    none = _registry(
        render({**MATRIX["ingress"], "registry": {"oauth": {"authorizationServers": []}}}), token, tmp_path
    )
    assert none.authorization_servers == ()


def test_the_public_url_can_be_another_than_that_of_discovery(token: Path, tmp_path: Path) -> None:
    own = {"registry": {"publicUrl": "https://crib.example.com:8443"}}
    settings = _registry(render(own), token, tmp_path)
    assert settings.own_url == settings.assertion_issuer == "https://crib.example.com:8443"
    assert settings.public_host == "toolcrib-registry.toolcrib-system.svc"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: str(file.stem))
def test_the_examples_of_identity_providers_are_values_and_settings_alike(
    file: Path, token: Path, tmp_path: Path
) -> None:
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    settings = _registry(render(values), token, tmp_path)
    settings.refuse_dev_issuers()
    assert settings.issuers[1:] == from_env({}, str(file)).issuers


def test_groups_that_are_not_to_be_read_stay_so(token: Path, tmp_path: Path) -> None:
    entry = {"issuer": "https://login.example.com", "audience": ["toolcrib"], "claims": {"groups": None}}
    settings = _registry(render({"issuers": [entry]}), token, tmp_path)
    assert settings.issuers[1].claims.groups is None


def test_the_registry_knows_the_clusters_dns_domain(token: Path, tmp_path: Path) -> None:
    assert _registry(render(), token, tmp_path).egress.cluster_domain == "cluster.local"
    assert (
        _registry(render({"clusterDomain": "corp.local"}), token, tmp_path).egress.cluster_domain
        == "corp.local"
    )


def test_bounds_on_calls_reach_the_registry(token: Path, tmp_path: Path) -> None:
    limits = _registry(
        render({"registry": {"limits": {"agent_calls": 64, "backend_calls": 32}}}), token, tmp_path
    ).limits
    assert (limits.agent_calls, limits.backend_calls) == (64, 32)


def test_the_operator_knows_the_clusters_dns_domain_where_it_reads_credentials() -> None:
    values = {"clusterDomain": "corp.local", "credentials": {"namespaces": ["team-a"]}}
    assert _operator(render(values)).loop.cluster_domain == "corp.local"


def test_objects_of_ones_own_are_installed_with_the_release_as_they_are_or_as_templates() -> None:
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"a": "{{ b }}"}}
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-extra'}\n"
    rendered = render({"extraObjects": [plain, template]})
    assert rendered.one("ConfigMap", "plain") == plain
    assert rendered.find("ConfigMap", "toolcrib-extra")


def test_the_authority_is_copied_to_namespaces_that_shall_trust_it() -> None:
    copies = [
        item for item in render(MATRIX["agents"]).of("ConfigMap") if item["metadata"]["name"] == "toolcrib-ca"
    ]
    assert {item["metadata"].get("namespace") for item in copies} == {
        "toolcrib-system",
        "team-a",
        "team-b",
        "team-c",
    }
    assert len({item["data"]["ca.crt"] for item in copies}) == 1


def test_a_model_in_a_folder_reaches_the_registry(token: Path, tmp_path: Path) -> None:
    own = {
        "registry": {
            "embedder": {"kind": "onnx", "path": "/models/minilm"},
            "config": {"embedder": {"query_seconds": 0.5}},
            "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        }
    }
    rendered = render(own)
    settings = _registry(rendered, token, tmp_path)
    assert (settings.embedder.kind, settings.embedder.path) == ("onnx", "/models/minilm")
    assert settings.embedder.query_seconds == 0.5
    assert "/models" in {mount["mountPath"] for mount in _container(rendered, "registry")["volumeMounts"]}


def test_proxies_and_deadlines_reach_the_registry(token: Path, tmp_path: Path) -> None:
    values = {
        "trustedProxies": ["10.20.0.0/16", "fd00::/8"],
        "limits": {"header_seconds": 3, "connections_per_peer": 9},
    }

    settings = _registry(render({"registry": values}), token, tmp_path)

    assert [str(network) for network in settings.trusted_proxies] == ["10.20.0.0/16", "fd00::/8"]
    assert (settings.limits.header_seconds, settings.limits.connections_per_peer) == (3, 9)
