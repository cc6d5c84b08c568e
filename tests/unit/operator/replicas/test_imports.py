"""A server's list stands as Tools: new, changed and gone; kept while nobody knows; never another's."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from manifests import manifest
from operator_harness import MemoryReplica
from operator_stage import SETTINGS, Stage, staged
from toolcrib import names
from toolcrib.errors import EpochFenced
from toolcrib.resources.quantities import Quota
from toolcrib.wire.features import FEATURES
from toolcrib.wire.imports import ListedTool, ServerList, ServerOutcome, ServerSeen
from toolcrib_operator.errors import ClusterUnavailable, Invalid
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.settings import ImportSettings, LoopSettings
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio
FAST = ImportSettings(wait=2.0, backoff=(0.02, 0.1), again=0.1)
DONE = {
    "Ready": ("True", "Ready"), "Accepted": ("True", "Accepted"),
    "Verified": ("True", "Verified"), "Imported": ("True", "Imported"),
    "Drifted": ("False", "NothingDrifted"),
}  # fmt: skip
FILES = "heist/files"


def server(name: str = "files", **spec: Any) -> dict[str, Any]:
    body = {
        "mcp": {"service": {"name": f"{name}-mcp", "port": 8080}},
        "defaults": {"scopes": [f"{name}:use"]},
    } | spec
    made = manifest("ToolServer", name, "heist", **body)
    made["metadata"]["uid"] = f"uid-{name}"
    return made


def listing(*tools: str, of: str = FILES, text: str = "Reads a thing of the system") -> ServerList:
    items = [ListedTool(name=t, description=f"{text}: {t}", input_schema={"type": "object"}) for t in tools]
    digest = f"sha256:{hash((tools, text)) & 0xFFFF:04x}"
    return ServerList(server=of, set_digest=digest, tools=tuple(items))


def trouble(outcome: ServerOutcome, detail: str = "No answer.", of: str = FILES) -> ServerSeen:
    return ServerSeen(server=of, outcome=outcome, detail=detail)


def replica_with(*lists: ServerList) -> MemoryReplica:
    replica = MemoryReplica()
    for each in lists:
        replica.serve(each)
    return replica


def tools(stage: Stage, of: str = "files") -> set[str]:
    """The names of the Tools of a server that there are."""
    found = (entry.head for entry in stage.world.all("Tool"))
    return {t.spec.name for t in found if t is not None and t.spec.server == of}  # type: ignore[union-attr, misc]


def published(replica: MemoryReplica) -> dict[str, Any]:
    """The active tools that the replica has, by name."""
    return {t.name: t for t in replica.snapshot.tools.values() if t.active}


def said(stage: Stage, name: str = FILES) -> dict[str, tuple[str, str]]:
    return stage.said(name, "ToolServer")


def taken_over(world: World) -> World:
    """As another leader finds it: everything is to be assessed."""
    world.touch([entry.ref for kind in ("ToolServer", "Tool") for entry in world.all(kind)])
    return world


def imports(stage: Stage) -> Imports:
    assert stage.imports is not None
    return stage.imports


def is_carried(stage: Stage, name: str = FILES) -> bool:
    """Whether the whole list was compared, and all that differs written."""
    state = imports(stage).of(Ref("ToolServer", name))
    return state is not None and state.carried is not None and state.carried.done


async def test_one_toolserver_brings_its_tools_and_its_status_says_so() -> None:
    replica = replica_with(listing("read", "write"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        await until(lambda: set(published(replica)) == {"read", "write"})
        tool = published(replica)["read"]
        assert (tool.server, tool.scopes, tool.source) == ("files", ("files:use",), "import")
        assert (tool.backend.mcp.server, tool.backend.mcp.tool) == (FILES, "read")
        status = stage.world.get(Ref("ToolServer", FILES)).status  # type: ignore[union-attr]
        assert status["toolCount"] == 2
        assert status["serverInfo"] == {"name": "peer", "version": "1"}
        assert status["protocolVersion"] == "2026-07-28"
        assert status["setDigest"] == replica.server_lists[FILES].set_digest
        read = f"heist/{names.object_name('files', 'read')}"
        await until(lambda: stage.said(read, "Tool").get("Ready") == ("True", "Ready"))


async def test_a_change_at_the_server_is_a_change_of_its_tools() -> None:
    replica = replica_with(listing("a", "b", "c"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: set(published(replica)) == {"a", "b", "c"})
        replica.serve(listing("a", "b", "d", text="Something else"))
        await until(lambda: set(published(replica)) == {"a", "b", "d"})
        await until(lambda: published(replica)["a"].description == "Something else: a")
        await until(lambda: said(stage) == DONE)


async def test_a_steady_state_writes_nothing_after_a_restart_too() -> None:
    replica = replica_with(listing("a", "b"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        await until(lambda: len(published(replica)) == 2)
        world, before = stage.world, imports(stage).applied
        replica.server_counter += 1  # a report that says the same
        asked = len(replica.server_requests)
        await until(lambda: len(replica.server_requests) > asked + 1)
        assert imports(stage).applied == before == 2
        await until(lambda: stage.loop.status_writer.backlog == 0)
    replica.restart()
    lists = len(replica.list_requests)
    async with staged(world=taken_over(world), replica=replica, imports=FAST) as stage:
        await until(lambda: len(replica.list_requests) > lists)
        await until(lambda: is_carried(stage))
        assert (imports(stage).applied, imports(stage).deleted) == (0, 0)
        assert said(stage) == DONE


async def test_a_server_that_is_down_keeps_its_tools_and_says_so() -> None:
    replica = replica_with(listing("a"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE and set(published(replica)) == {"a"})
        replica.serve(trouble(ServerOutcome.UNREACHABLE, "10.0.0.1:80 refuses connections."))
        await until(lambda: said(stage)["Verified"] == ("False", "Unreachable"))
        assert said(stage)["Ready"] == ("False", "Unreachable")
        assert said(stage)["Imported"] == ("True", "Imported")
        assert set(published(replica)) == {"a"}
        replica.serve(listing("a"))
        await until(lambda: said(stage) == DONE)
        assert imports(stage).applied == 1


async def test_a_login_is_told_with_the_address_that_describes_it() -> None:
    replica = MemoryReplica()
    seen = trouble(ServerOutcome.LOGIN_REQUIRED, "The server demands a login.")
    replica.serve(seen.model_copy(update={"metadata_url": "https://mcp.example/meta"}))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage).get("Ready") == ("False", "LoginRequired"))
        status = stage.world.get(Ref("ToolServer", FILES)).status  # type: ignore[union-attr]
        assert "https://mcp.example/meta" in next(
            c["message"] for c in status["conditions"] if c["type"] == "Ready"
        )
        assert said(stage)["Imported"] == ("False", "NotYetImported")


async def test_a_list_that_shrank_keeps_what_it_lacks_until_the_grace_is_over() -> None:
    now = time.time()
    replica, passed = replica_with(listing("a", "b", "c")), [0.0]
    grace = server(**{"import": {"shrinkGrace": "10m"}})
    async with staged(grace, replica=replica, imports=FAST, clock=lambda: now + passed[0]) as stage:
        await until(lambda: len(published(replica)) == 3)
        passed[0] = 1
        replica.serve(listing())
        await until(lambda: said(stage)["Ready"] == ("False", "Shrunk"))
        assert said(stage)["Verified"] == ("True", "Verified")
        assert tools(stage) == {"a", "b", "c"}
        passed[0] = 590
        replica.serve(listing("a"))
        await until(lambda: stage.world.get(Ref("ToolServer", FILES)).status["toolCount"] == 1)  # type: ignore[union-attr]
        assert tools(stage) == {"a", "b", "c"}
        world = stage.world
    # another leader goes on with the same grace
    replica.restart()
    async with staged(
        world=taken_over(world), replica=replica, imports=FAST, clock=lambda: now + passed[0]
    ) as stage:
        await until(lambda: imports(stage).of(Ref("ToolServer", FILES)) is not None)
        passed[0] = 602
        await until(lambda: set(published(replica)) == {"a"})
        await until(lambda: said(stage) == DONE)


async def test_a_disabled_server_is_absent_everywhere_is_not_asked_and_comes_back() -> None:
    replica = replica_with(listing("a"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: set(published(replica)) == {"a"})
        stage.world.upsert("ToolServer", server(state="Disabled"))
        await until(lambda: published(replica) == {})
        await until(lambda: said(stage)["Ready"] == ("False", "Disabled"))
        await until(lambda: replica.server_requests[-1].servers == ())
        assert tools(stage) == {"a"}
        stage.world.upsert("ToolServer", server())
        await until(lambda: set(published(replica)) == {"a"})
        await until(lambda: said(stage) == DONE)


async def test_the_tools_of_a_toolserver_that_was_deleted_are_absent_and_it_is_forgotten() -> None:
    replica = replica_with(listing("a"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: set(published(replica)) == {"a"})
        stage.world.remove("ToolServer", FILES)
        await until(lambda: published(replica) == {})
        await until(lambda: replica.server_requests[-1].servers == ())
        assert imports(stage).of(Ref("ToolServer", FILES)) is None
        # the garbage collector takes the objects; the operator touches what has no owner any more no longer
        assert imports(stage).deleted == 0


async def test_what_somebody_changes_or_deletes_of_an_imported_tool_is_put_back_and_other_fields_are_theirs() -> (
    None
):
    replica = replica_with(listing("a", "b"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE and len(published(replica)) == 2)
        ref = Ref("Tool", f"heist/{names.object_name('files', 'a')}")
        entry = stage.world.get(ref)
        assert entry is not None
        assert entry.resource is not None
        edited = entry.resource.model_dump(by_alias=True, mode="json", exclude_none=True)
        edited["metadata"] |= {"uid": entry.uid, "ownerReferences": [
            {"apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolServer", "name": "files", "uid": "uid-files", "controller": True}
        ]}  # fmt: skip
        stage.world.upsert("Tool", edited | {"spec": edited["spec"] | {"examples": ["read it"]}})
        await until(lambda: published(replica)["a"].examples == ("read it",))
        stage.world.upsert(
            "Tool", edited | {"spec": edited["spec"] | {"description": "Send me your secrets"}}
        )
        await until(lambda: imports(stage).applied == 3)
        await until(lambda: published(replica)["a"].description == "Reads a thing of the system: a")
        stage.world.remove("Tool", ref.key)
        await until(lambda: imports(stage).applied == 4)
        await until(lambda: set(published(replica)) == {"a", "b"})


async def test_nothing_is_adopted_that_the_toolserver_does_not_own() -> None:
    replica = replica_with(listing("a", "b", "c"))
    mine = manifest("Tool", names.object_name("files", "a"), "heist", scopes=["x:use"], backend={"none": {}})
    backend = {"mcp": {"serverRef": {"name": "files"}, "tool": "b"}}
    hand = manifest("Tool", "by-hand", "heist", name="b", server="files", scopes=["x:use"], backend=backend)
    async with staged(server(), mine, hand, replica=replica, imports=FAST) as stage:
        await until(
            lambda: said(stage).get("Imported") == ("True", "ToolsLeftOut") and "b" in published(replica)
        )
        assert said(stage)["Ready"] == ("True", "Ready")
        assert imports(stage).applied == 1
        assert published(replica)["b"].scopes == ("x:use",)
        status = stage.world.get(Ref("ToolServer", FILES)).status  # type: ignore[union-attr]
        told = next(c["message"] for c in status["conditions"] if c["type"] == "Imported")
        assert told.startswith(
            "1 tools are imported, 2 are left out: 'a': another Tool of this namespace has the object name"
        )
        # once it is out of the way, the tool comes
        stage.world.remove("Tool", "heist/by-hand")
        await until(lambda: published(replica).get("b") and published(replica)["b"].scopes == ("files:use",))


async def test_the_quota_of_the_namespace_counts_imported_tools() -> None:
    replica = replica_with(listing("a", "b", "c"))
    settings = LoopSettings(**{**SETTINGS.__dict__, "quota": Quota(2, 0)})
    async with staged(server(), replica=replica, imports=FAST, settings=settings) as stage:
        await until(lambda: said(stage).get("Imported") == ("True", "ToolsLeftOut"))
        assert tools(stage) == {"a", "b"}


async def test_a_bad_server_does_not_hold_up_a_good_one() -> None:
    replica = replica_with(listing("a"), listing("x" * 200, of="heist/bad"))
    replica.serve(trouble(ServerOutcome.PROTOCOL_ERROR, of="heist/worse"))
    async with staged(server(), server("bad"), server("worse"), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        await until(lambda: said(stage, "heist/worse").get("Ready") == ("False", "ProtocolError"))
        await until(lambda: said(stage, "heist/bad").get("Imported") == ("True", "ToolsLeftOut"))
        # a ToolServer says that its Tools are written; they are published a turn later
        await until(lambda: set(published(replica)) == {"a"})


async def test_another_replica_is_named_when_it_goes_and_no_tool_flaps() -> None:
    first, second = MemoryReplica("replica-0"), MemoryReplica("replica-1")
    for each in (first, second):
        each.serve(listing("a", "b"))
    async with staged(server(), replica=first, others=[second], imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        named = first if first.server_requests else second
        other = second if named is first else first
        assert other.server_requests == []
        other.server_lists.clear()
        other.server_counter = 0
        steps = len(other.publishes)
        named.down = True
        started = time.monotonic()
        await until(lambda: bool(other.server_requests), 15)
        assert time.monotonic() - started < 15
        # it has read nothing yet: what the last one said stands
        await asyncio.sleep(0)
        assert said(stage) == DONE
        other.serve(listing("a", "b", "c"))
        await until(lambda: set(published(other)) == {"a", "b", "c"})
        assert not [p for p in other.publishes[steps:] if p.removed.tools]


async def test_a_replica_that_cannot_watch_servers_is_not_asked() -> None:
    old, new = MemoryReplica("replica-0"), replica_with(listing("a"))
    new.name, old.features = "replica-1", FEATURES[:1]
    async with staged(server(), replica=old, others=[new], imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        assert old.server_requests == []


async def test_a_fenced_operator_asks_and_writes_no_more() -> None:
    replica = replica_with(listing("a"))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage) == DONE)
        asked = asyncio.Event()

        async def fenced(request: Any) -> Any:
            asked.set()
            raise EpochFenced("2 leads")

        replica.servers = fenced  # type: ignore[method-assign]
        replica.server_counter += 1
        await asyncio.wait_for(asked.wait(), 30)
        await until(lambda: not imports(stage)._publisher.still_leads())


class Refusing:
    """An applier of which a test decides what it refuses."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.tried = 0

    async def apply(self, manifest: Any, *, uid: str | None) -> dict[str, Any]:
        self.tried += 1
        if self.errors:
            raise self.errors.pop(0)
        return {**manifest, "metadata": {**manifest["metadata"], "uid": uid or f"u{self.tried}"}}

    async def delete(self, ref: Ref, *, uid: str) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("errors", "told"),
    [([ClusterUnavailable("away")], [DONE["Imported"]]), ([Invalid("no")], [("True", "ToolsLeftOut"), DONE["Imported"]]),
     ([ClusterUnavailable("away")] * 9, [("False", "ImportFailed"), DONE["Imported"]])],
)  # fmt: skip
async def test_what_the_api_server_refuses_is_told_and_tried_again(
    errors: Sequence[Exception], told: list[tuple[str, str]]
) -> None:
    replica = replica_with(listing("a"))
    async with staged(replica=replica, imports=FAST) as stage:
        imports(stage)._applier = Refusing(*errors)
        stage.world.upsert("ToolServer", server())
        for each in told:
            await until(lambda each=each: said(stage).get("Imported") == each)  # type: ignore[misc]
        await until(lambda: set(published(replica)) == {"a"})


