"""Service accounts of a real API server, with nothing configured that anybody could steal but the registry's own token."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import yaml

from realparts.apiserver import ApiServer
from registry_harness import binding, tool
from registry_process import RegistryProcess, process
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.settings import from_env

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def namespace(apiserver: ApiServer) -> Iterator[str]:
    name = apiserver.create_namespace("test-cluster-tokens")
    yield name
    apiserver.delete_namespace(name)


@pytest.fixture(scope="module")
def folder(apiserver: ApiServer, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the registry's pod: its configuration, the cluster's CA, and the token that the kubelet projects."""
    tmp_path = tmp_path_factory.mktemp("registry")
    for account in ("registry", "operator", "planner", "stranger"):
        assert apiserver.kubectl("create", "serviceaccount", account, "-n", namespace).returncode == 0
    (tmp_path / "token").write_text(apiserver.token_request(namespace, "registry", seconds=600))
    (tmp_path / "ca.crt").write_bytes(apiserver.ca_file.read_bytes())
    issuer = {
        "cluster": True,  # and not its name: that is read from the token
        "audience": ["toolcrib"],
        "scopes": "bindings",
        "jwks_uri": apiserver.jwks_url,
        "token_file": str(tmp_path / "token"),
        "ca_file": str(tmp_path / "ca.crt"),
    }
    settings = {
        "port": 0,
        "admin_port": 0,
        "metrics": {"port": 0},
        "issuers": [issuer],
        "admin_subjects": [f"system:serviceaccount:{namespace}:operator"],
        "store": {"kind": "embedded", "path": str(tmp_path / "index")},
        "embedder": {"kind": "none"},
    }
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


@pytest.fixture(scope="module")
def registry(apiserver: ApiServer, namespace: str, folder: Path) -> Iterator[RegistryProcess]:
    with process(folder / "registry.yaml") as running:
        grant = binding("planner", account_namespace=namespace)
        full = Publish(to=Revision(epoch=1, seq=1), tools=(tool("calculator"),), bindings=(grant,))
        operator = apiserver.token_request(namespace, "operator", ["toolcrib-admin"])
        answer = httpx.post(
            f"{running.admin_url}/v1/admin/publish", headers=bearer(operator), content=full.model_dump_json()
        )
        assert answer.status_code == 200, answer.text
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def projected(apiserver: ApiServer, namespace: str, account: str, audience: str) -> str:
    """A token as the kubelet asks for it: for one audience, and bound to a pod, with which it ends."""
    pod = {
        "metadata": {"name": f"{account}-pod"},
        "spec": {"serviceAccountName": account, "containers": [{"name": "agent", "image": "none"}]},
    }
    made = apiserver.client.post(f"/api/v1/namespaces/{namespace}/pods", json=pod).raise_for_status().json()
    bound = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }
    asked = {"spec": {"audiences": [audience], "expirationSeconds": 600, "boundObjectRef": bound}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token: str = apiserver.client.post(path, json=asked).raise_for_status().json()["status"]["token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["aud"] == [audience]
    assert claims["kubernetes.io"]["pod"]["name"] == bound["name"]
    return token


def tools(registry: RegistryProcess, token: str) -> tuple[int, list[str]]:
    answer = httpx.get(f"{registry.url}/v1/tools", headers=bearer(token))
    return answer.status_code, [one["name"] for one in answer.json().get("tools", [])]


def test_a_projected_token_is_enough_and_the_configuration_holds_no_secret(
    apiserver: ApiServer, namespace: str, folder: Path, registry: RegistryProcess
) -> None:
    assert tools(registry, projected(apiserver, namespace, "planner", "toolcrib")) == (200, ["calculator"])
    assert tools(registry, projected(apiserver, namespace, "stranger", "toolcrib")) == (200, [])

    settings = from_env({}, str(folder / "registry.yaml"))
    assert settings.issuers[0].issuer == apiserver.issuer
    assert set(_set(settings.model_dump(mode="json"))) == {"issuers.0.ca_file", "issuers.0.token_file"}
    files = {f.name for f in folder.iterdir() if f.is_file()}
    assert files == {"registry.yaml", "ca.crt", "token"}
    assert "PRIVATE" not in (folder / "ca.crt").read_text()
    own = jwt.decode((folder / "token").read_text(), options={"verify_signature": False})
    assert own["sub"] == f"system:serviceaccount:{namespace}:registry"
    assert own["exp"] - own["iat"] <= 3600, "the one thing to steal ends by itself"


def _set(settings: Any, path: str = "") -> Iterator[str]:
    """The settings that name files or could hold secrets, where they are set."""
    words = ("file", "secret", "password", "key", "token", "credential", "url")
    if isinstance(settings, dict | list):
        for name, value in settings.items() if isinstance(settings, dict) else enumerate(settings):
            yield from _set(value, f"{path}.{name}" if path else str(name))
    elif isinstance(settings, str) and any(word in path.rpartition(".")[2] for word in words):
        yield path


def test_tokens_for_other_audiences_are_refused_wherever_they_are_sent(
    apiserver: ApiServer, namespace: str, registry: RegistryProcess
) -> None:
    own = apiserver.token_request(namespace, "planner")  # as pods have it without asking: for the API server
    assert tools(registry, own)[0] == 401
    assert tools(registry, apiserver.token_request(namespace, "operator", ["toolcrib-admin"]))[0] == 401
    state = f"{registry.admin_url}/v1/admin/state"
    agent = apiserver.token_request(namespace, "operator", ["toolcrib"])
    assert httpx.get(state, headers=bearer(agent)).status_code == 401
    other = apiserver.token_request(namespace, "planner", ["toolcrib-admin"])
    assert httpx.get(state, headers=bearer(other)).status_code == 403
    operator = apiserver.token_request(namespace, "operator", ["toolcrib-admin"])
    assert httpx.get(state, headers=bearer(operator)).status_code == 200


def test_the_registrys_own_token_opens_nothing_here(registry: RegistryProcess, folder: Path) -> None:
    token = (folder / "token").read_text()
    assert tools(registry, token)[0] == 401
    assert httpx.get(f"{registry.admin_url}/v1/admin/state", headers=bearer(token)).status_code == 401
    assert token not in json.dumps(registry.lines)
