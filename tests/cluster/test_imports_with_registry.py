"""One `kubectl apply` of a ToolServer: the tools of the SDK's own server are found and called, through real parts alone."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dex import Dex, secret_of
from manifests import binding, manifest
from mcp_peers import environments, python_server, reference_servers
from operator_harness import conditions
from operator_process import OperatorProcess, running
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import absent, require_real
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry

ROOT = Path(__file__).parents[2]
TOOLS = {"add", "fails", "blocks", "asks", "grow"}

pytestmark = [pytest.mark.real, pytest.mark.peers]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)
    with ApiServer() as server:
        for path in ("crds", "examples/cluster/rbac.yaml"):
            applied = server.kubectl("apply", "-f", str(ROOT / path))
            assert applied.returncode == 0, applied.stderr
        server.create_namespace("heist")
        yield server


def apply(server: ApiServer, *items: dict[str, Any]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    result = server.kubectl("apply", "-f", "-", input=body)
    assert result.returncode == 0, result.stderr


def toolserver(name: str, url: str, **spec: Any) -> dict[str, Any]:
    body = {"mcp": {"url": url}, "defaults": {"scopes": ["peer:use"]}, "import": {"approval": "Automatic"}}
    return manifest("ToolServer", name, "heist", **body | spec)


def said(server: ApiServer, name: str) -> dict[str, tuple[str, str]]:
    path = f"/apis/toolcrib.dev/v1alpha1/namespaces/heist/toolservers/{name}"
    return conditions(server.client.get(path).json().get("status"))


def seen(registry: RunningRegistry, headers: dict[str, str]) -> set[str]:
    return {tool["name"] for tool in registry.http.get(registry.url, headers=headers).json()["tools"]}


def test_a_toolserver_brings_its_tools_to_agents_and_follows_its_server(
    server: ApiServer, tmp_path: Path
) -> None:
    token, home = tmp_path / "token", tmp_path / "peer"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    home.mkdir()
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "bot", "namespace": "heist"},
    }
    with running_registry(publish=False) as registry:
        options = (kubeconfig, [registry.admin_url], tmp_path, "--token-file", str(token))
        with (
            running(OperatorProcess(*options, observed=True)),
            python_server.running(home, "sdk", "json") as url,
        ):
            apply(server, account, binding("bot", ["peer:use"]), toolserver("peer", url),
                  toolserver("away", "http://127.0.0.1:9/mcp"))  # fmt: skip
            uid = server.kubectl(
                "get", "-n", "heist", "serviceaccount", "bot", "-o", "jsonpath={.metadata.uid}"
            )
            headers = registry.auth("heist", "bot", uid=uid.stdout)

            def call(tool: str, **arguments: Any) -> Any:
                return registry.http.post(f"{registry.url}/tools/{tool}", headers=headers, json=arguments)

            wait_until(lambda: seen(registry, headers) == TOOLS)
            wait_until(lambda: said(server, "peer").get("Ready") == ("True", "Ready"))
            wait_until(lambda: said(server, "away").get("Ready", ("", ""))[0] == "False")
            assert call("add", a=2, b=3).json()["result"] == 5
            found = registry.http.post(
                f"{registry.url}/v1/search", headers=headers, json={"query": "add", "min_score": 0}
            )
            assert "peer" in {hit["server"] for hit in found.json()["tools"]}

            took = []
            for number in range(3):
                began = time.monotonic()
                assert call("grow", name=f"new_{number}").is_success
                wait_until(lambda n=number: f"new_{n}" in seen(registry, headers), interval=0.02)  # type: ignore[misc]
                took.append(time.monotonic() - began)
            print(f"a new tool is listed after {', '.join(f'{s:.2f} s' for s in took)}")
            assert min(took) < 1.0

            apply(
                server,
                toolserver(
                    "peer", url, **{"import": {"approval": "Automatic", "exclude": ["new_*", "asks"]}}
                ),
            )
            wait_until(lambda: seen(registry, headers) == TOOLS - {"asks"})
            apply(server, toolserver("peer", url, state="Disabled"))
            wait_until(lambda: seen(registry, headers) == set())
            apply(server, toolserver("peer", url))
            wait_until(lambda: seen(registry, headers) == TOOLS | {"new_0", "new_1", "new_2"})
            wait_until(lambda: said(server, "peer").get("Ready") == ("True", "Ready"))

            # a server outside the cluster, as it is by default needs approval: nothing of it is there until somebody approves
            apply(server, toolserver("peer", url, **{"import": {"include": ["add"], "approval": "Manual"}}))
            wait_until(lambda: seen(registry, headers) == set())
            apply(server, toolserver("peer", url))
            wait_until(lambda: seen(registry, headers) >= TOOLS)
            # the server goes: its tools stay, and their calls fail typed
        with running(OperatorProcess(*options, observed=True)) as operator:
            wait_until(lambda: said(server, "peer").get("Ready") == ("False", "Unreachable"), 60)
            assert seen(registry, headers) >= TOOLS
            failed = call("add", a=1, b=1)
            assert failed.status_code in (502, 503)
            assert failed.json()["code"]
            deleted = server.kubectl("delete", "-n", "heist", "toolserver.toolcrib.dev/peer", "--timeout=60s")
            assert deleted.returncode == 0, deleted.stderr
            wait_until(lambda: seen(registry, headers) == set())
            # the registry dials, the operator writes
            assert operator.dialled == {_place(server.url), _place(registry.admin_url)}


def _place(url: str) -> tuple[str | None, int | None]:
    return urlsplit(url).hostname, urlsplit(url).port


@pytest.fixture(params=["files", "bridge"])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, str, set[str]]]:
    """A file of examples/servers, its Service and where that is, and the tools of its server."""
    home = tmp_path / request.param
    home.mkdir()
    if request.param == "files":
        with python_server.running(home, "fastmcp", "json") as url:
            yield "files", "files-mcp", url, TOOLS
    else:
        with reference_servers.running(home, "time") as urls:
            yield "bridge", "time-mcp", urls["time"], {"convert_time", "get_current_time"}


def test_each_example_is_one_apply_from_a_server_to_its_tools(
    server: ApiServer, example: tuple[str, str, str, set[str]], tmp_path: Path
) -> None:
    file, service, url, tools = example
    token = tmp_path / "token"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    place = url.removeprefix("http://").removesuffix("/mcp")
    with running_registry(publish=False, backends={f"heist/{service}": place}) as registry:
        options = (kubeconfig, [registry.admin_url], tmp_path, "--token-file", str(token))
        with running(OperatorProcess(*options)):
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "planner", "namespace": "heist"},
            }
            apply(server, account)
            applied = server.kubectl("apply", "-f", str(ROOT / f"examples/servers/{file}.yaml"))
            assert applied.returncode == 0, applied.stderr
            uid = server.kubectl(
                "get", "-n", "heist", "serviceaccount", "planner", "-o", "jsonpath={.metadata.uid}"
            )
            headers = registry.auth("heist", "planner", uid=uid.stdout)
            wait_until(lambda: seen(registry, headers) == tools)
            name = service.removesuffix("-mcp")
            wait_until(lambda: said(server, name).get("Ready") == ("True", "Ready"))


def credential(hosts: str, **values: str) -> dict[str, Any]:
    labels, annotations = {"toolcrib.dev/backend-credential": "true"}, {"toolcrib.dev/hosts": hosts}
    metadata = {"name": "client", "namespace": "heist", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}


def message(server: ApiServer, name: str) -> str:
    path = f"/apis/toolcrib.dev/v1alpha1/namespaces/heist/toolservers/{name}"
    found = server.client.get(path).json()["status"]["conditions"]
    return str(next(each["message"] for each in found if each["type"] == "Ready"))


@contextmanager
def operating(server: ApiServer, folder: Path, *more: str) -> Iterator[RunningRegistry]:
    """A registry, and the operator's own process that publishes to it."""
    token = folder / "token"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
    with running_registry(publish=False) as registry:
        options = ("--token-file", str(token), *more)
        with running(OperatorProcess(kubeconfig, [registry.admin_url], folder, *options)):
            yield registry


