"""Token endpoints at Services: judged and published as the Services of backends are."""

import base64
from typing import Any

import pytest

from manifests import endpoint_slice, manifest, service, tool
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.backends import PublishedBackend, PublishedTokenService
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.secret import HOSTS, LABEL
from toolcrib_operator.kinds.service import ENDPOINT_SLICE, SERVICE
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.verdicts import ServerVerdict, ToolVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

AT = {"name": "idp", "port": 9090, "path": "/token"}
AUTH = {
    "type": "ClientCredentials",
    "secretKeyRef": {"name": "client", "key": "secret"},
    "oauth": {"tokenService": AT},
}
TOOL = tool(
    "calculator", backend={"http": {"service": {"name": "example-tools", "port": 8080}}, "auth": AUTH}
)
SERVER = manifest(
    "ToolServer",
    "files",
    "heist",
    mcp={"url": "https://a.example/mcp", "auth": AUTH},
    defaults={"scopes": ["use"]},
)
PORTS = [{"port": 9090, "protocol": "TCP"}]
IP = "10.96.0.99"


def idp(**spec: Any) -> dict[str, Any]:
    return service("idp", **{"clusterIP": IP, "ports": PORTS} | spec)


def secret(hosts: str) -> dict[str, Any]:
    metadata = {
        "name": "client",
        "namespace": "heist",
        "labels": {LABEL: "true"},
        "annotations": {HOSTS: hosts},
    }
    values = {key: base64.b64encode(b"v").decode() for key in ("client-id", "secret")}
    return {"kind": "Secret", "metadata": metadata, "data": values}


class Stage:
    """A World and its Assessor with these objects, a Secret that lists all places among them."""

    def __init__(self, *objects: dict[str, Any], hosts: str = "example-tools a.example idp") -> None:
        self.world, self.versions = World(), 100
        self.assessor = Assessor(self.world, LoopSettings())
        everything = [
            o | {"metadata": o["metadata"] | {"resourceVersion": "50"}} for o in (*objects, secret(hosts))
        ]
        for kind in WATCHED:
            self.world.replace(kind, [o for o in everything if o["kind"] == kind], "100")
        self.world.replace("Secret", [o for o in everything if o["kind"] == "Secret"], "100")
        self.turn()

    def turn(self) -> None:
        self.assessor.judge(self.assessor.expand(self.world.take()[0]))

    def apply(self, item: dict[str, Any]) -> None:
        self.versions += 1
        metadata = item["metadata"] | {"resourceVersion": str(self.versions)}
        self.world.upsert(item["kind"], item | {"metadata": metadata})
        self.turn()

    def delete(self, kind: str, key: str) -> None:
        self.versions += 1
        self.world.remove(kind, key, str(self.versions))
        self.turn()

    @property
    def tool(self) -> ToolVerdict:
        found = self.assessor.verdicts[Ref("Tool", "heist/calculator")]
        assert isinstance(found, ToolVerdict)
        return found

    @property
    def server(self) -> ServerVerdict:
        found = self.assessor.verdicts[Ref("ToolServer", "heist/files")]
        assert isinstance(found, ServerVerdict)
        return found

    @property
    def lacking(self) -> tuple[ConditionReason | None, str]:
        """What a tool and a server lack, which is the same."""
        cause = self.tool.service or self.tool.credential
        other = self.server.lacking
        assert (cause and cause.reason) == (other and other.reason)
        return (None, "") if cause is None else (cause.reason, cause.message)

    def endpoints(self) -> list[PublishedTokenService | None]:
        """As the tool and the server are published: for calls, for the list, for resources and prompts."""
        tool, server = self.tool.published, self.server
        assert tool is not None
        assert server.wanted is not None
        assert server.published is not None
        backends = [tool.backend, server.wanted.backend, *(part.backend for part in server.published.parts)]
        return [at(each) for each in backends]


def at(backend: PublishedBackend | None) -> PublishedTokenService | None:
    assert backend is not None
    return backend.token_service


def expected(ip: str | None) -> list[PublishedTokenService]:
    return [PublishedTokenService(namespace="heist", name="idp", port=9090, path="/token", cluster_ip=ip)] * 4


def test_the_services_address_is_published_as_it_comes_moves_and_goes() -> None:
    stage = Stage(TOOL, SERVER, service(), endpoint_slice())
    assert stage.lacking[0] is ConditionReason.SERVICE_MISSING
    assert "Service heist/idp does not exist" in stage.lacking[1]
    assert "spec.backend.auth.oauth.tokenService.name" in stage.lacking[1]
    assert stage.endpoints() == expected(None)

    stage.apply(idp())
    assert stage.lacking == (None, "")
    assert stage.endpoints() == expected(IP)
    assert stage.tool.published is not None
    assert stage.tool.published.backend is not None
    assert stage.tool.published.backend.cluster_ip == "10.96.0.17"
    stage.apply(idp(clusterIP="10.96.0.98"))
    assert stage.endpoints() == expected("10.96.0.98")
    stage.apply(idp(ports=[{"port": 1, "protocol": "TCP"}]))
    assert "has no TCP port 9090" in stage.lacking[1]
    assert stage.endpoints() == expected(None)
    stage.delete(SERVICE, "heist/idp")
    assert stage.lacking[0] is ConditionReason.SERVICE_MISSING


def test_a_service_of_another_namespace_is_not_meant() -> None:
    stage = Stage(TOOL, SERVER, service(), service("idp", "bank", ports=PORTS))

    assert stage.lacking[0] is ConditionReason.SERVICE_MISSING
    assert stage.endpoints() == expected(None)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "ExternalName", "externalName": "metadata.internal"}, "ExternalName"),
        ({"clusterIP": "None"}, "headless"),
        ({"selector": None}, "no selector"),
    ],
)
def test_a_service_that_may_lead_elsewhere_refuses_the_tool_and_the_server(
    spec: dict[str, Any], said: str
) -> None:
    stage = Stage(TOOL, SERVER, service(), idp(**spec))

    assert stage.tool.published is None
    assert (stage.server.published, stage.server.wanted) == (None, None)
    for refusal in (stage.tool.refusal, stage.server.refusal):
        assert refusal is not None
        assert refusal.reason is ConditionReason.SERVICE_UNSUPPORTED
        assert "Service heist/idp" in refusal.message
        assert said in refusal.message


def test_endpoints_that_are_written_by_hand_refuse_it_until_they_are_gone() -> None:
    stage = Stage(TOOL, SERVER, service(), idp())
    forged = endpoint_slice("evil", manager=None)
    forged["metadata"]["labels"]["kubernetes.io/service-name"] = "idp"
    stage.apply(forged)
    assert (stage.tool.published, stage.server.wanted) == (None, None)
    stage.delete(ENDPOINT_SLICE, "heist/evil")
    assert stage.endpoints() == expected(IP)


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [
        ("example-tools a.example idp", True),
        ("example-tools a.example idp:9090", True),
        ("example-tools a.example idp.heist.svc.cluster.local", True),
        ("example-tools a.example idp:80", False),
        ("example-tools a.example idp.bank.svc", False),
        ("example-tools a.example https://idp", False),
        ("example-tools a.example", False),
        ("idp", False),
    ],
)
def test_the_secret_lists_the_service_as_it_lists_the_backend(hosts: str, allowed: bool) -> None:
    stage = Stage(TOOL, SERVER, service(), idp(), hosts=hosts)

    assert stage.lacking[0] is (None if allowed else ConditionReason.CREDENTIAL_NOT_ALLOWED)
    assert len(stage.assessor.credentials) == (2 if allowed else 0)
