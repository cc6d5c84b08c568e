"""The loop over a World and an honest replica, without a cluster: what is recorded comes in force."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_harness import MemoryReplica, conditions
from toolcrib.resources.admission import FINALIZER
from toolcrib.wire.index import IndexAnswer, IndexRequest
from toolcrib.wire.publish import Publish, ReplicaState
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import IndexSettings, LoopSettings, PublisherSettings
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio

FAST = PublisherSettings(heartbeat=0.1, discover=0.05, backoff=(0.01, 0.05))
INDEX = IndexSettings(inventory=0.2, backoff=(0.01, 0.05))
SETTINGS = LoopSettings(hold_back=0.2, takeover_hold=0.5, finalizers=False, services=False)


@dataclass
class Stage:
    world: World
    publisher: Publisher
    loop: Loop
    index_sync: IndexSync
    replicas: list[MemoryReplica]
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def status(self, kind: str, key: str) -> Any:
        entry = self.world.get(Ref(kind, key))
        return None if entry is None else entry.status

    def conditions(self, kind: str, key: str) -> dict[str, tuple[str, str]]:
        return conditions(self.status(kind, key))

    async def ready(self, key: str) -> None:
        await until(lambda: self.conditions("Tool", key).get("Ready") == ("True", "Ready"), what=key)

    async def in_force(self, key: str) -> None:
        await until(
            lambda: self.conditions("AgentScopeBinding", key).get("Ready") == ("True", "Ready"), what=key
        )


@contextlib.asynccontextmanager
async def staged(
    *objects: dict[str, Any],
    replicas: int | list[MemoryReplica] = 1,
    settings: LoopSettings = SETTINGS,
    epoch: int = 1,
    listed: tuple[str, ...] = WATCHED,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Stage]:
    found = (
        [MemoryReplica(f"replica-{i}") for i in range(replicas)] if isinstance(replicas, int) else replicas
    )
    world = World()
    publisher = Publisher(epoch, FixedReplicas(*found), settings=FAST)
    index_sync = IndexSync(publisher, settings=INDEX)
    loop = Loop(world, publisher, index_sync, MemoryWriter(world), settings=settings, clock=clock)
    for kind in listed:
        world.replace(kind, [o for o in objects if o["kind"] == kind])
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield Stage(world, publisher, loop, index_sync, found)
    finally:
        stop.set()
        await task


async def test_a_tool_and_its_binding_reach_the_replica_and_become_ready() -> None:
    account = {"kind": "ServiceAccount", "metadata": {"name": "planner", "namespace": "heist", "uid": "u1"}}
    async with staged(tool("calculator"), binding("planner", ["calculator:use"]), account) as stage:
        await stage.ready("heist/calculator")
        replica = stage.replicas[0]
        assert list(replica.snapshot.tools) == ["heist/calculator"]
        assert replica.snapshot.hash == stage.publisher.hash
        assert stage.conditions("Tool", "heist/calculator") == {
            "Ready": ("True", "Ready"),
            "Accepted": ("True", "Accepted"),
            "Indexed": ("True", "Indexed"),
            "Questionable": ("False", "NothingOdd"),
            "BackendReachable": ("Unknown", "NotProbed"),
        }
        await stage.in_force("heist/planner")
        assert stage.conditions("AgentScopeBinding", "heist/planner") == {
            "Ready": ("True", "Ready"),
            "Accepted": ("True", "Accepted"),
            "Propagated": ("True", "Propagated"),
            "Expired": ("False", "InForce"),
            "MatchesNothing": ("False", "Matches"),
            "Questionable": ("False", "NothingOdd"),
        }
        assert stage.status("AgentScopeBinding", "heist/planner")["matchedTools"] == 1


async def test_nothing_is_published_while_a_kind_has_not_been_listed() -> None:
    async with staged(tool("calculator"), listed=WATCHED[:-1]) as stage:
        await asyncio.sleep(0.1)
        assert stage.world.unlisted == WATCHED[-1:]
        assert stage.publisher.revision is None
        change = stage.world.replace(WATCHED[-1], [])
        async with asyncio.timeout(60):
            await stage.loop.published(change)
        assert "heist/calculator" in stage.replicas[0].snapshot.tools


async def test_edits_disabling_and_deletion_are_published_as_steps() -> None:
    async with staged(tool("calculator"), replicas=2) as stage:
        await stage.ready("heist/calculator")
        async with asyncio.timeout(60):
            await stage.loop.published(stage.world.upsert("Tool", tool("calculator", description="Better")))
            for replica in stage.replicas:
                assert replica.snapshot.tools["heist/calculator"].description == "Better"
            await stage.loop.published(stage.world.upsert("Tool", tool("calculator", state="Disabled")))
            assert stage.replicas[1].snapshot.active_tools == 0
            await until(
                lambda: stage.conditions("Tool", "heist/calculator")["Ready"] == ("False", "Disabled")
            )
            await stage.loop.published(stage.world.remove("Tool", "heist/calculator"))
        assert [not r.snapshot.tools for r in stage.replicas] == [True, True]
        assert [len([p for p in r.publishes if p.base is None]) for r in stage.replicas] == [1, 1]
        await until(lambda: not stage.replicas[0].entries, what="the orphan leaves the index")


async def test_a_steady_state_writes_and_publishes_nothing() -> None:
    everything = [tool("calculator"), tool("reader"), binding("planner", ["calculator:use"])]
    async with staged(*everything) as stage:
        await stage.ready("heist/calculator")
        await stage.ready("heist/reader")
        await stage.in_force("heist/planner")
        await asyncio.sleep(0.5)
        before, revision = replace(stage.loop.status_writer.counts), stage.publisher.revision
        for manifest in everything:
            stage.world.upsert(manifest["kind"], manifest)
        stage.world.touch([Ref("Tool", "heist/calculator"), Ref("AgentScopeBinding", "heist/planner")])
        await asyncio.sleep(0.5)
        assert stage.loop.status_writer.counts == before
        assert stage.publisher.revision == revision


async def test_a_restarted_operator_publishes_in_full_and_writes_nothing() -> None:
    replica = MemoryReplica()
    everything = [tool("calculator"), tool("reader"), binding("planner", ["calculator:use"])]
    async with staged(*everything, replicas=[replica]) as first:
        await first.ready("heist/calculator")
        await first.ready("heist/reader")
        await first.in_force("heist/planner")
        for manifest in everything:
            entry = first.world.get(Ref(manifest["kind"], f"heist/{manifest['metadata']['name']}"))
            assert entry is not None
            manifest["status"] = entry.status
            manifest["metadata"] |= {"uid": entry.uid, "generation": entry.generation}
    written = len(replica.index_requests)
    async with staged(*everything, replicas=[replica], epoch=2) as second:
        await until(
            lambda: second.publisher.revision and second.publisher.confirmed_by_all(second.publisher.revision)
        )
        await until(lambda: second.index_sync.state("heist/calculator", "")[0] is not None)
        await asyncio.sleep(1)
        assert replica.snapshot.revision is not None
        assert replica.snapshot.revision.epoch == 2
        assert second.loop.status_writer.counts.statuses == 0
        assert len(replica.index_requests) == written


async def test_a_restarted_replica_gets_a_full_snapshot_by_itself() -> None:
    async with staged(tool("calculator"), replicas=2) as stage:
        await stage.ready("heist/calculator")
        stage.replicas[1].restart()
        await until(lambda: stage.replicas[1].snapshot.hash == stage.publisher.hash)
        assert stage.replicas[1].publishes[-1].base is None


async def test_a_replica_that_was_away_catches_up_and_bindings_say_so_meanwhile() -> None:
    async with staged(tool("calculator"), replicas=2) as stage:
        await stage.ready("heist/calculator")
        stage.replicas[1].down = True
        stage.world.upsert("AgentScopeBinding", binding("planner", ["calculator:use"]))
        await until(
            lambda: (
                stage.conditions("AgentScopeBinding", "heist/planner").get("Ready")
                == ("False", "NotPropagated")
            )
        )
        stage.replicas[1].down = False
        await until(
            lambda: stage.conditions("AgentScopeBinding", "heist/planner")["Ready"] == ("True", "Ready")
        )


async def test_a_replica_that_hangs_counts_as_behind_until_it_has_everything() -> None:
    async with staged(tool("calculator"), replicas=2) as stage:
        await stage.ready("heist/calculator")
        hanging, other = stage.replicas
        gate = asyncio.Event()
        publish = hanging.publish

        async def late(step: Publish) -> ReplicaState:
            await gate.wait()
            return await publish(step)

        hanging.publish = late  # type: ignore[method-assign]
        stage.world.upsert("Tool", tool("calculator", description="Better"))
        await until(lambda: other.snapshot.tools["heist/calculator"].description == "Better")
        behind = {link.replica.name: link.behind for link in stage.publisher.links}
        assert behind[hanging.name] > 0
        await until(lambda: all(link.problem is None for link in stage.publisher.links))
        gate.set()
        await until(lambda: all(link.behind == 0 for link in stage.publisher.links))


async def test_a_wiped_index_is_rebuilt_and_orphans_vanish() -> None:
    async with staged(tool("calculator"), tool("reader")) as stage:
        await stage.ready("heist/calculator")
        await stage.ready("heist/reader")
        whole = dict(stage.replicas[0].entries)
        stage.replicas[0].entries.clear()
        stage.replicas[0].entries["heist/gone"] = "sha256:0"
        await until(lambda: stage.replicas[0].entries == whole)


async def test_an_index_that_is_away_shows_in_the_conditions_and_recovery_needs_no_help() -> None:
    replica = MemoryReplica()
    replica.index_down = True
    async with staged(tool("calculator"), replicas=[replica]) as stage:
        await until(
            lambda: (
                stage.conditions("Tool", "heist/calculator").get("Indexed") == ("False", "IndexUnavailable")
            )
        )
        assert "heist/calculator" in replica.snapshot.tools
        replica.index_down = False
        await stage.ready("heist/calculator")


async def test_a_registered_tool_that_was_deleted_leaves_the_index_though_its_namespace_is_spared() -> None:
    async with staged(tool("calculator"), tool("mine", "toolcrib-runtime")) as stage:
        entries = stage.replicas[0].entries
        await until(lambda: "toolcrib-runtime/mine" in entries)
        entries["toolcrib-runtime/unknown"] = "sha256:0"  # not yet published here: by another leader, maybe
        stage.world.remove("Tool", "toolcrib-runtime/mine")
        await until(lambda: "toolcrib-runtime/mine" not in entries)
        assert "toolcrib-runtime/unknown" in entries


async def test_the_lag_of_the_index_is_the_age_of_what_waits_longest_and_ends_with_it() -> None:
    replica = MemoryReplica()
    async with staged(tool("calculator"), replicas=[replica]) as stage:
        await stage.ready("heist/calculator")
        assert stage.index_sync.lag == 0.0
        replica.index_down = True
        began = time.monotonic()
        stage.world.upsert("Tool", tool("reader"))
        await until(lambda: stage.index_sync.lag > 0.3)
        stage.world.upsert("Tool", tool("writer"))
        await until(lambda: stage.index_sync.lag > 0.5)
        assert stage.index_sync.lag <= time.monotonic() - began
        replica.index_down = False
        await stage.ready("heist/writer")
        await until(lambda: stage.index_sync.lag == 0.0)
        # other scopes are in no digest, and a search depends on them
        replica.index_down = True
        stage.world.upsert("Tool", tool("reader", scopes=["other:use"]))
        await until(lambda: stage.index_sync.lag > 0.05)
        assert stage.index_sync.waiting == 0


async def test_heartbeats_stop_while_the_view_of_the_cluster_is_unproven() -> None:
    async with staged(tool("calculator")) as stage:
        replica = stage.replicas[0]
        await until(lambda: replica.heartbeats)
        stage.publisher.proven = lambda: False
        await asyncio.sleep(0.15)
        count = len(replica.heartbeats)
        await asyncio.sleep(0.4)
        assert len(replica.heartbeats) == count


async def test_a_publish_says_for_how_long_the_view_of_the_cluster_was_unproven() -> None:
    async with staged(tool("calculator")) as stage:
        await stage.ready("heist/calculator")
        replica = stage.replicas[0]
        assert [p.age for p in replica.publishes] == [0.0] * len(replica.publishes)
        stage.publisher.age = lambda: 40.0
        async with asyncio.timeout(60):
            await stage.loop.published(stage.world.upsert("Tool", tool("reader")))
        assert replica.publishes[-1].age == 40.0


async def test_a_replica_that_was_away_is_no_surer_of_its_policy_before_it_has_the_last_step() -> None:
    async with staged(tool("calculator"), replicas=2) as stage:
        await stage.ready("heist/calculator")
        away, other = stage.replicas
        away.down = True
        for name in ("one", "two", "three"):
            stage.world.upsert("Tool", tool(name))
            await until(lambda n=name: f"heist/{n}" in other.snapshot.tools)  # type: ignore[misc]
        away.publishes.clear()
        await asyncio.sleep(0.05)
        away.down = False
        await until(lambda: "heist/three" in away.snapshot.tools)
        *before, last = [p.age for p in away.publishes]
        assert len(before) == 2
        assert min(before) > 0.05
        assert last == 0.0


async def test_a_fenced_leader_stops_publishing_and_writing() -> None:
    async with staged(tool("calculator")) as old:
        await old.ready("heist/calculator")
        async with staged(tool("reader"), replicas=old.replicas, epoch=2) as new:
            await new.ready("heist/reader")
            await until(lambda: not old.publisher.still_leads())
            written = old.loop.status_writer.counts.statuses
            old.world.upsert("Tool", tool("intruder"))
            await asyncio.sleep(0.3)
            assert list(old.replicas[0].snapshot.tools) == ["heist/reader"]
            assert old.loop.status_writer.counts.statuses == written


async def test_the_older_tool_keeps_a_name_and_the_younger_gets_it_when_it_is_free() -> None:
    old, young = tool("one", name="shared"), tool("two", name="shared")
    old["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    young["metadata"] |= {"creationTimestamp": "2026-02-01T00:00:00Z"}
    async with staged(young, old) as stage:
        await stage.ready("heist/one")
        await until(
            lambda: stage.conditions("Tool", "heist/two").get("Accepted") == ("False", "NameConflict")
        )
        stage.world.remove("Tool", "heist/one")
        await stage.ready("heist/two")


async def test_labels_of_namespaces_move_the_reach_of_a_cluster_binding() -> None:
    settings = replace(SETTINGS, trusted_namespace_labels=("team",))
    selecting = cluster_binding(
        "auditor", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}}
    )
    async with staged(tool("calculator"), selecting, settings=settings) as stage:
        snapshot = stage.replicas[0]
        await until(lambda: snapshot.snapshot.bindings)
        namespace = {"kind": "Namespace", "metadata": {"name": "heist", "labels": {"team": "a"}}}
        async with asyncio.timeout(60):
            await stage.loop.published(stage.world.upsert("Namespace", namespace))
        [published] = snapshot.snapshot.bindings.values()
        assert published.namespaces == ("heist",)
        await until(
            lambda: (stage.status("ClusterAgentScopeBinding", "auditor") or {}).get("matchedTools") == 1
        )


async def test_a_tool_whose_namespace_is_being_deleted_is_withdrawn_and_nothing_waits_for_it() -> None:
    async with staged(tool("calculator"), tool("calculator", "bank")) as stage:
        await stage.ready("heist/calculator")
        await stage.ready("bank/calculator")
        ending = {"name": "heist", "deletionTimestamp": "2026-11-22T10:00:00Z"}
        async with asyncio.timeout(60):
            await stage.loop.published(
                stage.world.upsert("Namespace", {"kind": "Namespace", "metadata": ending})
            )
        assert set(stage.replicas[0].snapshot.tools) == {"bank/calculator"}
        await until(lambda: not stage.loop._planner.waiting)


async def test_a_selector_on_a_label_nobody_trusts_is_refused() -> None:
    selecting = cluster_binding(
        "auditor", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}}
    )
    async with staged(tool("calculator"), selecting) as stage:
        wanted = ("False", "UntrustedLabel")
        await until(lambda: stage.conditions("ClusterAgentScopeBinding", "auditor").get("Accepted") == wanted)
        assert not stage.replicas[0].snapshot.bindings


async def test_what_a_refused_binding_denies_stays_denied_everywhere() -> None:
    selecting = cluster_binding(
        "auditor",
        ["calculator:use"],
        namespaceSelector={"matchLabels": {"team": "a"}},
        tools={"deny": ["delete_*"]},
    )
    async with staged(tool("calculator"), selecting) as stage:
        wanted = ("False", "UntrustedLabel")
        await until(lambda: stage.conditions("ClusterAgentScopeBinding", "auditor").get("Accepted") == wanted)
        [published] = stage.replicas[0].snapshot.bindings.values()
        assert (published.scopes, published.deny, published.namespaces) == ((), ("delete_*",), None)


async def test_a_change_of_scopes_alone_is_written_to_the_index_at_once() -> None:
    async with staged(tool("calculator")) as stage:
        await stage.ready("heist/calculator")
        replica = stage.replicas[0]
        asked = len(replica.index_requests)
        digest = replica.snapshot.tools["heist/calculator"].digest
        stage.world.upsert("Tool", tool("calculator", scopes=["reckoning:use"]))
        await until(lambda: len(replica.index_requests) > asked)
        assert replica.index_requests[-1].upsert == ("heist/calculator",)
        assert replica.snapshot.tools["heist/calculator"].digest == digest


async def test_dates_change_the_conditions_by_the_clock_alone() -> None:
    from datetime import UTC, datetime, timedelta

    def ready() -> tuple[str, str] | None:
        return stage.conditions("AgentScopeBinding", "heist/planner").get("Ready")

    for lead in (1, 5, 20):  # a machine that stands still may see the end before the grant
        soon = (datetime.now(UTC) + timedelta(seconds=lead)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ending = binding("planner", ["calculator:use"], expiresAt=soon)
        async with staged(tool("calculator"), ending) as stage:
            await until(lambda: ready() in (("True", "Ready"), ("False", "Expired")))
            began = ready()
            await until(lambda: ready() == ("False", "Expired"))
        if began == ("True", "Ready"):
            return
    pytest.fail("it was never in force")


async def test_a_labelled_secret_is_pushed_and_its_absence_is_named() -> None:
    backend = {
        "http": {"url": "https://api.example.com/run"},
        "auth": {"type": "Bearer", "secretKeyRef": {"name": "key", "key": "token"}},
    }
    async with staged(tool("remote", backend=backend)) as stage:
        await until(
            lambda: stage.conditions("Tool", "heist/remote").get("Ready") == ("False", "CredentialMissing")
        )
        secret = {
            "kind": "Secret",
            "metadata": {
                "name": "key",
                "namespace": "heist",
                "labels": {"toolcrib.dev/backend-credential": "true"},
            },
            "stringData": {"token": "s3cret"},
        }
        stage.world.upsert("Secret", secret)
        await until(
            lambda: stage.conditions("Tool", "heist/remote")["Ready"] == ("False", "CredentialNotAllowed")
        )
        secret["metadata"]["annotations"] = {"toolcrib.dev/hosts": "api.example.com"}  # type: ignore[index]
        stage.world.upsert("Secret", secret)
        await stage.ready("heist/remote")
        # sent beside the revision that makes it ready
        await until(lambda: (pushed := stage.replicas[0].pushed) is not None and pushed.credentials)
        pushed = stage.replicas[0].pushed
        assert pushed is not None
        assert [(c.hosts, c.value) for c in pushed.credentials] == [(("api.example.com",), "s3cret")]
        assert "s3cret" not in repr(stage.world.get(Ref("Secret", "heist/key")))


async def test_the_count_of_matched_tools_is_corrected_soon_and_then_rarely() -> None:
    now = [1_800_000_000.0]
    ref = Ref("AgentScopeBinding", "heist/planner")

    async def after(seconds: float, *manifests: dict[str, Any]) -> None:
        """Apply, let so much time pass, and have it looked at again."""
        change = 0
        for manifest in manifests:
            change = stage.world.upsert("Tool", manifest)
        await stage.loop.published(change)
        now[0] += seconds
        stage.world.touch([ref])
        await stage.loop.published(stage.world.change)
        await until(lambda: stage.loop.status_writer.backlog == 0)

    def count() -> Any:
        return (stage.status(ref.kind, ref.key) or {}).get("matchedTools")

    async with staged(
        binding("planner", ["a:use", "b:use", "c:use"]), tool("a"), clock=lambda: now[0]
    ) as stage:
        await until(lambda: count() == 1)
        await after(SETTINGS.hold_back + 0.1, tool("b"))
        await until(lambda: count() == 2)
        await after(SETTINGS.rewrite_every - 1, tool("c"))
        assert count() == 2
        await after(1.1)
        await until(lambda: count() == 3)


async def test_an_object_nobody_foresaw_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolcrib_operator.kinds import tool as module

    real = module.assess_tool

    def assess(entry: Any, **facts: Any) -> Any:
        if entry.ref.name == "poison":
            raise KeyError("unforeseen")
        return real(entry, **facts)

    monkeypatch.setattr(module, "assess_tool", assess)
    async with staged(tool("poison"), tool("calculator")) as stage:
        await stage.ready("heist/calculator")
        await until(lambda: stage.conditions("Tool", "heist/poison").get("Accepted") == ("False", "Invalid"))
        assert list(stage.replicas[0].snapshot.tools) == ["heist/calculator"]


async def test_an_item_the_index_refuses_says_so_and_holds_up_no_other() -> None:
    class Refusing(MemoryReplica):
        async def index(self, request: IndexRequest) -> IndexAnswer:
            kept = request.model_copy(update={"upsert": tuple(i for i in request.upsert if "odd" not in i)})
            answer = await super().index(kept)
            return answer.model_copy(update={"failed": {i: "too odd" for i in request.upsert if "odd" in i}})

    async with staged(tool("odd"), tool("calculator"), replicas=[Refusing()]) as stage:
        await stage.ready("heist/calculator")
        await until(lambda: stage.conditions("Tool", "heist/odd").get("Indexed") == ("False", "NotIndexed"))
        status = stage.status("Tool", "heist/odd")
        assert "too odd" in next(c["message"] for c in status["conditions"] if c["type"] == "Indexed")


async def test_a_refused_tool_that_is_deleted_leaves_no_retries_behind() -> None:
    class Refusing(MemoryReplica):
        async def index(self, request: IndexRequest) -> IndexAnswer:
            self.index_requests.append(request)
            return IndexAnswer(failed=dict.fromkeys(request.upsert, "too odd"))

    async with staged(tool("odd"), replicas=[Refusing()]) as stage:
        await until(lambda: stage.conditions("Tool", "heist/odd").get("Indexed") == ("False", "NotIndexed"))
        stage.world.remove("Tool", "heist/odd")
        await until(lambda: "heist/odd" not in stage.index_sync._tools)


async def test_changed_scopes_that_the_index_refuses_are_tried_again_with_backoff() -> None:
    class ReadOnly(MemoryReplica):
        refuses = False

        async def index(self, request: IndexRequest) -> IndexAnswer:
            if not self.refuses:
                return await super().index(request)
            self.index_requests.append(request)
            return IndexAnswer(failed=dict.fromkeys(request.upsert, "read-only"))

    replica = ReadOnly()
    async with staged(tool("calculator"), replicas=[replica]) as stage:
        await stage.ready("heist/calculator")
        began, asked = time.monotonic(), len(replica.index_requests)
        replica.refuses = True
        replica.entries["heist/calculator"] = "another fingerprint"
        stage.world.upsert("Tool", tool("calculator", scopes=["reckoning:use"]))
        await until(
            lambda: stage.conditions("Tool", "heist/calculator").get("Indexed") == ("False", "NotIndexed")
        )
        await asyncio.sleep(0.3)
        # the longest wait is 0.05 s, less its jitter
        assert len(replica.index_requests) - asked < 5 + (time.monotonic() - began) / 0.02
        replica.refuses = False
        await stage.ready("heist/calculator")


async def test_a_binding_deleted_long_ago_still_waits_for_the_replicas_a_little() -> None:
    """No operator was there until the deadline had passed, or the clocks differ."""
    settings = replace(SETTINGS, finalizers=True, removal_least=0.5)
    replica = MemoryReplica()
    gone = binding("planner", ["calculator:use"])
    gone["metadata"] |= {
        "uid": "u1", "resourceVersion": "7", "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"
    }  # fmt: skip
    replica.down = True
    began = time.time()
    async with staged(tool("calculator"), gone, replicas=[replica], settings=settings) as stage:
        ref = Ref("AgentScopeBinding", "heist/planner")

        def finalizers() -> tuple[str, ...]:
            entry = stage.world.get(ref)
            assert entry is not None
            return entry.finalizers

        await until(lambda: stage.publisher.revision)
        await until(lambda: finalizers() == ())
        assert time.time() - began >= settings.removal_least
        stage.world.remove("AgentScopeBinding", "heist/planner", "8")
        await until(lambda: stage.loop.assessor.facts.records.get(ref) is None)
