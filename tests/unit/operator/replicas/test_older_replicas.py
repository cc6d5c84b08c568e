"""A rollout never fails open: a replica of an older version gets what it can enforce, and that grants no more."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_harness import MemoryReplica
from published import binding as published
from published import bot
from published import tool as published_tool
from toolcrib.authorizer import Action, Policy, decide
from toolcrib.resources.backends import AuthType
from toolcrib.resources.placing import BodyKind, ParameterPlace
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.wire.backends import (
    PublishedAuth,
    PublishedBackend,
    PublishedMcp,
    PublishedOAuth,
    PublishedParameter,
    PublishedTokenService,
    SecretReference,
)
from toolcrib.wire.features import (
    CALL_CONFIRMATION,
    FEATURES,
    MCP_BACKENDS,
    QUARANTINE,
    TOKEN_SERVICES,
    enforceable,
)
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedServer, ReplicaState, Revision
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import PublisherSettings
from waiting import until

pytestmark = pytest.mark.anyio

REFERENCE = SecretReference(namespace="heist", name="client", key="secret")
DENY = published("no-vault", scopes=(), deny_scopes=("vault",))


def older(name: str) -> MemoryReplica:
    replica = MemoryReplica(name)
    replica.features = ()
    return replica


class FormerHash(MemoryReplica):
    """A replica of a version that makes the hash in another form."""

    @property
    def hash(self) -> str:
        return f"former-{self.snapshot.hash}"


class Forgetful(MemoryReplica):
    """A replica that loses the bindings of every delta, and names the hash of what it holds."""

    async def publish(self, publish: Publish) -> ReplicaState:
        return await super().publish(publish.model_copy(update={"bindings": ()}) if publish.base else publish)


class ForgetfulFormerHash(Forgetful, FormerHash):
    """Both."""


def former(name: str) -> MemoryReplica:
    replica = FormerHash(name)
    replica.features = ()
    return replica


def full(replica: MemoryReplica) -> int:
    return sum(step.base is None for step in replica.publishes)


def denied(replica: MemoryReplica) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    found = list(replica.snapshot.bindings.values())
    return (found[0].deny, found[0].deny_scopes) if found else None


@contextlib.asynccontextmanager
async def publishing(*replicas: MemoryReplica, recheck: float = 60.0) -> AsyncIterator[Publisher]:
    settings = PublisherSettings(heartbeat=0.05, discover=0.05, backoff=(0.01, 0.05), recheck=recheck)
    publisher, stop = Publisher(1, FixedReplicas(*replicas), settings=settings), asyncio.Event()
    running = asyncio.create_task(publisher.run(stop))
    try:
        yield publisher
    finally:
        stop.set()
        await running


async def test_an_older_replica_denies_everything_in_reach_beside_a_newer_one_that_denies_the_scope() -> None:
    old, new = older("old"), MemoryReplica("new")
    async with publishing(old, new) as publisher, asyncio.timeout(60):
        await publisher.wait_confirmed(publisher.publish(bindings=[DENY]))
        assert denied(old) == (("*",), ())
        assert denied(new) == ((), ("vault",))
        edited = DENY.model_copy(update={"generation": 2, "deny": ("x",)})
        await publisher.wait_confirmed(publisher.publish(bindings=[edited]))
        assert denied(new) == (("x",), ("vault",))
    assert {(b.deny, b.deny_scopes) for step in old.publishes for b in step.bindings} == {(("*",), ())}


async def test_a_replica_that_is_replaced_at_its_address_gets_what_it_now_knows() -> None:
    replica = older("one")
    async with publishing(replica) as publisher:
        publisher.publish(bindings=[DENY])
        await until(lambda: denied(replica) == (("*",), ()))
        for features, wanted in ((FEATURES, ((), ("vault",))), ((), (("*",), ()))):
            replica.features = features
            replica.restart()
            await until(lambda wanted=wanted: denied(replica) == wanted)


@pytest.mark.parametrize("make", [older, former])
@pytest.mark.parametrize("bound", [DENY, published()])
async def test_a_replica_with_a_hash_of_its_own_stays_confirmed_without_further_full_snapshots(
    make: Callable[[str], MemoryReplica], bound: PublishedBinding
) -> None:
    replica, seen = make("old"), set[Revision | None]()
    async with publishing(replica) as publisher, asyncio.timeout(60):
        await publisher.wait_confirmed(publisher.publish())
        publisher.subscribe(lambda: seen.add(publisher.confirmed("old")))
        await publisher.wait_confirmed(publisher.publish(bindings=[bound]))
        before = full(replica)
        for generation in (2, 3):
            edited = bound.model_copy(update={"generation": generation})
            last = publisher.publish(bindings=[edited])
            await publisher.wait_confirmed(last)
            beats = len(replica.heartbeats)
            await until(lambda beats=beats: len(replica.heartbeats) >= beats + 20)
            assert replica.heartbeats[-1].revision == last
    assert full(replica) - before <= 1
    assert None not in seen


@pytest.mark.parametrize("make", [MemoryReplica, older, former])
async def test_a_replica_whose_content_changes_under_its_hand_is_brought_back(
    make: Callable[[str], MemoryReplica],
) -> None:
    replica = make("one")
    async with publishing(replica) as publisher, asyncio.timeout(60):
        for seq in (1, 2):
            await publisher.wait_confirmed(
                publisher.publish(bindings=[DENY.model_copy(update={"generation": seq})])
            )
            held = replica.snapshot
            replica.snapshot = dataclasses.replace(Snapshot(), revision=held.revision)
            await until(lambda held=held: replica.snapshot.bindings == held.bindings)


@pytest.mark.parametrize(("make", "recheck"), [(Forgetful, 60.0), (ForgetfulFormerHash, 0.2)])
async def test_a_replica_that_came_to_other_content_by_a_delta_gets_a_full_snapshot(
    make: type[MemoryReplica], recheck: float
) -> None:
    replica = make("one")
    async with publishing(replica, recheck=recheck) as publisher, asyncio.timeout(60):
        await publisher.wait_confirmed(publisher.publish())
        publisher.publish(bindings=[published()])
        await until(lambda: replica.snapshot.bindings)
        assert full(replica) == 2


async def test_a_replica_that_comes_to_other_content_by_every_delta_gets_no_full_snapshot_for_each() -> None:
    replica = Forgetful("one")
    async with publishing(replica) as publisher, asyncio.timeout(60):
        for generation in range(1, 8):
            edited = published(generation=generation)
            await publisher.wait_confirmed(publisher.publish(bindings=[edited]))
            beats = len(replica.heartbeats)
            await until(lambda beats=beats: len(replica.heartbeats) > beats)
    assert full(replica) == 2


async def test_an_older_replica_gets_no_backend_of_a_tool_that_it_would_call_over_plain_http() -> None:
    old, new = older("old"), MemoryReplica("new")
    way = PublishedBackend(url="https://mcp.example/mcp", mcp=PublishedMcp(server="heist/srv", tool="echo"))
    async with publishing(old, new) as publisher, asyncio.timeout(60):
        await publisher.wait_confirmed(publisher.publish())
        await publisher.wait_confirmed(publisher.publish(tools=[published_tool("heist/echo", backend=way)]))
        assert old.snapshot.tools["heist/echo"].backend is None
        assert new.snapshot.tools["heist/echo"].backend == way
        old.restart()
        await until(lambda: "heist/echo" in old.snapshot.tools)
        assert old.snapshot.tools["heist/echo"].backend is None


@pytest.mark.parametrize(
    "placed",
    [
        {"body": BodyKind.FORM},
        {"parameters": (PublishedParameter(argument="a", place=ParameterPlace.HEADER, name="X-A"),)},
    ],
)
def test_an_older_replica_gets_no_backend_of_a_tool_whose_arguments_it_would_send_elsewhere(
    placed: dict[str, Any],
) -> None:
    tools = [
        published_tool("heist/a", backend=PublishedBackend(url="https://a.example", **fields))
        for fields in (placed, {})
    ]
    step = Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools))

    assert [tool.backend for tool in enforceable(step, ()).tools] == [None, tools[1].backend]
    assert enforceable(step, FEATURES) is step


def test_to_an_older_replica_a_quarantined_tool_is_a_disabled_one() -> None:
    one = published_tool("team-a/calculator", quarantined=True)
    step = Publish(to=Revision(epoch=1, seq=1), tools=(one,))
    (sent,) = enforceable(step, ()).tools
    assert sent.state is ToolState.DISABLED
    assert enforceable(step, FEATURES) is step


def test_an_older_replica_gets_no_backend_that_takes_access_tokens() -> None:
    way = PublishedBackend(
        url="https://api.example/x",
        auth=PublishedAuth(
            type=AuthType.CLIENT_CREDENTIALS, secret=REFERENCE, oauth=PublishedOAuth(client_id=REFERENCE)
        ),
    )
    step = Publish(to=Revision(epoch=1, seq=1), tools=(published_tool("heist/echo", backend=way),))

    (sent,) = enforceable(step, (MCP_BACKENDS, QUARANTINE)).tools

    assert sent.backend is None
    assert enforceable(step, FEATURES) is step


def test_to_an_older_replica_a_tool_whose_calls_are_confirmed_is_disabled() -> None:
    """It would make the calls and ask nobody."""
    confirmed = published_tool("heist/pay", confirm=True)
    step = Publish(to=Revision(epoch=1, seq=1), tools=(confirmed, published_tool("heist/echo")))

    pay, echo = enforceable(step, set(FEATURES) - {CALL_CONFIRMATION}).tools

    assert (pay.state, echo.state) == (ToolState.DISABLED, ToolState.ACTIVE)
    assert enforceable(step, FEATURES) is step


def test_an_older_replica_gets_no_backend_whose_token_endpoint_is_a_service_nor_resources_of_such_a_server() -> (
    None
):
    """It would leave the Service out, and ask the server itself for a token endpoint."""
    at = PublishedTokenService(namespace="heist", name="idp", port=8080, path="/token")
    oauth = PublishedOAuth(client_id=REFERENCE, token_service=at)
    auth = PublishedAuth(type=AuthType.CLIENT_CREDENTIALS, secret=REFERENCE, oauth=oauth)
    way = PublishedBackend(url="https://api.example/mcp", auth=auth)
    parts = (published_tool("heist/files:@resources", backend=way), published_tool("heist/files:@prompts"))
    step = Publish(
        to=Revision(epoch=1, seq=1),
        tools=(published_tool("heist/echo", backend=way),),
        servers=(PublishedServer(server_id="heist/files", parts=parts),),
    )

    sent = enforceable(step, set(FEATURES) - {TOKEN_SERVICES})

    assert sent.tools[0].backend is None
    assert [part.backend for part in sent.servers[0].parts] == [None, parts[1].backend]
    assert enforceable(step, FEATURES) is step


@given(st.data())
def test_what_an_older_replica_allows_a_newer_one_allows_too(data: st.DataObject) -> None:
    scopes = st.lists(st.sampled_from(["use", "vault", "x"]), max_size=2, unique=True).map(tuple)
    bindings = [
        published(f"b{i}", home, scopes=data.draw(scopes), deny=data.draw(st.sampled_from([(), ("calc*",)])),
                  deny_scopes=data.draw(scopes))
        for i, home in enumerate(data.draw(st.lists(st.sampled_from(["team-a", "team-b", None]), max_size=4)))
    ]  # fmt: skip
    one = published_tool(
        data.draw(st.sampled_from(["team-a/calculator", "team-b/x"])), scopes=data.draw(scopes)
    )
    step = Publish(to=Revision(epoch=1, seq=1), bindings=tuple(bindings))

    def allows(sent: Publish) -> bool:
        return bool(decide(bot(), one, Action.CALL, Policy.compile(sent.bindings), 100.0))

    assert enforceable(step, FEATURES) is step
    old = enforceable(step, ())
    assert not any(b.deny_scopes for b in old.bindings)
    assert not allows(old) or allows(step)
