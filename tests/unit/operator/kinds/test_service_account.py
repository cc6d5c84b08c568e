"""Which ServiceAccounts the operator publishes, and when: those that bindings in force name, as they are now."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_harness import MemoryReplica
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import IndexSettings, LoopSettings, PublisherSettings
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio

SETTINGS = LoopSettings(hold_back=0.1, takeover_hold=0.2, finalizers=False, services=False)


def account(name: str, namespace: str = "heist", uid: str = "", **metadata: Any) -> dict[str, Any]:
    """A ServiceAccount as the API server's watch tells of it."""
    head = {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}"}
    labels = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{}]}
    return {"apiVersion": "v1", "kind": SERVICE_ACCOUNT, "metadata": head | labels | metadata,
            "secrets": [{"name": "x"}]}  # fmt: skip


def to(subjects: Sequence[dict[str, Any]], name: str = "planner") -> dict[str, Any]:
    return binding(name, ["calculator:use"], subjects=list(subjects))


def a_group(name: str) -> dict[str, Any]:
    return {"kind": "Group", "issuer": "https://cluster.example", "name": name}


HERE, THERE = account("planner"), account("bot", "team-b")


def assessed(world: World, **settings: Any) -> Assessor:
    assessor = Assessor(world, LoopSettings(**settings))
    turn(world, assessor)
    return assessor


def turn(world: World, assessor: Assessor) -> tuple[dict[str, str] | None, set[str]]:
    """One turn of the loop: the accounts that it publishes (key → uid; None: not known) and those it removes."""
    assessor.judge(assessor.expand(world.take()[0]))
    batch = assessor.batch()
    new = None if batch.accounts is None else {a.key: a.uid for a in batch.accounts}
    return new, set(batch.removed.accounts)


@pytest.mark.parametrize(
    ("subjects", "published"),
    [
        ([{"kind": "ServiceAccount", "name": "planner"}], {"heist/planner"}),
        ([{"kind": "Agent", "name": "planner"}], {"heist/planner"}),
        ([{"kind": "ServiceAccount", "namespace": "team-b", "name": "bot"}], {"team-b/bot"}),
        ([{"kind": "ServiceAccount", "name": "nobody"}], set()),
        ([a_group("system:serviceaccounts:team-b")], {"team-b/bot"}),
        ([a_group("system:serviceaccounts")], {"heist/planner", "team-b/bot"}),
        ([a_group("system:serviceaccounts:empty"), a_group("auditors")], set()),
        ([{"kind": "OAuthClient", "issuer": "https://login.example", "clientId": "planner"}], set()),
    ],
)
def test_exactly_the_accounts_that_a_binding_names_are_published(
    subjects: list[dict[str, Any]], published: set[str]
) -> None:
    world = World()
    for manifest in (to(subjects), HERE, THERE, account("stranger", "elsewhere", uid="")):
        world.upsert(manifest["kind"], manifest)
    everybody = {"name": "system:serviceaccounts"}.items()
    if any(everybody <= s.items() for s in subjects):
        published = published | {"elsewhere/stranger"}

    found, removed = turn(world, Assessor(world, LoopSettings()))

    assert found == {key: f"uid-{key.replace('/', '-')}" for key in published}
    assert removed == set()


