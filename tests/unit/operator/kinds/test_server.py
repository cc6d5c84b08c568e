"""ToolServers: the way to a server reaches its tools, a refused or missing one takes them out, and no more is promised than known."""

from typing import Any

import pytest

from manifests import endpoint_slice, manifest, service
from toolcrib.resources import kinds
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Approval
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.imports import ServerWanted
from toolcrib.wire.publish import PublishedServer
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.kind import Situation
from toolcrib_operator.kinds.server import TOOL_SERVER
from toolcrib_operator.kinds.statuses import condition
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.verdicts import ServerVerdict, ToolVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

TOOL, SERVER = Ref("Tool", "heist/echo"), Ref("ToolServer", "heist/files")
PLACE = {"service": {"name": "example-tools", "port": 8080}}


def server(mcp: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return manifest(
        "ToolServer", "files", "heist", **{"mcp": mcp or PLACE, "defaults": {"scopes": ["files:use"]}} | spec
    )


def echo(**spec: Any) -> dict[str, Any]:
    backend = {"mcp": {"serverRef": {"name": "files"}, "tool": "echo it"}}
    return manifest(
        "Tool", "echo", "heist", **{"server": "files", "scopes": ["files:use"], "backend": backend} | spec
    )


def secret(hosts: str = "example-tools") -> dict[str, Any]:
    metadata = {"name": "token", "namespace": "heist", "labels": {"toolcrib.dev/backend-credential": "true"},
                "annotations": {"toolcrib.dev/hosts": hosts}}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"value": "s3cret"}}


class Stage:
    """A World and its Assessor; `turn` assesses what is dirty, as the loop does."""

    def __init__(self, *objects: dict[str, Any], settings: LoopSettings | None = None) -> None:
        self.world = World()
        self.assessor = Assessor(self.world, settings or LoopSettings())
        for kind in WATCHED:
            self.world.replace(kind, [], "100")
        self.versions = 100
        self.apply(*objects)

    def apply(self, *objects: dict[str, Any]) -> None:
        for item in objects:
            self.versions += 1
            metadata = item["metadata"] | {"resourceVersion": str(self.versions), "generation": self.versions}
            self.world.upsert(item["kind"], item | {"metadata": metadata})
        self.turn()

    def remove(self, ref: Ref) -> None:
        self.versions += 1
        self.world.remove(ref.kind, ref.key, str(self.versions))
        self.turn()

    def turn(self) -> None:
        dirty, _ = self.world.take()
        self.assessor.judge(self.assessor.expand(dirty))
        self.assessor.batch()

    @property
    def tool(self) -> ToolVerdict:
        found = self.assessor.verdicts[TOOL]
        assert isinstance(found, ToolVerdict)
        return found

    @property
    def parts(self) -> object:
        found = self.assessor.verdicts[SERVER]
        assert isinstance(found, ServerVerdict)
        return found.published

    @property
    def backend(self) -> PublishedBackend | None:
        return None if self.tool.published is None else self.tool.published.backend

    def conditions(self) -> dict[str, tuple[str, str]]:
        record, entry = self.assessor.facts.records[SERVER], self.world.get(SERVER)
        assert entry is not None
        desired = TOOL_SERVER.status(entry, record, _nobody(self.assessor), 100.0).status
        kinds = ("Ready", "Accepted", "Verified", "Imported")
        found = {kind: condition(desired, kind) for kind in kinds}
        return {kind: (c["status"], c["reason"]) for kind, c in found.items() if c is not None}


def _nobody(assessor: Assessor) -> Situation:
    class Nobody:
        facts = assessor.facts

        def imported(self, server: Ref) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"a ToolServer's status asked for {name}")

    return Nobody()  # type: ignore[return-value]


def test_a_tool_carries_the_whole_way_to_its_server() -> None:
    stage = Stage(server(), echo(), service(), endpoint_slice())
    assert stage.backend == PublishedBackend(
        service_namespace="heist", service_name="example-tools", service_port=8080, cluster_ip="10.96.0.17",
        path="/mcp", timeout=30.0, mcp=PublishedMcp(server="heist/files", tool="echo it"),
    )  # fmt: skip


def test_an_edit_of_the_server_moves_its_tools_and_their_route_digest() -> None:
    stage = Stage(server({"url": "https://one.example/mcp"}), echo())
    assert stage.tool.published is not None
    before = stage.tool.published
    stage.apply(server({"url": "https://two.example/mcp"}))
    assert stage.backend is not None
    assert stage.backend.url == "https://two.example/mcp"
    assert stage.tool.published.route_digest != before.route_digest
    assert stage.tool.published.digest == before.digest


