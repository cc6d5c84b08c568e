"""A token endpoint that is a Service, on a real API server: read by the operator, published, asked by the registry, given up."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from manifests import binding, manifest
from mcp_lists import Listing, modern
from mcp_upstream import Behave, McpUpstream, Wire, running
from operator_harness import conditions
from operator_process import OperatorProcess
from operator_process import running as operating
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry
from stub_server import Answer, Asked, answering
from toolcrib.wire.backends import PublishedTokenService

ROOT = Path(__file__).parents[2]
AT = {"name": "idp", "port": 8080, "path": "/token"}

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        server.create_namespace("heist")
        bound = server.kubectl("-n", "heist", "create", "rolebinding", "toolcrib-credentials", "--clusterrole",
                               "toolcrib-credentials", "--serviceaccount", "toolcrib-system:toolcrib-operator")  # fmt: skip
        assert bound.returncode == 0, bound.stderr
        yield server


def apply(server: ApiServer, *items: dict[str, Any]) -> str:
    """What the API server refuses."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    return str(server.kubectl("apply", "-f", "-", input=body).stderr)


def service(name: str = "idp", namespace: str = "heist", **spec: Any) -> dict[str, Any]:
    body = {"selector": {"app": name}, "ports": [{"port": 8080}]} | spec
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}


def toolserver(url: str, **oauth: Any) -> dict[str, Any]:
    auth = {
        "type": "ClientCredentials",
        "secretKeyRef": {"name": "client", "key": "client-secret"},
        "oauth": {"tokenService": AT} | oauth,
    }
    return manifest("ToolServer", "files", "heist", mcp={"url": url, "auth": auth},
                    defaults={"scopes": ["files:use"]}, **{"import": {"approval": "Automatic"}})  # fmt: skip


def secret(*hosts: str) -> dict[str, Any]:
    metadata = {
        "name": "client",
        "namespace": "heist",
        "labels": {"toolcrib.dev/backend-credential": "true"},
        "annotations": {"toolcrib.dev/hosts": " ".join(hosts)},
    }
    values = {"client-id": "us", "client-secret": "s3cret"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}


def guarded(up: McpUpstream) -> McpUpstream:
    """For those alone who have the token."""

    def asks(behave: Behave) -> Behave:
        async def answer(wire: Wire) -> None:
            good = wire.request.headers.get("authorization") == "Bearer a-token"
            await (behave(wire) if good else wire.status(401))

        return answer

    up.on = {method: asks(behave) for method, behave in up.on.items()}
    return up


def test_a_server_is_imported_and_called_with_tokens_of_a_service_of_its_namespace_and_of_no_other(
    server: ApiServer, tmp_path: Path
) -> None:
    grants: list[dict[str, list[str]]] = []

    def grant(asked: Asked) -> Answer:
        grants.append(parse_qs(asked.body.decode()))
        return Answer(json.dumps({"access_token": "a-token", "token_type": "Bearer"}).encode())

    def said(kind: str) -> tuple[str, str]:
        return conditions(server.read("toolservers", "files", "heist").get("status")).get(kind, ("", ""))

    def message(kind: str) -> str:
        found = server.read("toolservers", "files", "heist")["status"]["conditions"]
        return "".join(c["message"] for c in found if c["type"] == kind)

    def address() -> str:
        return str(server.read("services", "idp", "heist")["spec"]["clusterIP"])

    def published(registry: RunningRegistry) -> list[PublishedTokenService | None]:
        tools = registry.registry.deps.state.snapshot.tools.values()
        return [tool.backend and tool.backend.token_service for tool in tools]

    token = tmp_path / "token"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    with ExitStack() as stack:
        port = stack.enter_context(answering(grant))
        up = stack.enter_context(running(guarded(modern(Listing()))))
        # outside a cluster no ClusterIP can be dialled
        places = {"heist/idp": f"127.0.0.1:{port}"}
        r = stack.enter_context(running_registry(publish=False, backends=places))
        options = ("--token-file", str(token), "--credential-namespaces", "heist")
        stack.enter_context(operating(OperatorProcess(kubeconfig, [r.admin_url], tmp_path, *options)))

        refused = apply(server, toolserver(up.url, tokenUrl="https://idp.example/token"))
        assert "set tokenUrl or tokenService, not both" in refused
        server.create_namespace("bank")
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "bot", "namespace": "heist"},
        }
        place = up.url.removesuffix("/mcp")
        grants_and_secret = (binding("bot", ["files:use"]), secret(place, "idp"))
        assert apply(server, account, *grants_and_secret, toolserver(up.url), service(namespace="bank")) == ""

        wait_until(lambda: said("Ready") == ("False", "ServiceMissing"))
        assert "Service heist/idp does not exist" in message("Ready")
        assert apply(server, service()) == ""
        wait_until(lambda: said("Ready") == ("True", "Ready"), 60)
        at = PublishedTokenService(
            namespace="heist", name="idp", port=8080, path="/token", cluster_ip=address()
        )
        wait_until(lambda: published(r) == [at])
        assert grants[0] == {"grant_type": ["client_credentials"]}
        uid = server.read("serviceaccounts", "bot", "heist")["metadata"]["uid"]
        headers = r.auth("heist", "bot", uid=uid)
        answer = r.http.post(f"{r.url}/tools/read", headers=headers, json={"q": 1})
        assert (answer.status_code, answer.json()) == (200, {"q": 1})

        assert apply(server, secret(place)) == ""
        wait_until(lambda: said("Ready") == ("False", "CredentialNotAllowed"))
        assert "does not list 'idp'" in message("Ready")
        assert apply(server, secret(place, "idp")) == ""
        wait_until(lambda: said("Ready") == ("True", "Ready"), 60)
        deleted = server.kubectl("delete", "-n", "heist", "service", "idp")
        assert deleted.returncode == 0, deleted.stderr
        assert apply(server, service(type="ExternalName", externalName="idp.bank.svc.cluster.local")) == ""
        wait_until(lambda: said("Accepted") == ("False", "ServiceUnsupported"))
        wait_until(lambda: published(r) in ([], [None]))
        assert r.http.post(f"{r.url}/tools/read", headers=headers, json={}).status_code in (403, 404, 503)
