"""What the operator sends where a replica needs everything: chunks that are bounded, or one body for an older replica."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import ClientSession

from operator_harness import HttpReplica, MemoryReplica
from published import binding as published
from published import server
from published import tool as published_tool
from toolcrib.errors import RevisionMismatch
from toolcrib.snapshot import Snapshot
from toolcrib.wire.features import DENY_SCOPES, FEATURES, SNAPSHOT_CHUNKS, TOKEN_SERVICES
from toolcrib.wire.publish import (
    PublishedAccount,
    PublishedTool,
    Removed,
    ReplicaState,
    Revision,
    SnapshotChunk,
    SnapshotCommit,
)
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.adapters.replica_http import HttpReplica as Client
from toolcrib_operator.errors import ReplicaUnavailable
from toolcrib_operator.replicas.publisher import PART_BYTES, Publisher
from toolcrib_operator.replicas.transfer import CHUNK_BYTES, Tools, held_tools
from toolcrib_operator.settings import PublisherSettings
from waiting import until

pytestmark = pytest.mark.anyio

WHOLE = tuple(name for name in FEATURES if name != SNAPSHOT_CHUNKS)
MANY = [published_tool(f"team-a/tool-{i:03}", description="word " * 2_000) for i in range(120)]


class Recorded(MemoryReplica):
    """Keeps the bodies of chunks and the commits."""

    def __init__(self, name: str = "one", features: tuple[str, ...] = FEATURES) -> None:
        super().__init__(name)
        self.features = features
        self.bodies: list[bytes] = []
        self.commits: list[SnapshotCommit] = []
        self.on_chunk: Callable[[int], None] = lambda count: None

    async def stage(self, chunk: bytes) -> ReplicaState:
        self.bodies.append(chunk)
        self.on_chunk(len(self.bodies))
        return await super().stage(chunk)

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        self.commits.append(commit)
        return await super().commit(commit)


@contextlib.asynccontextmanager
async def publishing(
    *replicas: MemoryReplica, may_act: Callable[[], bool] = lambda: True, tools: Tools = held_tools
) -> AsyncIterator[Publisher]:
    settings = PublisherSettings(heartbeat=0.05, discover=0.05, backoff=(0.01, 0.05), history=2)
    publisher = Publisher(1, FixedReplicas(*replicas), settings=settings, may_act=may_act, tools=tools)
    stop = asyncio.Event()
    running = asyncio.create_task(publisher.run(stop))
    try:
        async with asyncio.timeout(60):
            yield publisher
    finally:
        stop.set()
        await running


async def test_everything_goes_in_chunks_of_bounded_size_and_arrives_as_it_was() -> None:
    replica = Recorded()
    bound = [published(f"b{i}", deny_scopes=("vault",)) for i in range(3)]
    accounts = [PublishedAccount(namespace="team-a", name=f"bot-{i}", uid=str(i)) for i in range(5_000)]
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY, bindings=bound, accounts=accounts))
        assert replica.snapshot.hash == publisher.hash
        assert replica.snapshot.accounts == publisher.snapshot.accounts
        await until(lambda: replica.heartbeats)
    assert len(replica.bodies) > 5
    assert max(map(len, replica.bodies)) <= CHUNK_BYTES + 200
    assert min(map(len, replica.bodies[:-1])) > CHUNK_BYTES / 2
    assert len(replica.commits) == 1


async def test_one_object_that_is_larger_than_a_chunk_goes_alone() -> None:
    replica = Recorded()
    large = published_tool("team-a/large", description="x" * 2 * CHUNK_BYTES)
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=[*MANY[:3], large, *MANY[3:6]]))
    sizes = [len(SnapshotChunk.model_validate_json(body).tools) for body in replica.bodies]
    assert sizes == [3, 1, 3]


async def test_a_catalog_that_is_empty_is_a_snapshot_too() -> None:
    replica = Recorded()
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(accounts=()))
        assert replica.snapshot.accounts == {}
    assert len(replica.bodies) == 1


@pytest.mark.parametrize("features", [(), (DENY_SCOPES,)])
async def test_a_replica_of_an_earlier_version_gets_one_body(features: tuple[str, ...]) -> None:
    old, new = Recorded("old", features), Recorded("new")
    async with publishing(old, new) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY))
        assert old.snapshot.hash == new.snapshot.hash == publisher.hash
    assert old.bodies == []
    assert [step.base for step in old.publishes] == [None]
    assert new.bodies != []


async def test_a_replica_that_is_replaced_by_another_version_at_its_address_is_asked_again() -> None:
    replica = Recorded(features=(DENY_SCOPES,))
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY))
        replica.features = FEATURES
        replica.restart()
        await until(lambda: replica.snapshot.revision)
        assert replica.bodies != []
        before = len(replica.bodies)
        replica.features = (DENY_SCOPES,)
        replica.restart()
        await until(lambda: replica.snapshot.revision)
    assert len(replica.bodies) == before


@pytest.mark.parametrize("error", [RevisionMismatch, ReplicaUnavailable])
async def test_a_replica_that_is_lost_on_the_way_gets_everything_from_the_beginning(
    error: type[Exception],
) -> None:
    replica = Recorded()

    def lost(count: int) -> None:
        if count == 3:
            replica.restart()
            raise error("gone")

    replica.on_chunk = lost
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY))
        assert replica.snapshot.hash == publisher.hash
    numbers = [SnapshotChunk.model_validate_json(body).number for body in replica.bodies]
    assert numbers[:5] == [0, 1, 2, 0, 1]
    assert len({SnapshotChunk.model_validate_json(body).stage for body in replica.bodies}) == 2


async def test_a_leader_that_lost_its_lease_on_the_way_sends_no_further_chunk_and_commits_nothing() -> None:
    replica, leads = Recorded(), [True]
    replica.on_chunk = lambda count: leads.__setitem__(0, count < 2)
    async with publishing(replica, may_act=lambda: leads[0]) as publisher:
        publisher.publish(tools=MANY)
        await until(lambda: not leads[0])
        for _ in range(100):
            await asyncio.sleep(0)
    assert len(replica.bodies) == 2
    assert replica.commits == []
    assert replica.snapshot.revision is None


async def test_what_is_published_while_chunks_are_on_their_way_follows_as_steps() -> None:
    replica, made = Recorded(), []
    late = published_tool("team-a/late")
    async with publishing(replica) as publisher:

        def meanwhile(count: int) -> None:
            if count == 2 and not made:
                made.append(publisher.publish(tools=[late]))

        replica.on_chunk = meanwhile
        publisher.publish(tools=MANY)
        await until(lambda: made)
        await publisher.wait_confirmed(made[0])
        assert replica.snapshot.hash == publisher.hash
    assert len(replica.commits) == 1
    assert replica.commits[0].age > 0  # a revocation might have been among what was still to come


@pytest.mark.parametrize("features", [FEATURES, WHOLE], ids=["chunks", "one body"])
async def test_resources_and_prompts_of_servers_come_with_a_full_snapshot_and_go_with_a_step(
    features: tuple[str, ...],
) -> None:
    replica = Recorded(features=features)
    async with publishing(replica) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY[:1], servers=[server(), server("gone")]))
        assert set(replica.snapshot.servers) == {"team-a/docs", "team-a/gone"}
        await publisher.wait_confirmed(publisher.publish(removed=Removed(servers=("team-a/gone",))))
        assert replica.snapshot.hash == publisher.hash
    assert set(replica.snapshot.parts) == {"team-a/docs:@resources", "team-a/docs:@prompts"}


@pytest.mark.parametrize("features", [FEATURES, WHOLE], ids=["chunks", "one body"])
async def test_a_full_snapshot_brings_no_server_whose_tokens_come_from_a_service_to_a_replica_that_knows_none(
    features: tuple[str, ...],
) -> None:
    oauth = {"tokenService": {"name": "idp", "port": 8080, "path": "/token"}}
    auth = {"type": "ClientCredentials", "secretKeyRef": {"name": "client", "key": "secret"}, "oauth": oauth}
    one = server(mcp={"url": "https://x.test/mcp", "auth": auth})
    older = tuple(name for name in features if name != TOKEN_SERVICES)
    for known, there in ((features, True), (older, False)):
        replica = Recorded(features=known)
        async with publishing(replica) as publisher:
            await publisher.wait_confirmed(publisher.publish(tools=MANY[:1], servers=[one]))
        backends = [part.backend is not None for part in replica.snapshot.parts.values()]
        assert backends == [there, there]


async def test_tools_are_taken_from_their_source_chunk_by_chunk() -> None:
    """So that an operator need not hold what it publishes."""
    replica, taken = Recorded(), [0]

    async def source(snapshot: Snapshot) -> AsyncIterator[PublishedTool]:
        for one in MANY:
            await asyncio.sleep(0)
            taken[0] += 1
            yield one

    at: list[int] = []
    replica.on_chunk = lambda count: at.append(taken[0])
    async with publishing(replica, tools=source) as publisher:
        await publisher.wait_confirmed(publisher.publish(tools=MANY))
        assert replica.snapshot.hash == publisher.hash
    assert len(at) > 4
    assert at[0] < len(MANY) / 3


@pytest.mark.usefixtures("no_collections")
async def test_a_first_publish_of_thousands_of_tools_leaves_the_loop_free() -> None:
    """Judged by what the loop's own thread has to do: fingerprints are made in another."""
    many = [published_tool(f"team-a/tool-{i:05}", description="word " * 200) for i in range(5_000)]
    publisher = Publisher(1, FixedReplicas())
    begun = time.thread_time()
    publisher.snapshot.apply(publisher._next(many, (), None, (), None))
    alone = time.thread_time() - begun
    begun = time.thread_time()
    await publisher.publish_many(tools=many)
    assert time.thread_time() - begun < alone / 3


