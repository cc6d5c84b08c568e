"""The modes of a search, two stages, filters without words, and what is left out for want of evidence."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hash_embedder import HashEmbedder
from index_entries import entry, numbered
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search import searcher as searching
from toolcrib_registry.search.confidence import confidence, least_fit
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import IndexEntry, Stored, Vector
from toolcrib_registry.search.errors import EmbedderUnavailable, ModeUnavailable, StoreUnavailable
from toolcrib_registry.search.question import AskedMode, Wanted
from toolcrib_registry.search.searcher import Answer, Searcher
from vector_of import vector_of

pytestmark = pytest.mark.anyio

VERBS, THINGS = ("read", "write", "list", "delete", "send"), ("file", "issue", "city", "invoice", "mail")
SAYS_NOTHING = {"the", "then", "them", "and", "for", "about", "please"}
LONG = (
    "Please read the file about the city for me, then send the invoice to them by mail and then list issues"
)


class Counting(HashEmbedder):
    """Counts its turns, and what it embeds in them; fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[list[str]] = []
        self.away = False

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """Count, then fail or embed."""
        self.turns.append(list(texts))
        if self.away:
            raise EmbedderUnavailable("away")
        return await super().embed_request(texts)


def tool(number: int, **fields: Any) -> IndexEntry:
    """Tool `number` of 25 verbs and things, on one of three servers."""
    verb, thing = VERBS[number % 5], THINGS[number // 5 % 5]
    given: dict[str, Any] = {
        "name": f"{verb}_{thing}",
        "description": f"To {verb} any {thing} number {number}.",
        "server": ("github", "Mailer", None)[number % 3],
        "tags": ("Blue",) if number % 4 == 0 else (thing,),
    }
    return numbered(number, **{**given, **fields})


TOOLS = {e.tool_id: e for e in (tool(i, namespace="a" if i % 2 else "b") for i in range(300))}


class World:
    """A searcher, and what is around it."""

    def __init__(self, store: EmbeddedStore, embedder: Counting) -> None:
        self.store, self.embedder = store, embedder
        self.searcher = Searcher(store, embedder, store_seconds=20, embed_seconds=20)

    async def ask(self, query: str = "", *, view: dict[str, IndexEntry] = TOOLS, **wanted: Any) -> Answer:
        """Search the view."""
        return await self.searcher.search(view, Wanted(query, **{"min_score": 0.0, **wanted}))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """300 visible tools in an index of 400."""
    embedder = Counting()
    store = await EmbeddedStore.open(tmp_path / "index", identity_of(embedder))
    stored = [
        *TOOLS.values(),
        *(tool(i, namespace="hidden", description="read file") for i in range(300, 400)),
    ]
    await store.put(stored, await vectors(stored))
    made = World(store, embedder)
    await made.searcher.prepare(stored)
    yield made
    made.searcher.close()
    await store.aclose()


async def vectors(entries: Iterable[IndexEntry]) -> Vector:
    """Of each, made once."""
    texts = [dense_text(e) for e in entries]
    if missing := [t for t in texts if t not in KNOWN]:
        KNOWN.update(zip(missing, await HashEmbedder().embed_documents(missing), strict=True))
    return np.stack([KNOWN[t] for t in texts])


KNOWN: dict[str, Vector] = {}


def ids(answer: Answer) -> list[str]:
    """Best first."""
    return [h.tool_id for h in answer.hits]


async def cosines(query: str, view: dict[str, IndexEntry]) -> dict[str, float]:
    """By definition."""
    vector = await vector_of(HashEmbedder(), query)
    return {i: float(np.dot(row, vector)) for i, row in zip(view, await vectors(view.values()), strict=True)}


async def test_dense_ranks_by_meaning_alone(world: World) -> None:
    near = await cosines("read the invoice", TOOLS)

    answer = await world.ask("read the invoice", mode="dense", limit=20)

    assert answer.mode == "dense"
    assert [h.dense for h in answer.hits] == pytest.approx(sorted(near.values(), reverse=True)[:20], abs=1e-5)
    assert all(h.dense == pytest.approx(near[h.tool_id], abs=1e-5) for h in answer.hits)


async def test_lexical_ranks_by_words_alone_and_embeds_nothing(world: World) -> None:
    answer = await world.ask("invoice", mode="lexical", limit=100)

    assert (answer.mode, answer.degraded, world.embedder.turns) == ("lexical", False, [])
    assert set(ids(answer)) == {i for i, e in TOOLS.items() if "invoice" in e.name}
    assert all(h.dense is None and h.why and "meaning" not in h.why for h in answer.hits)


@pytest.mark.parametrize(
    ("query", "share"),
    [("read the issue on github", 1), ("read the issue on github", 10), (LONG, 1), ("blue", 1)],
)
async def test_compat_is_the_seed_formula_over_the_visible_tools(
    world: World, query: str, share: int
) -> None:
    view = {i: e for n, (i, e) in enumerate(TOOLS.items()) if n % share == 0}
    near = await cosines(query, view)
    asked = [w for w in re.findall(r"\w+", query.lower()) if len(w) > 2 and w not in SAYS_NOTHING]

    def formula(entry: IndexEntry) -> float:
        places = (
            (5, entry.server or ""),
            (3, entry.name),
            (2, entry.description),
            (1.5, " ".join(entry.tags)),
        )
        boost = sum(worth for word in asked for worth, text in places if word in text.lower())
        return (near[entry.tool_id] + 1) / 2 + 0.05 * boost

    answer = await world.ask(query, view=view, mode="compat", limit=12, min_score=None)

    best = sorted(map(formula, view.values()), reverse=True)[:12]
    assert (answer.mode, len(answer.hits)) == ("compat", 12)
    assert [h.score for h in answer.hits] == pytest.approx(best, abs=1e-5)
    assert all(h.confidence == confidence(h.lexical, h.dense) for h in answer.hits)
    assert all(h.score == pytest.approx(formula(h.entry), abs=1e-5) for h in answer.hits)


async def test_a_request_and_its_parts_are_embedded_in_one_turn(world: World) -> None:
    small = dict(list(TOOLS.items())[:50])

    await world.ask(LONG, view=small)
    await world.ask("read a file", view=small)

    whole, *parts = world.embedder.turns[0]
    assert (whole, len(world.embedder.turns)) == (LONG, 2)
    assert len(parts) >= 2
    assert world.embedder.turns[1] == ["read a file"]


async def test_tags_and_other_filters_without_words_embed_nothing_and_give_no_confidence(
    world: World,
) -> None:
    tagged = await world.ask(tags=("BLUE",), limit=1_000)
    both = await world.ask(
        "  ", tags=("blue",), servers=("MAILER",), namespaces=("A",), top_k_servers=1, limit=3
    )
    states = await world.ask(states=("Deprecated",), limit=9)

    assert world.embedder.turns == []
    assert {a.mode for a in (tagged, both, states)} == {"filter"}
    wanted = [e for e in TOOLS.values() if "Blue" in e.tags]
    assert ids(tagged) == [e.tool_id for e in sorted(wanted, key=lambda e: (e.name, e.tool_id))]
    assert {(h.confidence, h.dense, h.why) for h in tagged.hits} == {(None, None, "tags: BLUE")}
    assert all(h.entry.server == "Mailer" and h.entry.namespace == "a" for h in both.hits)
    assert both.hits == ()  # a number divisible by four is never odd
    assert states.hits == ()


async def test_namespaces_and_states_filter_a_search_before_its_limit(world: World) -> None:
    view = TOOLS | {
        "b/old": tool(7, namespace="b", state="Deprecated", description="read file", digest="old")
    }
    view["b/old"] = IndexEntry(**{**view["b/old"].to_json(), "tool_id": "b/old"})

    here = await world.ask("read a file", view=view, namespaces=("A",), limit=200)
    old = await world.ask("read a file", view=view, states=("Deprecated",))

    assert {h.entry.namespace for h in here.hits} == {"a"}
    assert len(here.hits) == 150
    assert ids(old) == ["b/old"]


async def test_two_stages_rank_servers_by_their_best_tool_then_the_tools_of_the_best(world: World) -> None:
    one = await world.ask("read the file on github", limit=400)
    first, second = list(dict.fromkeys((h.entry.namespace, h.entry.server) for h in one.hits))[:2]

    staged = await world.ask("read the file on github", top_k_servers=2, limit=400)
    alone = {i: e for i, e in TOOLS.items() if (e.namespace, e.server) in (first, second)}
    among_themselves = await world.ask("read the file on github", view=alone, limit=400)

    assert {(h.entry.namespace, h.entry.server) for h in staged.hits} == {first, second}
    assert ids(staged) == ids(among_themselves)
    assert len(staged.hits) == len(alone)


async def test_compat_keeps_the_surest_of_a_whole_view_wherever_the_formula_puts_them(world: World) -> None:
    # the formula counts words anywhere in a text, also within others
    many = [
        entry(
            f"ns/report-{i:03}",
            digest=f"r{i}",
            name=f"terraining_{i}",
            server="terraining-sweathers",
            description="Say something.",
        )
        for i in range(210)
    ]
    fits = entry("ns/rain", digest="rain", description="Weather: rain.")
    view = {e.tool_id: e for e in (*many, fits)}
    await world.store.put(list(view.values()), await vectors(view.values()))

    every = await world.ask("raining weathers", view=view, mode="compat", limit=300)
    surest = max(h.confidence or 0 for h in every.hits)
    some = await world.ask("raining weathers", view=view, mode="compat", limit=5, min_score=surest)
    three = await world.ask("raining weathers", view=view, mode="compat", limit=3, min_score=0.0001)
    of_two = await world.ask(
        "raining weathers", view=view, mode="compat", limit=5, min_score=surest, top_k_servers=2
    )

    assert every.hits[-1].tool_id == "ns/rain"
    assert every.hits[-1].confidence == surest
    assert ids(some) == ["ns/rain"]
    assert ids(three) == ids(every)[:3]
    assert ids(of_two) == ["ns/rain"], (
        "the first 200 are of one server: the second is looked for further down"
    )


async def test_servers_that_words_alone_chose_make_an_answer_by_words_that_says_so(tmp_path: Path) -> None:
    class Stumbling(EmbeddedStore):
        """Fails the first time."""

        asked = 0

        async def get(self, ids: Collection[str]) -> list[Stored]:
            self.asked += 1
            if self.asked == 1:
                raise StoreUnavailable("once")
            return await super().get(ids)

    now = iter(range(0, 1_000_000, 1_000))  # an outage is over as soon as it is noted
    store = await Stumbling.open(tmp_path / "index", identity_of(HashEmbedder()))
    assert isinstance(store, Stumbling)
    await store.put(list(TOOLS.values()), await vectors(TOOLS.values()))
    searcher = Searcher(
        store, HashEmbedder(), store_seconds=20, embed_seconds=20, clock=lambda: float(next(now))
    )
    small = dict(list(TOOLS.items())[:50])

    answers = [
        await searcher.search(small, Wanted("read the file", top_k_servers=1, min_score=0.0))
        for _ in range(2)
    ]

    assert [(a.mode, a.degradation) for a in answers] == [("lexical", "store_unavailable"), ("hybrid", "")]
    assert answers[0].hits
    assert {h.dense for h in answers[0].hits} == {None}
    searcher.close()
    await store.aclose()


async def test_where_nothing_fits_nothing_is_answered_unless_all_is_asked_for(world: World) -> None:
    every = await world.ask("qwertz uiop", limit=300)
    nothing = await world.ask("qwertz uiop", limit=300, min_score=None)
    seed = await world.ask("qwertz uiop", limit=300, min_score=None, mode="compat")
    some = await world.ask("read file", limit=300, min_score=None)
    sure = await world.ask("read file", limit=300, min_score=0.5)

    assert len(every.hits) == len(seed.hits) == len(some.hits) == 300
    assert max(h.confidence or 0 for h in every.hits) < least_fit(300)
    assert (nothing.mode, nothing.hits) == ("hybrid", ())
    assert min(h.confidence or 0 for h in some.hits) < least_fit(300)
    assert sure.hits
    assert set(ids(sure)) == {h.tool_id for h in some.hits if confidence(h.lexical, h.dense) >= 0.5}


async def test_a_weak_hit_in_front_takes_none_of_those_behind_it_away_that_are_sure_enough(
    world: World,
) -> None:
    # the hits of half of the words stand before those that are nearer by meaning
    every = await world.ask("read invoice", limit=300)
    own = [confidence(h.lexical, h.dense) for h in every.hits]
    behind = [i for i, sure in enumerate(own) if sure > min(own[:i], default=1.0)]
    assert behind, "a ranking whose evidence falls all along shows nothing"

    for least in sorted({own[i] for i in behind})[-20:]:
        some = await world.ask("read invoice", limit=50, min_score=least)
        shown = [h.confidence or 0 for h in some.hits]
        assert ids(some) == [h.tool_id for h, sure in zip(every.hits, own, strict=True) if sure >= least][:50]
        assert shown == sorted(shown, reverse=True)
        assert min(shown) >= least


async def test_what_is_chance_in_a_large_view_may_fit_in_a_small_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FITTED_FOR", world.embedder.name)
    every = await world.ask("qwertz uiop", limit=300, min_score=0)
    best = every.hits[0]
    monkeypatch.setattr(searching, "least_fit", lambda count: (best.confidence or 0) * count / 10)

    large = await world.ask("qwertz uiop", min_score=None)
    small = await world.ask(
        "qwertz uiop", view=dict([(best.tool_id, best.entry), *TOOLS.items()][:5]), min_score=None
    )
    filtered = await world.ask("qwertz uiop", min_score=None, tags=("nothing carries this",))

    assert ids(large) == ids(filtered) == []
    assert ids(small)[0] == best.tool_id


async def test_a_share_of_the_words_is_enough_only_where_confidence_belongs_to_another_embedder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "least_fit", lambda count: 1.0)
    other = await world.ask("read file", min_score=None)
    monkeypatch.setattr(searching, "FITTED_FOR", world.embedder.name)
    fitted = await world.ask("read file", min_score=None)
    words = await world.ask("read file", min_score=None, mode="lexical")

    assert (len(other.hits), len(fitted.hits), len(words.hits)) == (10, 0, 10)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "compat"])