def test_another_tool_of_the_server_is_another_route() -> None:
    stage = Stage(server({"url": "https://one.example/mcp"}), echo())
    assert stage.tool.published is not None
    before = stage.tool.published.route_digest
    stage.apply(echo(backend={"mcp": {"serverRef": {"name": "files"}, "tool": "delete it"}}))
    assert stage.tool.published.route_digest != before


def test_a_tool_without_its_server_is_not_there_until_the_server_is() -> None:
    stage = Stage(echo())
    assert stage.tool.refusal is not None
    assert stage.tool.refusal.reason is ConditionReason.SERVER_MISSING
    stage.apply(server({"url": "https://one.example/mcp"}))
    assert stage.backend is not None
    stage.remove(SERVER)
    assert stage.tool.published is None


def test_the_tools_of_a_disabled_server_are_absent() -> None:
    stage = Stage(server(state="Disabled"), echo(), service())
    assert stage.tool.published is not None
    assert not stage.tool.published.active
    assert stage.conditions()["Ready"] == ("False", "Disabled")


def test_a_service_that_may_lead_anywhere_takes_the_server_and_its_tools_out() -> None:
    stage = Stage(server(), echo(), service(), endpoint_slice())
    stage.apply(service(type="ExternalName", externalName="evil.example"))
    assert stage.tool.refusal is not None
    assert stage.tool.refusal.reason is ConditionReason.SERVER_NOT_ACCEPTED
    assert stage.conditions()["Accepted"] == ("False", "ServiceUnsupported")


def test_a_service_that_moves_moves_the_tools_of_its_server() -> None:
    stage = Stage(server(), echo(), service(), endpoint_slice())
    stage.apply(service(clusterIP="10.96.0.99"))
    assert stage.backend is not None
    assert stage.backend.cluster_ip == "10.96.0.99"


def test_a_tool_of_a_server_whose_service_is_missing_waits() -> None:
    stage = Stage(server(), echo())
    assert stage.backend is not None
    assert stage.backend.cluster_ip is None
    assert stage.tool.service is not None
    assert stage.tool.service.reason is ConditionReason.SERVICE_MISSING
    assert stage.conditions()["Ready"] == ("False", "ServiceMissing")


def test_the_credential_of_a_server_goes_where_its_secret_says() -> None:
    auth = {"type": "Bearer", "secretKeyRef": {"name": "token", "key": "value"}}
    stage = Stage(server({**PLACE, "auth": auth}), echo(), service(), endpoint_slice(), secret())
    assert [c.name for c in stage.assessor.credentials] == ["token"]
    stage.apply(secret("elsewhere.example"))
    assert not stage.assessor.credentials
    assert stage.tool.credential is not None
    assert stage.tool.credential.reason is ConditionReason.CREDENTIAL_NOT_ALLOWED
    assert stage.conditions()["Ready"] == ("False", "CredentialNotAllowed")


def test_no_status_says_that_a_server_was_read_before_it_was() -> None:
    stage = Stage(server(), service(), endpoint_slice())
    assert stage.conditions() == {
        "Ready": ("False", "NotYetImported"), "Accepted": ("True", "Accepted"),
        "Verified": ("Unknown", "NotYetImported"), "Imported": ("False", "NotYetImported"),
    }  # fmt: skip


def test_a_replica_is_asked_for_a_server_that_is_used_and_for_no_other() -> None:
    auth = {"type": "Bearer", "secretKeyRef": {"name": "token", "key": "value"}}
    stage = Stage(server({**PLACE, "auth": auth}), service(), endpoint_slice())

    def wanted() -> ServerWanted | None:
        found = stage.assessor.verdicts[SERVER]
        assert isinstance(found, ServerVerdict)
        return found.wanted

    asked = wanted()
    assert asked is not None
    assert (asked.server, asked.every, asked.backend.cluster_ip) == ("heist/files", 300.0, "10.96.0.17")
    assert asked.backend.auth is not None
    stage.apply(server(state="Disabled"))
    assert wanted() is None
    stage.apply(server(), service(type="ExternalName", externalName="evil.example"))
    assert wanted() is None


def test_a_server_that_cannot_be_read_is_refused_and_its_tools_with_it() -> None:
    stage = Stage(server({"url": "ftp://one.example"}), echo())
    found = stage.assessor.verdicts[SERVER]
    assert isinstance(found, ServerVerdict)
    assert found.refusal is not None
    assert found.refusal.reason is ConditionReason.INVALID
    assert stage.tool.refusal is not None
    assert stage.tool.refusal.reason is ConditionReason.SERVER_NOT_ACCEPTED