def test_a_server_that_wants_a_login_says_so_with_the_address_that_describes_it(
    server: ApiServer, tmp_path: Path
) -> None:
    home = tmp_path / "peer"
    home.mkdir()
    with python_server.running(home, "sdk", "json", "login") as url, operating(server, tmp_path):
        apply(server, toolserver("peer", url))
        wait_until(lambda: said(server, "peer").get("Ready") == ("False", "LoginRequired"), 60)
        assert "https://peer.example/.well-known/oauth-protected-resource/mcp" in message(server, "peer")
        assert said(server, "peer")["Imported"][0] == "False"


def test_a_server_is_imported_with_tokens_of_its_authorization_server_until_the_secret_is_gone(
    server: ApiServer, tmp_path: Path
) -> None:
    require_real("dex")
    home = tmp_path / "peer"
    home.mkdir()
    bound = server.kubectl("-n", "heist", "create", "rolebinding", "toolcrib-credentials", "--clusterrole",
                           "toolcrib-credentials", "--serviceaccount", "toolcrib-system:toolcrib-operator")  # fmt: skip
    assert bound.returncode == 0, bound.stderr
    with ExitStack() as stack:
        dex = stack.enter_context(Dex(["toolcrib"]))
        url = stack.enter_context(python_server.running(home, "sdk", "json", f"issuer={dex.issuer}"))
        registry = stack.enter_context(operating(server, tmp_path, "--credential-namespaces", "heist"))
        auth = {
            "type": "ClientCredentials",
            "secretKeyRef": {"name": "client", "key": "client-secret"},
            "oauth": {},
        }
        secret = {"client-id": "toolcrib", "client-secret": secret_of("toolcrib")}
        apply(
            server,
            credential(f"{dex.issuer}/token {url.removesuffix('/mcp')}", **secret),
            toolserver("peer", url, mcp={"url": url, "auth": auth}),
        )

        wait_until(lambda: said(server, "peer").get("Ready") == ("True", "Ready"), 60)
        gone = server.kubectl("-n", "heist", "delete", "secret", "client")
        assert gone.returncode == 0, gone.stderr
        wait_until(lambda: said(server, "peer").get("Ready") == ("False", "CredentialMissing"), 60)
        wait_until(lambda: len(registry.registry.deps.credentials) == 0, 60)
        assert secret_of("toolcrib") not in message(server, "peer") + registry.metrics()