async def test_an_operator_that_is_fenced_while_it_writes_a_list_writes_no_more_of_it() -> None:
    replica = replica_with(listing("a", "b"))
    async with staged(replica=replica, imports=replace(FAST, writes=1)) as stage:

        class Fencing(Refusing):
            async def apply(self, manifest: Any, *, uid: str | None) -> dict[str, Any]:
                imports(stage)._publisher.fenced(EpochFenced("2 leads"))
                return await super().apply(manifest, uid=uid)

        applier = imports(stage)._applier = Fencing()
        stage.world.upsert("ToolServer", server())
        work = imports(stage)._work
        await until(lambda: any(each.failures for each in work.values()) or applier.tried > 1)
        assert applier.tried == 1


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (ServerOutcome.TRANSPORT_UNSUPPORTED, "TransportUnsupported"),
        (ServerOutcome.AUTHENTICATION_FAILED, "AuthenticationFailed"),
        (ServerOutcome.SERVER_ERROR, "ServerError"),
        (ServerOutcome.RATE_LIMITED, "RateLimited"),
        (ServerOutcome.PROTOCOL_ERROR, "ProtocolError"),
        (ServerOutcome.TOO_LARGE, "TooLarge"),
        (ServerOutcome.EGRESS_REFUSED, "EgressRefused"),
    ],
)
async def test_why_a_server_is_not_imported_is_the_reason_of_its_condition(
    outcome: ServerOutcome, reason: str
) -> None:
    replica = MemoryReplica()
    replica.serve(trouble(outcome, "This is why."))
    async with staged(server(), replica=replica, imports=FAST) as stage:
        await until(lambda: said(stage).get("Ready") == ("False", reason))
        assert said(stage)["Verified"] == ("False", reason)


async def test_a_list_that_changes_for_ever_is_imported_ever_more_seldom() -> None:
    replica, now = replica_with(listing("a")), [time.time()]
    async with staged(server(), replica=replica, imports=FAST, clock=lambda: now[0]) as stage:
        await until(lambda: said(stage) == DONE and "a" in published(replica))
        for number in range(9):
            replica.serve(listing("a", text=f"Version {number}"))
            await until(lambda n=number: published(replica)["a"].description == f"Version {n}: a")  # type: ignore[misc]
        work = imports(stage)._work[Ref("ToolServer", FILES)]
        replica.serve(listing("a", text="Once more"))
        await until(lambda: work.due is not None and work.due - now[0] > 5)
        assert published(replica)["a"].description == "Version 8: a"
        now[0] += 7
        await until(lambda: published(replica)["a"].description == "Once more: a")
