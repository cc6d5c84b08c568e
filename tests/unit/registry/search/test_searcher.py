"""Searching a view: exactly what is in it, with the store's help until its vectors are here, and without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from small_index import EMBEDDER, BrokenEmbedder, Clock, fill, ids, oracle, own, tool, view_of
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.confidence import confidence
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import NullEmbedder, QueryCache, identity_of
from toolcrib_registry.search.entry import Pushdown, Stored, Vector
from toolcrib_registry.search.errors import StoreUnavailable
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.resident_vectors import FEW
from toolcrib_registry.search.searcher import Searcher

pytestmark = pytest.mark.anyio


class LooseStore(EmbeddedStore):
    """The embedded store, which notes what it is asked and fails on request."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[tuple[int, Pushdown]] = []
        """Limit and restriction of each question for the nearest."""
        self.fetched: list[int] = []
        """How many vectors each request was for."""
        self.trouble: Callable[[], Any] | None = None

    async def nearest(self, vectors: Vector, limit: int, within: Pushdown) -> list[Stored]:
        """Note, then fail or answer."""
        self.asked.append((limit, within))
        if self.trouble is not None:
            await self.trouble()
        return await super().nearest(vectors, limit, within)

    async def get(self, ids: Collection[str]) -> list[Stored]:
        """Note, then fail or answer."""
        self.fetched.append(len(ids))
        if self.trouble is not None:
            await self.trouble()
        return await super().get(ids)


class UnaskedStore:
    """A store that answers nothing and notes every request."""

    identity = identity_of(EMBEDDER)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, request: str) -> Any:
        self.asked.append(request)
        raise StoreUnavailable(request)


@pytest.fixture
async def loose(tmp_path: Path) -> AsyncIterator[LooseStore]:
    """An empty store that notes what it is asked."""
    store = await LooseStore.open(tmp_path / "loose", identity_of(EMBEDDER))
    assert isinstance(store, LooseStore)
    yield store
    await store.aclose()


@pytest.mark.parametrize("size", [1, 7, 150, 450])
async def test_an_answer_is_the_exact_ranking_of_the_view_whatever_else_is_stored(
    exact: EmbeddedStore, searchers: Callable[..., Searcher], size: int
) -> None:
    everything = [tool(i) for i in range(500)]
    await fill(exact, everything)
    view = view_of(everything[50 : 50 + size])
    searcher = searchers(exact, EMBEDDER)
    assert not await searcher.prepare(everything), "nothing is lacking"

    answer = await searcher.search(view, Wanted(f"list the customer {own(77)}", limit=10, min_score=0.0))

    assert ids(answer) == await oracle(view, f"list the customer {own(77)}", 10)
    assert (answer.mode, answer.degraded) == ("hybrid", False)


