"""Answers that are kept: only what is still exactly right, for nobody else, within a bound."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

import index_entries
from hash_embedder import HashEmbedder
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.answer_cache import AnswerCache
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.ranking import Ranked
from toolcrib_registry.search.searcher import Answer, Searcher
from toolcrib_registry.search.visible import Visible
from vector_of import vector_of

pytestmark = pytest.mark.anyio
EMBEDDER = HashEmbedder()


def entry(name: str, description: str = "reads a file") -> IndexEntry:
    """A tool."""
    return index_entries.entry(f"ns/{name}", digest=description, description=description)


def view(*entries: IndexEntry) -> Visible:
    """A view of its own."""
    return Visible((e.tool_id, e) for e in entries)


class Asked:
    """Counts how often it was searched, in a store that names its state on request."""

    def __init__(self, state: int | None = 1) -> None:
        self.now: int | None = state
        self.made = 0
        self.degradation: str = ""
        self.hits: tuple[Ranked, ...] = ()
        self.go = asyncio.Event()
        self.go.set()
        self.began = asyncio.Semaphore(0)

    def state(self) -> int | None:
        """What the store says."""
        return self.now

    async def make(self) -> Answer:
        """One search."""
        self.made += 1
        self.began.release()
        await self.go.wait()
        return Answer("hybrid", self.hits, self.degradation)  # type: ignore[arg-type]

    async def by(self, answers: AnswerCache, visible: Visible, request: str = "read") -> Answer:
        """Ask."""
        return await answers.answer(visible, request, self.state, self.make)


async def test_a_request_that_is_repeated_is_searched_once() -> None:
    answers, asked, visible = AnswerCache(), Asked(), view(entry("a"))

    first = await asked.by(answers, visible)

    assert await asked.by(answers, visible) == first
    assert asked.made == 1
    await asked.by(answers, visible, "another")
    assert asked.made == 2


async def test_another_view_of_the_same_tools_is_searched_for_itself() -> None:
    answers, asked, one = AnswerCache(), Asked(), view(entry("a"))
    await asked.by(answers, one)

    await asked.by(answers, view(entry("a")))

    assert asked.made == 2


async def test_an_answer_is_dropped_with_its_view() -> None:
    answers, asked, one = AnswerCache(), Asked(), view(entry("a"))
    await asked.by(answers, one)
    assert len(answers) == 1

    del one
    gc.collect()
    other = view(entry("b"))
    await asked.by(answers, other)

    assert len(answers) == 1
    assert asked.made == 2


async def test_a_degraded_answer_is_never_kept() -> None:
    answers, asked, visible = AnswerCache(), Asked(), view(entry("a"))
    asked.degradation = "embedder_unavailable"
    await asked.by(answers, visible)
    asked.degradation = ""

    assert not (await asked.by(answers, visible)).degraded
    assert asked.made == 2


async def test_an_answer_is_not_kept_if_the_index_changed_while_it_was_made() -> None:
    answers, asked, visible = AnswerCache(), Asked(), view(entry("a"))
    asked.go.clear()
    searching = asyncio.create_task(asked.by(answers, visible))
    await asked.began.acquire()
    asked.now = 2
    during = asyncio.create_task(asked.by(answers, visible))
    await asked.began.acquire()  # whoever comes after the change does not get the search from before it
    asked.now = 3
    asked.go.set()
    await asyncio.gather(searching, during)

    assert len(answers) == 0


async def test_a_store_that_does_not_tell_its_state_is_asked_again_after_half_a_second() -> None:
    now = [100.0]
    answers, asked, visible = AnswerCache(clock=lambda: now[0]), Asked(None), view(entry("a"))
    asked.go.clear()
    searching = asyncio.create_task(asked.by(answers, visible))
    await asked.began.acquire()
    now[0] += 0.3  # the search takes that long: the answer's age counts from the question
    asked.go.set()
    await searching
    await asked.by(answers, visible)
    assert asked.made == 1

    now[0] += 0.2
    await asked.by(answers, visible)
    assert asked.made == 2


async def test_many_who_ask_the_same_at_once_are_answered_by_one_search_even_if_some_give_up() -> None:
    answers, asked, visible = AnswerCache(), Asked(), view(entry("a"))
    asked.go.clear()
    callers = [asyncio.create_task(asked.by(answers, visible)) for _ in range(64)]
    await asked.began.acquire()
    callers[0].cancel()
    asked.go.set()

    found = await asyncio.gather(*callers, return_exceptions=True)

    assert isinstance(found[0], asyncio.CancelledError)
    assert all(isinstance(f, Answer) for f in found[1:])
    assert asked.made == 1


async def test_a_search_that_fails_fails_for_all_who_wait_and_is_made_again_for_the_next() -> None:
    answers, visible, made = AnswerCache(), view(entry("a")), []

    async def fail() -> Answer:
        made.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await answers.answer(visible, "read", lambda: 1, fail)
    assert len(made) == 2


async def test_answers_stay_within_their_bound_and_the_latest_used_stay() -> None:
    answers, asked, visible = AnswerCache(bytes_=20_000), Asked(), view(entry("a"))
    asked.hits = (Ranked(entry("a", "x" * 500), 1.0, 1.0, None, 0.9),)
    await asked.by(answers, visible, "first")
    for i in range(30):
        await asked.by(answers, visible, f"request {i}")
        await asked.by(answers, visible, "first")

    assert answers.weight <= 20_000
    assert 5 < len(answers) < 20
    assert asked.made == 31
    asked.hits = (Ranked(entry("a", "x" * 30_000), 1.0, 1.0, None, 0.9),)
    await asked.by(answers, visible, "too large")
    assert answers.weight <= 20_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """A real store."""
    opened = await EmbeddedStore.open(tmp_path, identity_of(EMBEDDER))
    yield opened
    await opened.aclose()


async def test_every_vector_that_comes_or_goes_is_seen_by_the_next_search(store: EmbeddedStore) -> None:
    searcher, answers = Searcher(store, EMBEDDER, store_seconds=20, embed_seconds=20), AnswerCache()
    tools = [entry("alpha", "reads a file"), entry("beta", "weather of a city")]
    visible = view(*tools)

    async def found() -> tuple[str, ...]:
        answer = await answers.answer(
            visible,
            "read a file",
            lambda: searcher.state,
            lambda: searcher.search(visible, Wanted("read a file", min_score=0.0)),
        )
        return tuple(f"{h.tool_id} {h.dense is not None}" for h in answer.hits)

    async def alone() -> tuple[str, ...]:
        hits = (await searcher.search(visible, Wanted("read a file", min_score=0.0))).hits
        return tuple(f"{h.tool_id} {h.dense is not None}" for h in hits)

    seen = []
    vectors = np.stack([await vector_of(EMBEDDER, t.description) for t in tools])
    for change in (
        lambda: searcher.learn(tools[:1], vectors[:1]),
        lambda: searcher.learn(tools[1:], vectors[1:]),
        lambda: searcher.prepare(tools[:1]),
    ):
        await change()
        seen.append(await found())
        assert await found() == seen[-1] == await alone()
    searcher.close()
    assert seen[0] == seen[2] != seen[1]
