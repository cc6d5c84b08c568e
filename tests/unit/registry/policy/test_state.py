"""The policy state of a replica."""

import asyncio
import hashlib
import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from frozen_heap import frozen_by
from published import binding, bot, tool
from registry_harness import ManualClock
from toolcrib.authorizer import Action, Decision, decide
from toolcrib.process.garbage import LARGE
from toolcrib.view import View, ViewMaker
from toolcrib.wire.publish import Publish, Removed, Revision, SnapshotChunk, SnapshotCommit
from toolcrib_registry.policy import view_cache
from toolcrib_registry.policy.staging import Staging
from toolcrib_registry.policy.state import WORK_AT_ONCE, PolicyState
from toolcrib_registry.policy.view_cache import CALLS

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_what_a_large_publish_brings_is_frozen() -> None:
    async def publish(count: int) -> None:
        tools = tuple(tool(f"team-a/tool-{i}") for i in range(count))
        await PolicyState(ManualClock()).publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools))

    assert await frozen_by(lambda: publish(1)) == 0
    assert await frozen_by(lambda: publish(LARGE)) > LARGE


@pytest.mark.slow
async def test_what_a_large_snapshot_brings_is_frozen_however_small_its_chunks_are() -> None:
    to, stage = Revision(epoch=1, seq=1), "a" * 32

    async def publish(count: int) -> None:
        staging, digest = Staging(PolicyState(ManualClock()), most=1 << 30), hashlib.sha256()
        for number in range(count):
            one = SnapshotChunk(
                to=to, stage=stage, number=number, tools=(tool(f"team-a/tool-{number}"),), bindings=()
            )
            body = one.model_dump_json().encode()
            digest.update(body)
            await staging.take(one, body)
        commit = SnapshotCommit(to=to, stage=stage, chunks=count, digest=digest.hexdigest(), age=0.0)
        await staging.commit(commit)

    assert await frozen_by(lambda: publish(1)) == 0
    assert await frozen_by(lambda: publish(LARGE)) > LARGE


MANY = WORK_AT_ONCE // 2 + 1
BOT, EVERYTHING = bot(), binding()


async def held(count: int) -> PolicyState:
    """A state with so many tools, all of which BOT may see."""
    state = PolicyState(ManualClock())
    tools = tuple(tool(f"team-a/tool-{i}") for i in range(count))
    await state.publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(EVERYTHING,)))
    return state


async def revoke(state: PolicyState) -> None:
    gone = Removed(bindings=(EVERYTHING.uid,))
    await state.publish(Publish(base=Revision(epoch=1, seq=1), to=Revision(epoch=1, seq=2), removed=gone))


async def test_a_large_view_is_made_once_for_all_who_ask_meanwhile() -> None:
    state = await held(MANY)
    caller_views = await asyncio.gather(*(state.caller_view(BOT) for _ in range(10)))
    assert len(caller_views[0].view.tools) == MANY
    assert {id(one) for one in caller_views} == {id(caller_views[0])}


async def test_a_caller_who_gives_up_waiting_for_a_large_view_ends_it_for_nobody_else() -> None:
    state = await held(MANY)
    gone, patient = (
        asyncio.ensure_future(state.caller_view(BOT)),
        asyncio.ensure_future(state.caller_view(BOT)),
    )
    await asyncio.sleep(0)
    gone.cancel()
    assert len((await patient).view.tools) == MANY
    assert gone.cancelled()


@pytest.mark.parametrize("count", [1, MANY])
async def test_what_is_revoked_while_a_view_is_made_is_not_in_it(count: int) -> None:
    state = await held(count)
    asked = [asyncio.ensure_future(state.caller_view(BOT)) for _ in range(3)]
    await asyncio.sleep(0)
    await revoke(state)
    later = await state.caller_view(BOT)
    assert later.snapshot is state.snapshot
    assert later.view.tools == {}
    # those who asked before have one view of one snapshot, the earlier or the later
    assert {len(one.view.tools) for one in await asyncio.gather(*asked)} <= {0, count}


async def test_a_view_that_takes_long_holds_back_no_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    state, begun, go = await held(MANY), threading.Event(), threading.Event()

    real = ViewMaker.of

    def slow(self: ViewMaker, *asked: Any) -> View:
        begun.set()
        assert go.wait(30)
        return real(self, *asked)

    monkeypatch.setattr(ViewMaker, "of", slow)
    waiting = asyncio.ensure_future(state.caller_view(BOT))
    assert await asyncio.to_thread(begun.wait, 30)
    await revoke(state)
    assert state.snapshot.revision == Revision(epoch=1, seq=2)
    go.set()
    assert (await waiting).view.tools == {}


async def test_a_view_of_few_tools_under_many_bindings_is_made_aside() -> None:
    state = PolicyState(ManualClock())
    deny = tuple(f"other-{i}" for i in range(60))
    tools = tuple(tool(f"team-a/tool-{i}") for i in range(100))
    bindings = tuple(binding(f"grant-{i}", deny=deny) for i in range(50))
    await state.publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=bindings))
    asked = asyncio.ensure_future(state.caller_view(BOT))
    await asyncio.sleep(0)
    assert not asked.done(), "the loop goes on meanwhile"
    assert len((await asked).view.tools) == 100