async def test_the_vectors_of_a_small_view_are_fetched_while_its_first_search_waits(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    everything = [tool(i) for i in range(400)]
    await fill(loose, everything)
    view, searcher = view_of(everything[:FEW]), searchers(loose, EMBEDDER)

    for query in ("delete invoice backup", "write the city"):
        answer = await searcher.search(view, Wanted(query, limit=20, min_score=0.0))
        assert ids(answer) == await oracle(view, query, 20)

    assert (loose.fetched, loose.asked) == ([FEW], [])


async def test_until_the_vectors_of_a_large_view_are_here_the_store_tells_the_nearest(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    everything = [tool(i, scopes=("mine:use",) if i % 2 else ("theirs:use",)) for i in range(600)]
    await fill(loose, everything)
    view = view_of(e for e in everything if "mine:use" in e.scopes)
    down, searcher = Pushdown(scopes=frozenset({"mine:use"})), searchers(loose, EMBEDDER)
    query = f"{own(301)} write customer"

    first = await searcher.search(view, Wanted(query, limit=5, min_score=0.0), down)
    assert (first.mode, first.degraded) == ("hybrid", False)
    assert set(ids(first)) <= set(view)
    assert ids(first)[0] == "ns/tool-0301"
    assert loose.asked == [(64, down)]

    assert not await searcher.complete(), "they come behind the first search"
    loose.asked, loose.fetched = [], []
    then = await searcher.search(view, Wanted(query, limit=5, min_score=0.0), down)

    assert ids(then) == await oracle(view, query, 5)
    assert (loose.asked, loose.fetched) == ([], [])


async def test_what_the_caller_filters_by_narrows_what_the_store_is_asked_for(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    everything = [tool(i, server="files", tags=("Blue",)) for i in range(FEW + 10)]
    await fill(loose, everything)

    await searchers(loose, EMBEDDER).search(
        view_of(everything),
        Wanted("read", tags=("BLUE",), servers=("ns/Files",), namespaces=("NS",), states=("Active",)),
        Pushdown(scopes=frozenset({"a:use"})),
    )

    (within,) = {asked for _, asked in loose.asked}
    assert within == Pushdown(
        scopes=frozenset({"a:use"}),
        namespaces=frozenset({"ns"}),
        servers=frozenset({"files"}),
        states=frozenset({"Active"}),
        tags=frozenset({"blue"}),
    )


async def test_four_times_as_many_are_asked_for_until_enough_are_in_the_view(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    same = {"namespace": "a", "name": "read the database", "description": "read the database"}
    denied = [tool(i, **same) for i in range(400)]
    mine = [tool(i, namespace="b") for i in range(2_600)]
    await fill(loose, denied + mine)
    view, searcher = view_of(mine), searchers(loose, EMBEDDER)

    answer = await searcher.search(view, Wanted("read the database", limit=10, min_score=0.0))

    assert [limit for limit, _ in loose.asked] == [64, 256, 1024]
    assert ids(answer) == await oracle(view, "read the database", 10)


@pytest.mark.parametrize("size", [FEW, FEW + 100])
async def test_vectors_that_do_not_fit_are_not_held_and_the_store_is_asked_each_time(
    loose: LooseStore, searchers: Callable[..., Searcher], size: int, caplog: pytest.LogCaptureFixture
) -> None:
    everything = [tool(i) for i in range(400)]
    await fill(loose, everything)
    searcher = searchers(loose, EMBEDDER, resident_bytes=399 * 4 * EMBEDDER.dimension)
    assert not await searcher.prepare(everything)
    assert "search.resident_bytes" in caplog.text
    view = view_of(everything[:size])

    for query in (f"read customer {own(77)}", f"write customer {own(78)}"):
        answer = await searcher.search(view, Wanted(query, limit=5, min_score=0.0))
        assert (answer.mode, answer.degraded) == ("hybrid", False)
        assert (await oracle(view, query, 1))[0] in ids(answer)
        if size == FEW:
            assert ids(answer) == await oracle(view, query, 5)

    assert (len(loose.asked), loose.fetched) == ((0, [FEW, FEW]) if size == FEW else (2, []))
    # fewer tools: they fit from now on
    assert not await searcher.prepare(everything[1:])
    loose.asked, loose.fetched = [], []
    await searcher.search(view_of(everything[1:]), Wanted("read", limit=5, min_score=0.0))
    assert (loose.asked, loose.fetched) == ([], [])
    # more again: none is held, since half a matrix would make answers depend on which half
    await searcher.prepare(everything)
    await searcher.search(view_of(everything[1:]), Wanted("read", limit=5, min_score=0.0))
    assert len(loose.asked) == 1


async def test_while_the_store_is_away_what_is_here_ranks_on(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(300)]
    await fill(loose, entries)
    searcher = searchers(loose, EMBEDDER)
    await searcher.prepare(entries)

    async def refuse() -> None:
        raise StoreUnavailable("gone")

    loose.trouble = refuse
    whole = await searcher.search(view_of(entries), Wanted(own(42), limit=5, min_score=0.0))
    newer = [*entries, tool(999, description="brew coffee")]
    assert await searcher.prepare(newer), "one is lacking"
    grown = await searcher.search(view_of(newer), Wanted("brew a coffee", limit=5, min_score=0.0))

    assert ids(whole) == await oracle(view_of(entries), own(42), 5)
    assert {(a.mode, a.degraded) for a in (whole, grown)} == {("hybrid", False)}
    assert ids(grown)[0] == "ns/tool-0999", "by its words"


async def test_what_an_index_that_is_being_filled_does_not_have_is_ranked_by_its_words_without_waiting(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(2 * FEW + 20)]
    searcher = searchers(loose, EMBEDDER)
    assert await searcher.prepare(entries), "the store has none"
    await fill(loose, entries[:10])
    view = view_of(entries)
    waited, near = time.monotonic(), [""]

    while not (loose.asked == [] and near == await oracle(view_of(entries[:10]), own(5), 5)):
        assert time.monotonic() < waited + 30
        loose.asked = []
        near = ids(await searcher.search(view, Wanted(own(5), limit=5, min_score=0.0)))
    found = await searcher.search(view, Wanted(f"{own(400)}", limit=5, min_score=0.0))

    assert (found.mode, found.degraded, ids(found)[0]) == ("hybrid", False, "ns/tool-0400")
    assert loose.asked == [], "the nearest would not be those that it lacks"


async def test_vectors_that_this_replica_wrote_are_not_fetched(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(300)]
    searcher = searchers(loose, EMBEDDER)

    await searcher.learn(entries, await EMBEDDER.embed_documents([dense_text(e) for e in entries]))
    answer = await searcher.search(view_of(entries), Wanted(own(42), limit=5, min_score=0.0))

    assert ids(answer) == await oracle(view_of(entries), own(42), 5)
    assert (loose.asked, loose.fetched) == ([], [])


async def test_a_vector_that_the_store_lacked_is_asked_for_again_once_this_replica_wrote_it(
    loose: LooseStore, searchers: Callable[..., Searcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool's definition changed and changed back, all within the time for which nobody asks for an absent vector."""
    monkeypatch.setattr("toolcrib_registry.search.resident_vectors._ABSENT_SECONDS", 3600.0)
    first, other = tool(0), tool(0, description="baroque music", digest="sha256:new")
    searcher = searchers(loose, EMBEDDER)
    assert await searcher.prepare([first]), "the store lacks it"
    vectors = await EMBEDDER.embed_documents([dense_text(first)])
    await loose.put([first], vectors)
    await searcher.learn([first], vectors)
    await searcher.replace([other])
    await searcher.replace([first])

    answer = await searcher.search(view_of([first]), Wanted(own(0), limit=5, min_score=0.0))

    assert (answer.mode, answer.degraded) == ("hybrid", False)


async def test_hits_of_another_version_are_dropped_and_the_tool_is_found_by_its_own_words(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    await fill(exact, [tool(i) for i in range(5)])
    changed = tool(0, description="baroque music", digest="sha256:new")
    view = view_of([changed, *(tool(i) for i in range(1, 5))])

    answer = await searchers(exact, EMBEDDER).search(view, Wanted("baroque music", limit=5, min_score=0.0))

    assert answer.hits[0].entry is changed
    assert answer.hits[0].dense is None


async def test_a_tool_that_is_not_indexed_yet_is_found_by_its_words(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    await fill(exact, [tool(i) for i in range(5)])
    view = view_of([*(tool(i) for i in range(5)), tool(99, description="brew coffee")])

    answer = await searchers(exact, EMBEDDER).search(view, Wanted("brew a coffee", limit=3, min_score=0.0))

    assert ids(answer)[0] == "ns/tool-0099"
    assert answer.mode == "hybrid"


async def test_tags_and_servers_filter_before_the_limit(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i, tags=("Blue",) if i % 3 == 0 else ("red",), server=f"s{i % 2}") for i in range(30)]
    await fill(exact, entries)
    searcher = searchers(exact, EMBEDDER)

    blue = await searcher.search(view_of(entries), Wanted("read", tags=("BLUE",), limit=100, min_score=0.0))
    both = await searcher.search(
        view_of(entries), Wanted("read", tags=("blue",), servers=("ns/S1",), limit=2, min_score=0.0)
    )

    assert sorted(ids(blue)) == [e.tool_id for e in entries if "Blue" in e.tags]
    assert len(both.hits) == 2
    assert all(h.entry.server == "s1" and "Blue" in h.entry.tags for h in both.hits)


async def test_a_filter_answers_as_the_view_without_what_it_leaves_out(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i, tags=("blue",) if i % 2 else ()) for i in range(30)]
    await fill(exact, entries)
    searcher = searchers(exact, EMBEDDER)
    blue = [e for e in entries if e.tags]

    every = await searcher.search(view_of(entries), Wanted("read customer", limit=100, min_score=0.0))
    filtered = await searcher.search(
        view_of(entries), Wanted("read customer", tags=("blue",), limit=100, min_score=0.0)
    )
    alone = await searcher.search(view_of(blue), Wanted("read customer", limit=100, min_score=0.0))

    assert filtered.hits == alone.hits
    # so the same tool has another share of the words, since they are rare among others now, and the same cosine
    before = {h.tool_id: h for h in every.hits}
    moved = [(h, before[h.tool_id]) for h in filtered.hits if h.lexical]
    assert moved
    assert all(h.lexical != b.lexical and h.dense == b.dense for h, b in moved)


async def test_without_text_nothing_is_embedded_and_the_filters_decide(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i, tags=("blue",) if i < 3 else ()) for i in range(9)]
    embedder = BrokenEmbedder()

    answer = await searchers(exact, embedder).search(
        view_of(entries), Wanted("  ", tags=("blue",), limit=2, min_score=0.0)
    )

    assert (answer.mode, answer.degraded, embedder.asked) == ("filter", False, 0)
    assert ids(answer) == ["ns/tool-0000", "ns/tool-0001"]


async def test_a_least_confidence_and_the_best_servers_are_applied_before_the_limit(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i, server=f"s{i % 4}") for i in range(40)]
    await fill(exact, entries)
    searcher = searchers(exact, EMBEDDER)
    every = await searcher.search(view_of(entries), Wanted("weather city", limit=40, min_score=0.0))
    own = {h.tool_id: confidence(h.lexical, h.dense) for h in every.hits}
    middle = sorted(own.values())[20]

    sure = await searcher.search(view_of(entries), Wanted("weather city", limit=40, min_score=middle))
    one = await searcher.search(
        view_of(entries), Wanted("weather city", limit=40, top_k_servers=1, min_score=0.0)
    )

    assert ids(sure) == [h.tool_id for h in every.hits if own[h.tool_id] >= middle]
    assert {h.entry.server for h in one.hits} == {every.hits[0].entry.server}
    assert len(one.hits) == 10


async def test_a_store_that_is_away_leaves_search_to_the_words_of_the_snapshot(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(300)]
    await fill(loose, entries)
    clock = Clock()
    searcher = searchers(loose, EMBEDDER, clock=clock)

    async def refuse() -> None:
        raise StoreUnavailable("gone")

    loose.trouble = refuse
    away = await searcher.search(view_of(entries), Wanted(own(42), limit=5, min_score=0.0))
    again = await searcher.search(view_of(entries), Wanted(own(42), limit=5, min_score=0.0))

    for answer in (away, again):
        assert (answer.mode, answer.degradation) == ("lexical", "store_unavailable")
        assert ids(answer) == ["ns/tool-0042"]
    assert len(loose.asked) == 1, "a store that just failed is left alone for a while"

    loose.trouble = None
    clock.now += 60
    back = await searcher.search(view_of(entries), Wanted(own(42), limit=5, min_score=0.0))

    assert (back.mode, back.degraded) == ("hybrid", False)


@pytest.mark.parametrize(
    ("embedder", "query", "options"),
    [
        (EMBEDDER, "", {"tags": ("blue",)}),
        (EMBEDDER, "  ", {"servers": ("s1",), "namespaces": ("ns",), "states": ("Active",)}),
        (EMBEDDER, "list the customer", {"mode": "lexical"}),
        (EMBEDDER, "list the customer", {"mode": "lexical", "top_k_servers": 1, "min_score": 0.1}),
        (EMBEDDER, "list the customer", {"tags": ("none of them",)}),
        (EMBEDDER, "list the customer", {"limit": 0}),
        (NullEmbedder(), "list the customer", {}),
        (BrokenEmbedder(), "list the customer", {}),
    ],
    ids=["tags", "filters", "lexical", "servers", "nothing", "no limit", "no embedder", "no vector"],
)
@pytest.mark.parametrize("size", [20, FEW + 1])
async def test_a_search_that_needs_no_vectors_asks_no_store(
    searchers: Callable[..., Searcher], embedder: Any, query: str, options: dict[str, Any], size: int
) -> None:
    store = UnaskedStore()
    view = view_of(tool(i, tags=("blue",), server=f"s{i % 3}") for i in range(size))

    answer = await searchers(store, embedder).search(view, Wanted(query, **{"min_score": 0.0, **options}))

    assert store.asked == []
    assert answer.degradation == ("embedder_unavailable" if isinstance(embedder, BrokenEmbedder) else "")


async def test_a_store_that_hangs_is_waited_for_no_longer_than_the_deadline(
    loose: LooseStore, searchers: Callable[..., Searcher]
) -> None:
    entries = [tool(i) for i in range(3)]
    await fill(loose, entries)
    hanging = asyncio.Event()
    loose.trouble = hanging.wait

    answer = await asyncio.wait_for(
        searchers(loose, EMBEDDER, store_seconds=0.05).search(
            view_of(entries), Wanted(own(1), min_score=0.0)
        ),
        20,
    )

    assert (answer.mode, answer.degradation, ids(answer)) == (
        "lexical",
        "store_unavailable",
        ["ns/tool-0001"],
    )


async def test_an_empty_index_is_said_to_be_empty(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    answer = await searchers(exact, EMBEDDER).search(
        view_of(tool(i) for i in range(3)), Wanted(own(1), min_score=0.0)
    )

    assert (answer.mode, answer.degradation, ids(answer)) == ("lexical", "index_empty", ["ns/tool-0001"])


@pytest.mark.parametrize(
    "query",
    [
        "x" * 10_000,
        "'; DROP TABLE entries; --",
        "\x00\x1b[31m\u202e",
        "\ud800",
        "🌦️天气",
        "who is it",
        "()[]{}",
    ],
    ids=["10k", "sql", "control", "surrogate", "unicode", "stop-words", "signs"],
)
async def test_any_text_is_a_harmless_query(
    exact: EmbeddedStore, searchers: Callable[..., Searcher], query: str
) -> None:
    entries = [tool(i) for i in range(20)]
    await fill(exact, entries)

    answer = await searchers(exact, QueryCache(EMBEDDER)).search(
        view_of(entries), Wanted(query, limit=3, min_score=0.0)
    )

    assert set(ids(answer)) <= {e.tool_id for e in entries}
    assert all(0.0 <= h.confidence <= 1.0 for h in answer.hits)


async def test_an_empty_view_and_no_limit_are_empty_answers(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    searcher = searchers(exact, EMBEDDER)

    assert (await searcher.search({}, Wanted("read", min_score=0.0))).hits == ()
    assert (await searcher.search(view_of([tool(1)]), Wanted(own(1), limit=0, min_score=0.0))).hits == ()
    assert (await searcher.search(view_of([tool(1)]), Wanted("", limit=0, min_score=0.0))).hits == ()


async def test_what_left_the_snapshot_is_forgotten(
    exact: EmbeddedStore, searchers: Callable[..., Searcher]
) -> None:
    searcher = searchers(exact, EMBEDDER)
    await searcher.prepare([tool(1), tool(2)])
    await searcher.prepare([tool(2)])

    answer = await searcher.search(view_of([tool(2)]), Wanted(f"{own(1)} {own(2)}", min_score=0.0))

    assert ids(answer) == ["ns/tool-0002"]