async def test_an_embedder_that_is_away_leaves_words_in_every_mode_and_says_so(
    world: World, mode: AskedMode
) -> None:
    world.embedder.away = True

    answer = await world.ask("invoice", mode=mode)

    assert (answer.mode, answer.degradation) == ("lexical", "embedder_unavailable")
    assert answer.hits


@pytest.mark.parametrize("mode", ["dense", "compat"])
async def test_a_mode_that_needs_vectors_is_refused_where_there_never_are_any(
    tmp_path: Path, mode: AskedMode
) -> None:
    embedder = NullEmbedder()
    store = await EmbeddedStore.open(tmp_path, identity_of(embedder))
    searcher = Searcher(store, embedder)

    with pytest.raises(ModeUnavailable, match=mode):
        await searcher.search(TOOLS, Wanted("invoice", mode=mode, min_score=0.0))
    answers = [
        await searcher.search(TOOLS, Wanted("invoice", mode=m, min_score=0.0)) for m in ("hybrid", "lexical")
    ]

    assert [(a.mode, a.degraded) for a in answers] == [("lexical", False)] * 2
    assert ids(answers[0]) == ids(answers[1])
    searcher.close()
    await store.aclose()


async def test_no_hit_is_surer_than_one_before_it_but_where_another_formula_ranks(world: World) -> None:
    for mode in ("hybrid", "lexical", "dense"):
        told = [h.confidence or 0 for h in (await world.ask("read the file", mode=mode, limit=300)).hits]
        assert told == sorted(told, reverse=True)


async def test_reasons_say_nothing_of_what_is_outside_the_view(world: World) -> None:
    few = dict(list(TOOLS.items())[:5])

    alone = await world.ask("read the file", view=few)
    among = await world.ask("read the file", limit=300)

    by_id = {h.tool_id: h.why for h in among.hits}
    assert all(h.why == by_id[h.tool_id] for h in alone.hits)
    assert all(h.why for h in alone.hits)