async def test_a_busy_cluster_does_not_keep_a_large_view_from_being_made() -> None:
    state, stop = await held(MANY), asyncio.Event()

    async def publishing() -> None:
        seq = 1
        while not stop.is_set():
            step = Publish(base=Revision(epoch=1, seq=seq), to=Revision(epoch=1, seq=seq + 1))
            await state.publish(step)
            seq += 1

    busy = asyncio.ensure_future(publishing())
    async with asyncio.timeout(60):
        seen = await state.caller_view(BOT)
        while seen.snapshot.revision is None or seen.snapshot.revision.seq < 5:
            await asyncio.sleep(0)  # a remembered view comes without a pause, and nothing would be published
            seen = await state.caller_view(BOT)
    stop.set()
    await busy
    assert len(seen.view.tools) == MANY


@pytest.mark.parametrize("edited", ["a tool", "a binding"])
async def test_a_namespace_that_never_stops_changing_keeps_the_others_tools_from_nobody(edited: str) -> None:
    clock, over = ManualClock(), asyncio.Event()
    state = PolicyState(clock)
    wide = [
        binding(f"many-{n}", namespace="team-b", deny=tuple(f"y{n}-{i}-*" for i in range(64)))
        for n in range(4)
    ]
    tools = [tool(f"{team}/tool-{i}") for team in ("team-a", "team-b") for i in range(MANY)]
    await state.publish(
        Publish(
            base=None,
            to=Revision(epoch=1, seq=1),
            tools=tuple(tools),
            bindings=(binding(namespace="team-a"), *wide),
        )
    )

    async def edits() -> None:
        for seq in itertools.count(1):
            if over.is_set():
                return
            changed: dict[str, Any] = {"tools": (tool("team-b/tool-0", generation=seq + 1),)}
            if edited == "a binding":
                changed = {"bindings": (wide[0].model_copy(update={"generation": seq + 1}),)}
            step = Publish(base=Revision(epoch=1, seq=seq), to=Revision(epoch=1, seq=seq + 1), **changed)
            await state.publish(step)
            await asyncio.sleep(0.02)

    editing = asyncio.create_task(edits())
    try:
        async with asyncio.timeout(30):
            for _ in range(5):
                seen = await state.caller_view(BOT)
                assert sum(i.startswith("team-a/") for i in seen.view.tools) == MANY
                clock.jump(2)
    finally:
        over.set()
        await editing
    # what was left out is judged once there is time for it
    async with asyncio.timeout(30):
        while len((await state.caller_view(BOT)).view.tools) < len(tools):
            clock.jump(2)


async def test_a_call_is_decided_as_the_authorizer_decides_it_at_each_moment_and_for_each_tool_of_an_id() -> (
    None
):
    clock = ManualClock(1_000.0)
    state = PolicyState(clock)
    many = [tool(f"team-a/tool-{i}") for i in range(3 * CALLS)]
    ends, denied = binding(not_before=1_000.0, expires_at=1_100.0), tool("team-a/tool-0", scopes=("other",))
    publish = Publish(base=None, to=Revision(epoch=1, seq=1), tools=tuple(many), bindings=(ends,))
    await state.publish(publish)
    view = await state.caller_view(BOT)

    for at in (1_000.0, 1_099.999, 1_100.0, 999.0, 1_050.0):
        for each in (*many, denied, *many[:3]):
            for action in (Action.CALL, Action.DESCRIBE):
                assert view.decide(each, action, at) == decide(BOT, each, action, state.snapshot.policy, at)
    assert 0 < len(view._calls) <= CALLS


async def test_while_a_view_holds_a_call_of_a_tool_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state, asked = await held(2), list[str]()

    def counted(*question: Any) -> Decision:
        asked.append(question[1].tool_id)
        return decide(*question)

    monkeypatch.setattr(view_cache, "decide", counted)
    view = await state.caller_view(BOT)
    for _ in range(3):
        for each in view.view.tools.values():
            assert view.decide(each, Action.CALL, state.clock.now()).allowed
    assert sorted(asked) == ["team-a/tool-0", "team-a/tool-1"]


async def test_a_token_that_ends_while_its_large_view_is_made_leaves_nothing_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = await held(MANY)
    assert isinstance(state.clock, ManualClock)
    ending = replace(BOT, expires_at=state.clock.now() + 10)
    real = PolicyState._make

    async def late(self: PolicyState, identity: Any) -> None:
        if identity is ending:
            state.clock.jump(20)  # type: ignore[attr-defined]
        await real(self, identity)

    monkeypatch.setattr(PolicyState, "_make", late)
    assert (await state.caller_view(ending)).view.tools == {}
    assert len((await state.caller_view(BOT)).view.tools) == MANY
