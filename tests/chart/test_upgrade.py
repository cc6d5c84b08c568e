"""Install, upgrade and uninstall against a real API server: what must last, lasts. No pod ever runs here.

The hooks of an uninstall are left out: nothing would run their jobs. tests/cluster/node does all of it with real pods.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography import x509

from chart import NAMESPACE, ROOT, helm, try_install
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib.resources import admission
from toolcrib_operator.admission.comparison import obstacle

pytestmark = [pytest.mark.real, pytest.mark.long]

Data = dict[str, bytes]
_MADE = (
    "toolcrib-ca",
    "toolcrib-registry-tls",
    "toolcrib-weaviate-tls",
    "toolcrib-weaviate-key",
    "toolcrib-audit-key",
    "toolcrib-assertion-keys",
)
_AGENT = {"agents.items": [{"name": "safecracker"}], "agents.namespaces": [NAMESPACE]}
_STEPS: dict[str, dict[str, Any]] = {
    "installed": _AGENT,
    "changed": _AGENT | {"operator.replicas": 3, "registry.policyMaxAge": 60},
    "renamed": {"registry.publicHost": "toolcrib.example.com", "tls.extraNames": ["192.0.2.7"]},
    "rotated": {"tls.generate.rotate": "2026-11"},
    "signing anew": {"registry.assertion.keys.rotate": "2026-11"},
    "left alone": {},
    "signing anew again": {"registry.assertion.keys.rotate": "2026-12"},
}
_TOOL = """
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {name: kept, namespace: default}
spec: {description: stays, scopes: ["kept:use"], inputSchema: {type: object}, backend: {none: {}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """One of its own: definitions come and go here."""
    require_real("kube-apiserver", "etcd", "kubectl", "helm")
    with ApiServer() as running:
        running.create_namespace(NAMESPACE)
        yield running


@dataclass
class History:
    """One release through its life: what was there after each step."""

    secrets: dict[str, dict[str, Data]]
    trusted: dict[str, bytes]
    agents: dict[str, list[str]]
    """The UIDs of the Agents of the release."""
    left_by_uninstall: list[str]
    tool_kept: bool


@pytest.fixture(scope="module")
def history(server: ApiServer) -> History:
    """Install, change a setting, change the names, change the authority, uninstall."""
    record = History({}, {}, {}, [], False)
    for step, sets in _STEPS.items():
        _install(server, sets=sets)
        listed = server.client.get(f"/apis/toolcrib.dev/v1alpha1/namespaces/{NAMESPACE}/agents")
        record.agents[step] = [item["metadata"]["uid"] for item in listed.raise_for_status().json()["items"]]
        record.secrets[step] = {name: _data(server, "secrets", name) for name in _MADE}
        record.trusted[step] = _data(server, "configmaps", "toolcrib-ca")["ca.crt"]
    _apply_tool(server)
    done = helm("uninstall", "toolcrib", "-n", NAMESPACE, "--no-hooks", kubeconfig=server.admin_kubeconfig)
    assert done.returncode == 0, done.stderr
    left = server.kubectl(
        "get", "deployments,statefulsets,services,secrets,configmaps", "-n", NAMESPACE, "-o", "name"
    )
    record.left_by_uninstall = left.stdout.split()
    record.tool_kept = _has_tool(server)
    return record


def test_agents_come_with_a_first_install_and_an_upgrade_takes_over_the_same_ones(history: History) -> None:
    """Their kind comes with the release too, and Helm creates nothing while it does not know a kind."""
    assert len(history.agents["installed"]) == 1
    assert history.agents["changed"] == history.agents["installed"]
    assert history.agents["renamed"] == []


def test_certificates_and_keys_last_over_upgrades(history: History) -> None:
    first = history.secrets["installed"]
    assert history.secrets["changed"] == first
    for name in ("toolcrib-registry-tls", "toolcrib-weaviate-tls"):
        _signed(first[name]["tls.crt"], first["toolcrib-ca"]["tls.crt"])
    assert history.trusted["changed"].strip() == first["toolcrib-ca"]["tls.crt"].strip()


def test_a_certificate_is_renewed_for_new_names_by_the_same_authority(history: History) -> None:
    before, after = history.secrets["changed"], history.secrets["renamed"]
    assert after["toolcrib-ca"] == before["toolcrib-ca"]
    assert after["toolcrib-weaviate-tls"] == before["toolcrib-weaviate-tls"]
    certificate = after["toolcrib-registry-tls"]["tls.crt"]
    assert certificate != before["toolcrib-registry-tls"]["tls.crt"]
    _signed(certificate, after["toolcrib-ca"]["tls.crt"])
    assert {"toolcrib.example.com", "192.0.2.7", f"toolcrib-registry.{NAMESPACE}.svc"} <= set(
        _names(certificate)
    )


def test_a_new_authority_leaves_the_former_one_trusted(history: History) -> None:
    """Agents that were started before the change still verify what the registry shows until it restarts."""
    before, after = history.secrets["renamed"], history.secrets["rotated"]
    assert after["toolcrib-ca"]["tls.crt"] != before["toolcrib-ca"]["tls.crt"]
    for name in ("toolcrib-registry-tls", "toolcrib-weaviate-tls"):
        _signed(after[name]["tls.crt"], after["toolcrib-ca"]["tls.crt"])
    assert before["toolcrib-ca"]["tls.crt"].strip() in history.trusted["rotated"]
    assert after["toolcrib-ca"]["tls.crt"].strip() in history.trusted["rotated"]
    for name in ("toolcrib-weaviate-key", "toolcrib-audit-key", "toolcrib-assertion-keys"):
        assert after[name] == before[name]


def test_a_rotation_of_assertion_keys_leaves_the_former_one_published(history: History) -> None:
    held = {step: secrets["toolcrib-assertion-keys"] for step, secrets in history.secrets.items()}
    first, second, third = (held[s] for s in ("rotated", "signing anew", "signing anew again"))

    assert set(first) == {"signing.pem"}
    assert second["previous.pem"] == first["signing.pem"]
    assert second["signing.pem"] != first["signing.pem"]
    assert held["left alone"] == second
    assert third["previous.pem"] == second["signing.pem"]
    assert third["signing.pem"] not in (first["signing.pem"], second["signing.pem"])


def test_uninstall_keeps_what_users_wrote_and_nothing_of_the_release(history: History) -> None:
    assert history.tool_kept
    # without its key no decision log that was kept could be verified any more
    assert history.left_by_uninstall == ["secret/toolcrib-audit-key"]


def test_definitions_that_were_applied_first_are_taken_over_when_told_to(
    history: History, server: ApiServer
) -> None:
    """Helm 4 applies on the server, where kubectl's fields are its own until conflicts are forced."""
    names = (
        "tools",
        "toolservers",
        "agentscopebindings",
        "clusteragentscopebindings",
        "agents",
        "accessrequests",
        "toolcanaries",
    )
    crds = [f"{name}.toolcrib.dev" for name in names]
    # the API server takes each away only after it has looked for objects left of it, every 5 s, and tries again ever later
    deleted = server.kubectl("delete", "crd", *crds, timeout=600)
    assert deleted.returncode == 0, deleted.stderr
    applied = server.kubectl("apply", "-f", str(ROOT / "crds"))
    assert applied.returncode == 0, applied.stderr
    _apply_tool(server)
    assert "invalid ownership metadata" in try_install(server)
    _install(server, "--take-ownership", "--force-conflicts")
    assert _has_tool(server)


def test_a_second_release_is_refused_and_the_first_goes_on(history: History, server: ApiServer) -> None:
    """Two operators would share one finalizer: each would confirm revocations that the other still serves."""
    server.create_namespace("second")
    _install(server, "--take-ownership", "--force-conflicts")
    for place in ({"name": "other"}, {"namespace": "second"}):
        said = try_install(server, sets={"crds.install": False}, **place)
        assert f"release {NAMESPACE}/toolcrib. Install Toolcrib once per cluster" in said, place
        assert "kubectl delete clusterrole toolcrib-operator" in said
    _install(server, sets={"fullnameOverride": "crib"})
    deleted = helm("uninstall", "toolcrib", "-n", NAMESPACE, "--no-hooks", kubeconfig=server.admin_kubeconfig)
    assert deleted.returncode == 0, deleted.stderr
    assert "invalid ownership metadata" in try_install(server, namespace="second")
    moved = try_install(server, "--take-ownership", namespace="second")
    assert not moved, moved


def test_a_number_of_replicas_set_by_hand_is_not_undone_unless_told_to(
    history: History, server: ApiServer
) -> None:
    """Helm 4: as docs/guides/operations.md says. A registry that was scaled to none comes back."""
    scaled = ("scale", "deployment/toolcrib-registry", "-n", "second")
    settings = {"crds.install": False, "helmTest.enabled": False}
    first = try_install(server, "--force-conflicts", sets=settings, namespace="second")
    assert not first, first
    assert server.kubectl(*scaled, "--replicas=0").returncode == 0
    restored = try_install(server, sets=settings, namespace="second")
    assert not restored, restored
    assert server.kubectl(*scaled, "--replicas=5").returncode == 0
    said = try_install(server, sets=settings, namespace="second")
    assert 'conflict with "kubectl" with subresource "scale"' in said
    forced = try_install(server, "--force-conflicts", sets=settings, namespace="second")
    assert not forced, forced


def test_policies_come_with_an_upgrade_from_a_version_without_and_stay_at_an_uninstall(
    history: History, server: ApiServer
) -> None:
    """As the operator of the release finds them: with its own account, and nothing altered on the way."""
    label = f"{admission.LABEL}={admission.PART_OF}"
    kinds = ",".join(admission.PLURALS.values())
    without = {"crds.install": False, "admission.install": False, "helmTest.enabled": False}

    def found() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(
            server.kubectl("get", kinds, "-l", label, "-o", "json").stdout
        )["items"]
        return items

    assert not try_install(server, "--force-conflicts", sets=without, namespace="second")
    assert server.kubectl("delete", kinds, "-l", label).returncode == 0
    account = "system:serviceaccount:second:toolcrib-operator"
    assert obstacle(found(), account) is not None
    upgraded = try_install(server, sets={"helmTest.enabled": False}, namespace="second")
    assert not upgraded, upgraded
    assert obstacle(found(), account) is None
    assert obstacle(found(), "system:serviceaccount:other:operator") is not None
    deleted = helm("uninstall", "toolcrib", "-n", "second", "--no-hooks", kubeconfig=server.admin_kubeconfig)
    assert deleted.returncode == 0, deleted.stderr
    assert obstacle(found(), account) is None


def _install(server: ApiServer, *options: str, sets: dict[str, Any] | None = None) -> None:
    """Install or upgrade with these values and no others."""
    said = try_install(server, *options, sets=sets)
    assert not said, said


def _data(server: ApiServer, resource: str, name: str) -> Data:
    found = server.client.get(f"/api/v1/namespaces/{NAMESPACE}/{resource}/{name}")
    data = found.raise_for_status().json()["data"]
    return {
        key: base64.b64decode(value) if resource == "secrets" else value.encode()
        for key, value in data.items()
    }


def _names(pem: bytes) -> list[str]:
    extension = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return [str(name.value) for name in extension.value]


def _signed(certificate: bytes, authority: bytes) -> None:
    """Raises where the authority did not sign the certificate."""
    x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority)
    )


def _apply_tool(server: ApiServer) -> None:
    # an established definition is served a moment later (and `kubectl wait` fails on one that is still newer)
    wait_until(lambda: server.kubectl("get", "tools.toolcrib.dev", "-n", "default").returncode == 0, 60)
    done = server.kubectl("apply", "-f", "-", input=_TOOL)
    assert done.returncode == 0, done.stderr


def _has_tool(server: ApiServer) -> bool:
    return server.kubectl("get", "tools.toolcrib.dev", "kept", "-n", "default").returncode == 0
