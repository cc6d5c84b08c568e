"""The API server that the other tests stand on does what they rely on."""

import json
from collections.abc import Iterator

import httpx
import jwt
import pytest

from realparts import processes
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real


@pytest.fixture(scope="module")
def own_server() -> Iterator[ApiServer]:
    require_real("kube-apiserver", "etcd", "kubectl")
    users = {"olivia": ("olivia-token", ["auditors"])}
    with ApiServer(users=users, public_jwks=True) as server:
        yield server


def make_service_account(server: ApiServer, namespace: str, name: str) -> None:
    made = server.kubectl("create", "serviceaccount", name, "-n", namespace)
    assert made.returncode == 0, made.stderr


def signing_key(jwks: httpx.Response, token: str) -> jwt.PyJWK:
    return jwt.PyJWKSet.from_dict(jwks.raise_for_status().json())[jwt.get_unverified_header(token)["kid"]]


def test_kubectl_applies_a_manifest_and_reads_it_back(apiserver: ApiServer, namespace: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "plan", "namespace": namespace},
        "data": {"vault": "third floor"},
    }

    applied = apiserver.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    read = apiserver.kubectl("get", "configmap", "plan", "-n", namespace, "-o", "jsonpath={.data.vault}")

    assert applied.returncode == 0, applied.stderr
    assert read.stdout == "third floor"


def test_a_service_account_token_verifies_against_the_published_keys(
    apiserver: ApiServer, namespace: str
) -> None:
    make_service_account(apiserver, namespace, "planner")

    token = apiserver.token_request(namespace, "planner", ["toolcrib"], seconds=600)

    key = signing_key(apiserver.client.get("/openid/v1/jwks"), token)
    claims = jwt.decode(token, key, algorithms=["RS256"], audience="toolcrib", issuer=apiserver.issuer)
    assert claims["sub"] == f"system:serviceaccount:{namespace}:planner"
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, algorithms=["RS256"], audience=apiserver.issuer)


def test_the_signing_keys_are_not_for_anonymous_callers_by_default(apiserver: ApiServer) -> None:
    with apiserver.client_for(None) as anonymous:
        assert anonymous.get(apiserver.jwks_url).status_code == httpx.codes.FORBIDDEN


def test_the_signing_keys_can_be_made_public(own_server: ApiServer) -> None:
    with own_server.client_for(None) as anonymous:
        # the API server reads the binding a moment later
        wait_until(lambda: anonymous.get(own_server.jwks_url).is_success, timeout=30, interval=0.05)
        assert anonymous.get(own_server.jwks_url).json()["keys"]


def test_rbac_decides_about_a_service_account_and_about_a_user(own_server: ApiServer) -> None:
    make_service_account(own_server, "default", "hacker")
    role = ("create", "clusterrole", "audit", "--verb=list", "--resource=configmaps")
    binding = ("create", "clusterrolebinding", "auditors", "--clusterrole=audit", "--group=auditors")
    for command in (role, binding):
        assert own_server.kubectl(*command).returncode == 0

    def olivia_may() -> bool:
        return own_server.kubectl("get", "configmaps", token="olivia-token").returncode == 0

    processes.wait_until(olivia_may)
    hacker = own_server.kubectl("get", "configmaps", token=own_server.token_request("default", "hacker"))
    assert "cannot list" in hacker.stderr


def test_a_paused_server_answers_nothing_and_goes_on_when_resumed(own_server: ApiServer) -> None:
    own_server.pause()
    try:
        with pytest.raises(httpx.TimeoutException):
            own_server.client.get("/readyz", timeout=0.3)
    finally:
        own_server.resume()

    processes.wait_until(own_server.ready)


def test_a_crashed_server_comes_back_on_its_port_with_its_data(own_server: ApiServer) -> None:
    own_server.create_namespace("survivor")
    before = own_server.process.pid

    own_server.kill()
    assert not own_server.ready()
    own_server.start()

    assert own_server.process.pid != before
    assert own_server.client.get("/api/v1/namespaces/survivor").is_success


def test_purging_removes_objects_whose_finalizer_nobody_honours(own_server: ApiServer) -> None:
    own_server.client.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=crd("gadgets", "Gadget")
    ).raise_for_status()
    waited = own_server.kubectl(
        "wait", "--for=condition=Established", "crd/gadgets.parts.test", "--timeout=60s"
    )
    assert waited.returncode == 0, waited.stderr
    gadgets = "/apis/parts.test/v1/namespaces/default/gadgets"
    gadget = {
        "apiVersion": "parts.test/v1",
        "kind": "Gadget",
        "metadata": {"name": "drill", "finalizers": ["parts.test/never"]},
    }
    # it is served a moment after it says so
    processes.wait_until(lambda: own_server.client.get(gadgets).is_success)
    own_server.client.post(gadgets, json=gadget).raise_for_status()

    own_server.purge("default", group="parts.test")

    assert own_server.client.get(gadgets).json()["items"] == []


def test_a_deleted_namespace_is_gone(own_server: ApiServer) -> None:
    own_server.create_namespace("short-lived")

    own_server.delete_namespace("short-lived")

    assert own_server.client.get("/api/v1/namespaces/short-lived").status_code == httpx.codes.NOT_FOUND


def crd(plural: str, kind: str) -> dict[str, object]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": f"{plural}.parts.test"},
        "spec": {
            "group": "parts.test",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
