"""Call assertions in the chart: their keys, their issuer, and who may reach the backends of tools."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from chart import NAMESPACE, ROOT, Object, Rendered, refused, render
from chart_values import MATRIX
from toolcrib_registry.settings import RegistrySettings

pytestmark = pytest.mark.real

MOUNT = "/etc/toolcrib/assertion"


def _settings(rendered: Rendered) -> RegistrySettings:
    text = rendered.one("ConfigMap", "toolcrib-registry")["data"]["registry.yaml"]
    issuers = [{"issuer": "https://kubernetes.test", **entry} for entry in yaml.safe_load(text)["issuers"]]
    return RegistrySettings.model_validate({**yaml.safe_load(text), "issuers": issuers})


def _volume(rendered: Rendered) -> Object:
    spec: Object = next(
        pod["spec"]
        for _, pod in rendered.pods()
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "registry"
    )
    name = next(m["name"] for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == MOUNT)
    found: Object = next(v["secret"] for v in spec["volumes"] if v["name"] == name)
    return found


def test_the_registry_signs_with_a_key_that_the_chart_makes() -> None:
    rendered = render()
    secret = rendered.one("Secret", "toolcrib-assertion-keys")
    key = load_pem_private_key(base64.b64decode(secret["data"]["signing.pem"]), password=None)

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert set(secret["data"]) == {"signing.pem"}
    assert _settings(rendered).assertion.keys == MOUNT
    assert _volume(rendered)["secretName"] == "toolcrib-assertion-keys"
    # the registry refuses a key that everybody can read
    assert _volume(rendered)["defaultMode"] & 0o007 == 0


def test_a_secret_of_ones_own_is_used() -> None:
    rendered = render({"registry": {"assertion": {"keys": {"existingSecret": "mine"}}}})

    assert rendered.find("Secret", "toolcrib-assertion-keys") is None
    assert _volume(rendered)["secretName"] == "mine"
    assert "items" not in _volume(rendered)


@pytest.mark.parametrize(
    ("values", "issuer"),
    [
        ({}, f"https://toolcrib-registry.{NAMESPACE}.svc"),
        ({"registry": {"service": {"port": 8443}}}, f"https://toolcrib-registry.{NAMESPACE}.svc:8443"),
        ({"registry": {"publicHost": "crib.example.com"}}, "https://crib.example.com"),
        ({"registry": {"assertion": {"issuer": "https://a.example/x"}}}, "https://a.example/x"),
        ({"tls": {"mode": "off"}}, f"http://toolcrib-registry.{NAMESPACE}.svc"),
        (
            {"tls": {"mode": "off"}, "registry": {"publicHost": "crib.example.com", "publicPort": 443}},
            "https://crib.example.com",
        ),
    ],
    ids=["plain", "port", "public host", "own", "no TLS", "TLS before it"],
)
def test_the_issuer_is_the_registrys_public_url_also_for_the_tool_of_the_test(
    values: dict[str, Any], issuer: str
) -> None:
    rendered = render(values)
    (tool,) = rendered.one("Pod", "toolcrib-test")["spec"]["initContainers"]

    assert _settings(rendered).assertion_issuer == issuer
    assert f"--issuer={issuer}" in tool["args"]
    assert f"--tool={NAMESPACE}/toolcrib-test" in tool["args"]
    assert "--unverified" not in tool["args"]


def test_backends_of_tools_are_reached_from_the_registry_and_nobody_else() -> None:
    policies = [
        item
        for item in render(MATRIX["narrow-network"]).of("NetworkPolicy")
        if "tools-" in item["metadata"]["name"]
    ]
    heist, team = sorted(policies, key=lambda item: item["metadata"]["namespace"])

    assert heist["metadata"]["namespace"] == "heist"
    assert heist["spec"] == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "example-tools"}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [
                    {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                        "podSelector": {
                            "matchLabels": {
                                "app.kubernetes.io/name": "toolcrib",
                                "app.kubernetes.io/instance": "toolcrib",
                                "app.kubernetes.io/component": "registry",
                            }
                        },
                    }
                ],
                "ports": [{"protocol": "TCP", "port": 8080}, {"protocol": "TCP", "port": 8443}],
            }
        ],
    }
    assert team["spec"]["podSelector"] == {}
    assert team["metadata"]["name"] != heist["metadata"]["name"]


def test_by_default_there_is_no_policy_for_backends() -> None:
    assert not [p for p in render().of("NetworkPolicy") if "tools-" in p["metadata"]["name"]]


@pytest.mark.parametrize("missing", ["namespace", "podSelector", "ports"])
def test_a_policy_for_backends_says_all_of_it(missing: str) -> None:
    whole = {"namespace": "heist", "podSelector": {"matchLabels": {"a": "b"}}, "ports": [8080]}
    entry = {name: value for name, value in whole.items() if name != missing}

    assert missing in refused({"networkPolicy": {"tools": [entry]}})


def test_a_policy_for_backends_that_would_not_be_made_is_refused() -> None:
    entry = {"namespace": "heist", "podSelector": {}, "ports": [8080]}

    assert "networkPolicy.tools is set" in refused({"networkPolicy": {"enabled": False, "tools": [entry]}})


@pytest.mark.parametrize(
    ("name", "service"),
    [("example-tools", "heist/20-service.yaml"), ("memory", "memory/20-service.yaml")],
)
def test_the_examples_in_the_repository_let_the_same_pods_in(name: str, service: str) -> None:
    text = (ROOT / "examples" / "cluster" / f"{name}.yaml").read_text()
    selected = yaml.safe_load((ROOT / "examples" / service).read_text())["spec"]
    deployment, policy = yaml.safe_load_all(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (peer,) = policy["spec"]["ingress"][0]["from"]
    registry = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
        for _, pod in render().pods()
    }["registry"]

    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    assert selected["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert selected["ports"][0]["targetPort"] == container["ports"][0]["containerPort"]
    assert f"--port={container['ports'][0]['containerPort']}" in container["args"]
    assert peer["podSelector"]["matchLabels"].items() <= registry.items()
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    assert f"--issuer={_settings(render()).assertion_issuer}" in container["args"]