async def test_many_tools_at_once_become_several_revisions_and_bindings_are_in_the_first() -> None:
    replica = Recorded()
    bound = published("b")
    async with publishing(replica) as publisher:
        publisher.publish()
        last = await publisher.publish_many(tools=MANY, bindings=[bound], accounts=())
        await publisher.wait_confirmed(last)
        assert replica.snapshot.hash == publisher.hash
        assert set(replica.snapshot.tools) == {t.tool_id for t in MANY}
        alone = await publisher.publish_many(removed=Removed(tools=[t.tool_id for t in MANY]))
        assert alone.seq == last.seq + 1


async def test_the_steps_of_many_tools_are_of_bounded_size() -> None:
    publisher = Publisher(1, FixedReplicas())
    publisher.publish()
    bulky = [published_tool(f"team-a/t{i}", input_schema={"description": "x" * 60_000}) for i in range(100)]
    await publisher.publish_many(tools=[*bulky, *MANY], bindings=[published("b")])
    steps = publisher.steps(Revision(epoch=1, seq=1))
    assert steps is not None
    assert max(len(step.model_dump_json()) for step in steps) <= PART_BYTES * 1.1
    assert [len(step.bindings) for step in steps] == [1] + [0] * (len(steps) - 1)


async def test_chunks_go_over_http_as_well() -> None:
    with HttpReplica() as served:
        async with ClientSession() as session, publishing(Client(served.url, session)) as publisher:  # type: ignore[arg-type]
            await publisher.wait_confirmed(publisher.publish(tools=MANY))
            assert served.snapshot.hash == publisher.hash
    assert len(served.publishes) == 1
