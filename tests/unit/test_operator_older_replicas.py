"""A rollout never fails open: a replica of an older version gets what it can enforce, and that grants no more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_harness import MemoryReplica, until
from published import binding as published
from published import bot
from published import tool as published_tool
from toolcrib.authorizer import Action, Policy, decide
from toolcrib.wire.publish import FEATURES, Publish, Revision, enforceable
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.publisher import Publisher
from toolcrib_operator.settings import PublisherSettings

pytestmark = pytest.mark.anyio

DENY = published("no-vault", scopes=(), deny_scopes=("vault",))


def older(name: str) -> MemoryReplica:
    replica = MemoryReplica(name)
    replica.features = ()
    return replica


def denied(replica: MemoryReplica) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    found = list(replica.snapshot.bindings.values())
    return (found[0].deny, found[0].deny_scopes) if found else None


@contextlib.asynccontextmanager
async def publishing(*replicas: MemoryReplica) -> AsyncIterator[Publisher]:
    settings = PublisherSettings(heartbeat=0.1, discover=0.05, backoff=(0.01, 0.05))
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