@pytest.mark.parametrize(
    ("mcp", "written", "approval", "refresh"),
    [
        ({"url": "https://one.example/mcp"}, {}, Approval.MANUAL, 60.0),
        (PLACE, {}, Approval.AUTOMATIC, 300.0),
        ({"url": "https://one.example/mcp"}, {"approval": "Automatic"}, Approval.AUTOMATIC, 300.0),
        (PLACE, {"approval": "Manual", "refreshInterval": "2m"}, Approval.MANUAL, 120.0),
    ],
)
def test_servers_outside_the_cluster_need_approval_unless_they_say_otherwise(
    mcp: dict[str, Any], written: dict[str, Any], approval: Approval, refresh: float
) -> None:
    parsed = kinds.parse(server(mcp, **{"import": written}), strict=True)
    assert isinstance(parsed, ToolServer)
    assert (parsed.spec.approval, parsed.spec.refresh) == (approval, refresh)


@pytest.mark.parametrize(("written", "seconds"), [({}, 600.0), ({"shrinkGrace": "2h"}, 7_200.0)])
def test_what_a_shrunken_list_lacks_stays_for_ten_minutes_unless_the_server_says_otherwise(
    written: dict[str, Any], seconds: float
) -> None:
    parsed = kinds.parse(server(PLACE, **{"import": written}), strict=True)
    assert isinstance(parsed, ToolServer)
    assert parsed.spec.grace == seconds


COMMAND = {"command": ["uvx", "mcp-server-time", "a b"]}


def verdict_of(stage: Stage) -> ServerVerdict:
    found = stage.assessor.verdicts[SERVER]
    assert isinstance(found, ServerVerdict)
    return found


@pytest.mark.parametrize("allowed", [(), ("heist/other",), ("other/files",)])
def test_a_command_that_nobody_allowed_is_not_watched_and_the_condition_says_what_it_would_run(
    allowed: tuple[str, ...],
) -> None:
    stage = Stage(server(COMMAND), settings=LoopSettings(programs=allowed))
    assert verdict_of(stage).wanted is None
    assert stage.conditions()["Ready"] == ("False", "StdioNotAllowed")
    lacking = verdict_of(stage).lacking
    assert lacking is not None
    assert (
        "It would run: uvx mcp-server-time 'a b'. Only `toolcrib up --allow-stdio=heist/files`"
        in lacking.message
    )


@pytest.mark.parametrize("allowed", ["heist/files", "*"])
def test_an_allowed_command_is_watched_and_waits_for_the_secrets_that_it_names(allowed: str) -> None:
    env = [{"name": "KEY", "secretKeyRef": {"name": "token", "key": "value"}}, {"name": "A", "value": "b"}]
    stage = Stage(server(COMMAND | {"env": env}), settings=LoopSettings(programs=(allowed,)))
    assert verdict_of(stage).wanted is None
    assert stage.conditions()["Ready"] == ("False", "CredentialMissing")
    stage.apply(secret(hosts=""))
    wanted = verdict_of(stage).wanted
    assert wanted is not None
    assert wanted.backend.program is not None
    assert wanted.backend.program.values == {"A": "b"}
    assert "s3cret" not in wanted.model_dump_json()


def parts(stage: Stage) -> set[str]:
    published = stage.parts
    assert published is None or isinstance(published, PublishedServer)
    return set() if published is None else {part.tool_id for part in published.parts}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"heist/files:@resources", "heist/files:@prompts"}),
        ({"prompts": False}, {"heist/files:@resources"}),
        ({"resources": False}, {"heist/files:@prompts"}),
        ({"resources": False, "prompts": False}, set()),
        ({"state": "Disabled"}, set()),
        ({"mcp": {"command": ["server"]}}, set()),
    ],
)
def test_its_resources_and_prompts_are_published_unless_they_are_switched_off_or_it_is(
    spec: dict[str, Any], expected: set[str]
) -> None:
    assert parts(Stage(server(**spec), service())) == expected


def test_what_stands_for_them_has_the_servers_way_and_scopes() -> None:
    published = Stage(server(), service()).parts
    assert isinstance(published, PublishedServer)
    for part in published.parts:
        assert part.backend is not None
        assert (part.scopes, part.server, part.namespace) == (("files:use",), "files", "heist")
        assert (part.backend.service, part.backend.mcp) == (
            "heist/example-tools",
            PublishedMcp(server="heist/files", tool=""),
        )
