"""What is searched of a caller's view: made once for all who see the same, and gone with it."""

import asyncio
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from hash_embedder import HashEmbedder
from published import account, binding, bot, tool
from registry_harness import ManualClock
from toolcrib.resources.tools import ToolState
from toolcrib.wire.publish import Publish, PublishedTool, Removed, Revision
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.engine import SearchEngine
from toolcrib_registry.search.entries import EntryCache
from toolcrib_registry.search.entry import IndexEntry, Pushdown, Stored
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.resident_vectors import FEW
from toolcrib_registry.search.searcher import Searcher

pytestmark = pytest.mark.anyio


async def test_callers_who_see_the_same_share_what_is_searched_and_it_goes_with_their_views(
    tmp_path: Path,
) -> None:
    clock, embedder = ManualClock(), HashEmbedder()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    engine, state = SearchEngine(Searcher(store, embedder), EntryCache(), clock), PolicyState(clock)
    everything = binding(subjects=(account(), account(name="twin")))
    first, second = Revision(epoch=1, seq=1), Revision(epoch=1, seq=2)
    await state.publish(Publish(base=None, to=first, tools=(tool(),), bindings=(everything,)))

    one = await engine.entries_of(await state.caller_view(bot()))
    assert one.keys() == {"team-a/calculator"}
    assert await engine.entries_of(await state.caller_view(bot())) is one
    assert await engine.entries_of(await state.caller_view(bot(name="twin"))) is one

    kept = weakref.ref(one)
    del one
    await state.publish(Publish(base=first, to=second, tools=(tool("team-a/other"),)))
    assert kept() is None

    engine.close()
    await store.aclose()


async def test_a_store_is_told_what_the_callers_grants_cover_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, embedder, told = ManualClock(), HashEmbedder(), list[Pushdown]()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    # no vector is held, so a large view is asked of the store
    searcher = Searcher(store, embedder, resident_bytes=0)
    engine, state = SearchEngine(searcher, EntryCache(), clock), PolicyState(clock)
    tools = tuple(tool(f"team-a/tool-{i}") for i in range(FEW + 1))
    grants = (binding(scopes=("use", "read")), binding("other", namespace="team-b", scopes=("write",)))
    strangers = binding("not-mine", namespace="team-c", subjects=(account(name="other"),), scopes=("admin",))
    await state.publish(
        Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(*grants, strangers))
    )

    async def nearest(_vectors: Any, _limit: int, within: Pushdown) -> list[Stored]:
        told.append(within)
        return []

    monkeypatch.setattr(store, "nearest", nearest)
    await engine.search(await state.caller_view(bot()), Wanted("a tool"))

    assert told
    assert set(told) == {
        Pushdown(
            scopes=frozenset({"use", "read", "write"}),
            namespaces=frozenset({"team-a", "team-b"}),
            states=frozenset({"Active", "Deprecated"}),
        )
    }
    engine.close()
    await store.aclose()


async def test_entries_of_a_large_view_are_made_off_the_event_loop_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, embedder, made = ManualClock(), HashEmbedder(), []
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    engine, state = SearchEngine(Searcher(store, embedder), EntryCache(), clock), PolicyState(clock)
    tools = tuple(tool(f"team-a/tool-{i}") for i in range(501))
    await state.publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(binding(),)))
    real = EntryCache.of

    def of(self: EntryCache, one: PublishedTool) -> IndexEntry:
        made.append(threading.current_thread())
        return real(self, one)

    monkeypatch.setattr(EntryCache, "of", of)
    view = await state.caller_view(bot())
    one, twin = await asyncio.gather(engine.entries_of(view), engine.entries_of(view))

    assert (len(one), len(made)) == (501, 501)
    assert one is twin
    assert threading.main_thread() not in made
    engine.close()
    await store.aclose()


async def test_of_a_large_catalog_only_what_changed_is_taken_in_until_a_minute_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, embedder, looked_at = ManualClock(), HashEmbedder(), list[str]()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    searcher = Searcher(store, embedder)
    engine, state = SearchEngine(searcher, EntryCache(), clock), PolicyState(clock)
    taken_in, following = asyncio.Semaphore(0), searcher.complete
    tools = {i: tool(f"team-a/tool-{i}") for i in range(300)}
    real = EntryCache.of

    def of(self: EntryCache, one: PublishedTool) -> IndexEntry:
        looked_at.append(one.tool_id)
        return real(self, one)

    async def complete() -> bool:
        await following()
        taken_in.release()
        return False

    async def after(**step: Any) -> list[str]:
        """What is looked at after a step."""
        looked_at.clear()
        held = state.snapshot.revision
        to = Revision(epoch=1, seq=1 if held is None else held.seq + 1)
        await state.publish(Publish(base=held, to=to, **step))
        await asyncio.wait_for(taken_in.acquire(), 30)
        return sorted(looked_at)

    monkeypatch.setattr(EntryCache, "of", of)
    monkeypatch.setattr(searcher, "complete", complete)
    task = asyncio.create_task(engine.follow(state))
    await asyncio.wait_for(taken_in.acquire(), 30)  # nothing yet
    try:
        everything = len(await after(tools=tuple(tools.values()), bindings=(binding(),)))
        assert everything == 300
        assert await after(tools=(tool("team-a/tool-7", description="changed"),)) == ["team-a/tool-7"]
        gone = Removed(tools=("team-a/tool-8",))
        assert await after(tools=(tool("team-a/new"),), removed=gone) == ["team-a/new"]
        off = tool("team-a/tool-9", state=ToolState.DISABLED)
        assert await after(tools=(off,)) == []
        assert await searcher.update([], [], count=299) == 299, "the disabled one is searched no more"

        clock.advance(61)
        assert len(await after(tools=(tool("team-a/tool-7"),))) == 299
    finally:
        state.close()
        await asyncio.wait_for(task, 30)
        engine.close()
        await store.aclose()


async def test_what_a_search_of_an_older_view_left_in_the_ranker_is_gone_after_the_next_change(
    tmp_path: Path,
) -> None:
    embedder = HashEmbedder()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    searcher = Searcher(store, embedder)
    entries = [EntryCache().of(tool(f"team-a/tool-{i}")) for i in range(3)]
    stranger = EntryCache().of(tool("team-a/stranger"))

    await searcher.replace([*entries, stranger])
    assert await searcher.update(entries[:1], [], count=3) == 4, "so the whole is taken in"
    await searcher.replace(entries)
    assert await searcher.update(entries[:1], [], count=3) == 3
    searcher.close()
    await store.aclose()
