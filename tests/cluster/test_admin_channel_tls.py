"""The admin channel over TLS, and the cluster's issuer without configuration: operator, registry, API server, all real."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from manifests import binding, tool
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from registry_process import RegistryProcess, configuration, process
from secret_volume import SecretVolume

ROOT = Path(__file__).parents[2]
SYSTEM = "toolcrib-system"
SERVICE = f"{SYSTEM}/toolcrib-registry"

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    # an issuer as a cloud has it: nothing at its address, and no name that could be guessed
    with ApiServer(issuer="https://oidc.cloud.example/id/7F1C") as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        server.create_namespace("heist")
        assert server.kubectl("create", "serviceaccount", "planner", "-n", "heist").returncode == 0
        yield server


def apply(server: ApiServer, *manifests: dict[str, Any]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    result = server.kubectl("apply", "-f", "-", input=body)
    assert result.returncode == 0, result.stderr


def token_file(server: ApiServer, folder: Path, account: str, audiences: list[str] | None = None) -> Path:
    path = folder / f"{account}-{(audiences or ['own'])[0]}"
    path.write_text(server.token_request(SYSTEM, account, audiences))
    return path


def registry_settings(server: ApiServer, folder: Path, volume: SecretVolume) -> dict[str, Any]:
    issuer = {
        "cluster": True,
        "token_file": str(token_file(server, folder, "toolcrib-registry")),
        "ca_file": str(server.ca_file),
        "jwks_uri": server.jwks_url,
        "audience": ["toolcrib"],
        "scopes": "bindings",
    }
    return {
        "issuers": [issuer],
        "admin_subjects": [f"system:serviceaccount:{SYSTEM}:toolcrib-operator"],
        "admin_tls": volume.files,
        # closed to tools, the API server's address included; its keys are fetched all the same
        "egress": {"cluster": ["127.0.0.0/8", "10.0.0.0/8"], "forbidden": ["127.0.0.1"]},
    }


def test_replicas_are_verified_by_name_certificates_rotate_and_the_issuer_is_told_by_the_token(
    server: ApiServer, tmp_path: Path
) -> None:
    volume = SecretVolume(tmp_path / "tls", "toolcrib-registry.toolcrib-system.svc")
    admin_token = token_file(server, tmp_path, "toolcrib-operator", ["toolcrib-admin"])
    kubeconfig = server.kubeconfig_for(server.token_request(SYSTEM, "toolcrib-operator"))
    planner = {"Authorization": f"Bearer {server.token_request('heist', 'planner', ['toolcrib'])}"}

    def discovers(registry: RegistryProcess, *names: str) -> bool:
        listed = httpx.get(f"http://127.0.0.1:{registry.agents}/", headers=planner, timeout=60).json()[
            "tools"
        ]
        return {t["name"] for t in listed} == set(names)

    with process(configuration(tmp_path / "r", **registry_settings(server, tmp_path, volume))) as registry:
        url = f"https://127.0.0.1:{registry.admin}"

        def operator(*options: str) -> OperatorProcess:
            return OperatorProcess(
                kubeconfig, [url], tmp_path, "--token-file", str(admin_token),
                "--registry-ca", str(volume.ca), *options,
            )  # fmt: skip

        # the certificate names the Service: a wrong guess is explained where it is looked for
        with operator("--registry-server-name", "other.svc") as wrong:
            wait_until(lambda: "Hostname mismatch" in str(wrong.report().get("problems")))
            assert "other.svc (--registry-server-name)" in str(wrong.report()["problems"])
            # a replica that it cannot reach is told, and no reason to be unready
            assert wrong.get("/readyz").status_code == 200

        right = operator("--registry-server-name", "toolcrib-registry.toolcrib-system.svc")
        with running(right):
            apply(server, tool("calculator"), binding("planner", ["calculator:use", "fx:use"]))
            wait_until(lambda: discovers(registry, "calculator"))

            volume.swap("two")
            wait_until(lambda: "a new certificate" in str(registry.lines))
            apply(server, tool("fx"))
            wait_until(lambda: discovers(registry, "calculator", "fx"))
            wait_until(right.leads)

            # an authority that cannot be read leaves the one of before
            (volume.version("two") / "ca.crt").write_text("nonsense")
            apply(server, tool("extra"), binding("planner", ["calculator:use", "extra:use"]))
            wait_until(lambda: discovers(registry, "calculator", "extra"))
            wait_until(right.leads)