def test_an_account_that_is_deleted_goes_and_a_recreated_one_comes_with_its_own_uid() -> None:
    world = World()
    world.upsert("AgentScopeBinding", to([{"kind": "ServiceAccount", "name": "planner"}]))
    world.upsert(SERVICE_ACCOUNT, HERE)
    assessor = assessed(world)

    world.remove(SERVICE_ACCOUNT, "heist/planner")
    assert turn(world, assessor) == ({}, {"heist/planner"})
    world.upsert(SERVICE_ACCOUNT, account("planner", uid="second"))
    assert turn(world, assessor) == ({"heist/planner": "second"}, set())
    world.upsert(SERVICE_ACCOUNT, account("planner", uid="third"))  # the deletion between was not seen
    assert turn(world, assessor) == ({"heist/planner": "third"}, set())
    # a finalizer keeps it, but its tokens are not to be believed any more
    going = account("planner", uid="third", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x"])
    world.upsert(SERVICE_ACCOUNT, going)
    assert turn(world, assessor) == ({}, {"heist/planner"})


def test_accounts_come_and_go_with_the_bindings_that_name_them() -> None:
    world = World()
    for manifest in (HERE, THERE, account("second", "team-b")):
        world.upsert(SERVICE_ACCOUNT, manifest)
    assessor = assessed(world)
    grants = {
        "one": to([{"kind": "ServiceAccount", "name": "planner"}], "one"),
        "two": to([{"kind": "Agent", "name": "planner"}, a_group("system:serviceaccounts:team-b")], "two"),
    }

    world.upsert("AgentScopeBinding", grants["one"])
    assert turn(world, assessor)[0] == {"heist/planner": "uid-heist-planner"}
    world.upsert("AgentScopeBinding", grants["two"])
    assert set(turn(world, assessor)[0] or ()) == {"team-b/bot", "team-b/second"}
    world.remove("AgentScopeBinding", "heist/one")
    assert turn(world, assessor) == ({}, set()), "the other still names it"
    world.upsert("AgentScopeBinding", to([{"kind": "Agent", "name": "planner"}], "two"))
    assert turn(world, assessor) == ({}, {"team-b/bot", "team-b/second"})
    world.remove("AgentScopeBinding", "heist/two")
    assert turn(world, assessor) == ({}, {"heist/planner"})


def test_an_account_that_comes_after_its_group_is_published() -> None:
    world = World()
    world.upsert("AgentScopeBinding", to([a_group("system:serviceaccounts:team-b")]))
    assessor = assessed(world)
    world.upsert(SERVICE_ACCOUNT, THERE)
    assert turn(world, assessor)[0] == {"team-b/bot": "uid-team-b-bot"}
    world.upsert(SERVICE_ACCOUNT, account("bot", "team-c"))
    assert turn(world, assessor)[0] == {}


def test_a_change_of_an_account_that_is_not_its_identity_publishes_nothing() -> None:
    world = World()
    world.upsert("AgentScopeBinding", to([{"kind": "ServiceAccount", "name": "planner"}]))
    world.upsert(SERVICE_ACCOUNT, HERE | {"metadata": HERE["metadata"] | {"resourceVersion": "7"}})
    assessor, before = assessed(world), world.change
    labelled = HERE["metadata"] | {"resourceVersion": "8", "labels": {"x": "y"}}
    world.upsert(SERVICE_ACCOUNT, HERE | {"metadata": labelled})
    assert (turn(world, assessor), world.change) == (({}, set()), before)


def test_of_an_account_its_name_and_uid_are_kept_and_nothing_else() -> None:
    world = World()
    world.upsert(SERVICE_ACCOUNT, HERE)
    entry = world.get(Ref(SERVICE_ACCOUNT, "heist/planner"))
    assert entry is not None
    assert (entry.uid, entry.labels, entry.body, entry.status) == ("uid-heist-planner", {}, {}, {})


def test_a_change_of_namespaces_moves_no_account_and_a_refused_binding_names_none() -> None:
    world = World()
    selecting = cluster_binding("planner", ["calculator:use"], namespaceSelector={"matchLabels": {"a": "b"}})
    world.upsert("ClusterAgentScopeBinding", selecting)
    world.upsert(SERVICE_ACCOUNT, HERE)
    assert turn(world, Assessor(world, LoopSettings())) == ({}, set())


@dataclass
class Stage:
    world: World
    loop: Loop
    replica: MemoryReplica


@contextlib.asynccontextmanager
async def staged(*objects: dict[str, Any], accounts: bool = True, epoch: int = 1,
                 replica: MemoryReplica | None = None, listed: Sequence[str] = WATCHED) -> AsyncIterator[Stage]:  # fmt: skip
    replica = replica or MemoryReplica()
    world = World()
    fast = PublisherSettings(heartbeat=0.1, discover=0.05, backoff=(0.01, 0.05))
    publisher = Publisher(epoch, FixedReplicas(replica), settings=fast)
    index_sync = IndexSync(publisher, settings=IndexSettings(inventory=0.2))
    settings = LoopSettings(
        hold_back=0.1, takeover_hold=0.2, finalizers=False, services=False, accounts=accounts
    )
    loop = Loop(world, publisher, index_sync, MemoryWriter(world), settings=settings)
    for kind in listed:
        world.replace(kind, [o for o in objects if o["kind"] == kind])
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield Stage(world, loop, replica)
    finally:
        stop.set()
        await task


GRANT = binding("planner", ["calculator:use"])


def uids(stage: Stage) -> dict[str, str] | None:
    found = stage.replica.snapshot.accounts
    return None if found is None else {key: a.uid for key, a in found.items()}


async def test_nothing_is_published_while_service_accounts_have_not_been_listed() -> None:
    some = [kind for kind in WATCHED if kind != SERVICE_ACCOUNT]
    async with staged(tool("calculator"), GRANT, listed=some) as stage:
        await asyncio.sleep(0.3)
        assert stage.world.unlisted == (SERVICE_ACCOUNT,)
        assert stage.replica.publishes == []


async def test_the_first_snapshot_holds_the_accounts_and_a_change_of_one_is_a_step_of_its_own() -> None:
    async with staged(tool("calculator"), GRANT, HERE, THERE) as stage:
        await until(lambda: uids(stage) == {"heist/planner": "uid-heist-planner"})
        assert stage.replica.publishes[0].base is None

        took = []
        for _ in range(3):
            stage.world.upsert(SERVICE_ACCOUNT, HERE)
            await until(lambda: uids(stage) == {"heist/planner": "uid-heist-planner"})
            began = time.monotonic()
            change = stage.world.remove(SERVICE_ACCOUNT, "heist/planner")
            await asyncio.wait_for(stage.loop.published(change), 60)
            assert uids(stage) == {}
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 0.2, took
        last = stage.replica.publishes[-1]
        assert (last.tools, last.bindings, last.accounts) == ((), (), None)
        assert last.removed.accounts == ("heist/planner",)


async def test_where_no_account_is_bound_the_snapshot_says_none_rather_than_not_known() -> None:
    async with staged(tool("calculator"), THERE) as stage:
        await until(lambda: stage.replica.publishes)
        assert stage.replica.publishes[0].accounts == ()


async def test_a_restarted_replica_and_a_new_leader_bring_the_accounts_in_full() -> None:
    async with staged(GRANT, HERE) as stage:
        await until(lambda: uids(stage))
        stage.replica.restart()
        await until(lambda: uids(stage) == {"heist/planner": "uid-heist-planner"})
        replica = stage.replica
    # made anew while nobody led
    async with staged(GRANT, account("planner", uid="second"), replica=replica, epoch=2) as stage:
        await until(lambda: uids(stage) == {"heist/planner": "second"})


async def test_the_local_mode_publishes_no_accounts_at_all() -> None:
    async with staged(tool("calculator"), GRANT, HERE, accounts=False) as stage:
        await until(lambda: stage.replica.publishes)
        change = stage.world.remove(SERVICE_ACCOUNT, "heist/planner")
        await asyncio.wait_for(stage.loop.published(change), 60)
        assert [p.accounts for p in stage.replica.publishes] == [None]
