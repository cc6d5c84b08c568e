"""The exact ranking: the same answer whatever else the index holds."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import index_entries
from reference_ranking import rank
from suites import examples
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import Clause, IndexEntry, Vector
from toolcrib_registry.search.lexical import LexicalIndex
from toolcrib_registry.search.prepared_views import PreparedViews
from toolcrib_registry.search.ranking import RankingIndex

WORDS = ["file", "read", "write", "weather", "city", "database", "query", "the", "getUserName", "vault"]
DIMENSION = 24


def tool(number: int, description: str, name: str | None = None) -> IndexEntry:
    """Tool `number` with its words."""
    return index_entries.entry(
        f"ns/t{number:03d}", digest=f"d{number}", name=name or f"t{number}", description=description
    )


def direction(seed: int) -> Vector:
    """A unit vector that depends on `seed` alone."""
    numbers = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return np.asarray(numbers / np.linalg.norm(numbers), np.float32)


phrases = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


@st.composite
def catalogs(draw: st.DrawFn) -> tuple[list[tuple[IndexEntry, Vector | None]], set[str]]:
    """Tools with vectors (some without), and which of them are visible."""
    texts = draw(st.lists(phrases, min_size=1, max_size=40))
    tools: list[tuple[IndexEntry, Vector | None]] = []
    for i, text in enumerate(texts):
        seed = draw(st.integers(0, 12))
        tools.append((tool(i, text), direction(seed) if seed else None))
    visible = draw(st.sets(st.sampled_from([t.tool_id for t, _ in tools])))
    return tools, visible


@examples(150)
@given(
    catalog=catalogs(),
    text=phrases,
    seed=st.none() | st.integers(1, 50),
    limit=st.integers(1, 50),
    asked=st.lists(phrases, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_an_answer_is_byte_identical_to_the_ranking_of_the_visible_tools_alone(
    catalog: tuple[list[tuple[IndexEntry, Vector | None]], set[str]],
    text: str,
    seed: int | None,
    limit: int,
    asked: list[str],
    order: object,
) -> None:
    tools, visible = catalog
    vector = None if seed is None else direction(seed)
    parts = [Clause(t, None if seed is None else direction(seed + n)) for n, t in enumerate(asked, 1)]
    shuffled = list(tools)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    everything = RankingIndex(DIMENSION)
    for entry, own in shuffled:
        everything.put(document(tool(0, "an older version of it", name="old")), direction(7))
        everything.put(document(entry), own)
    everything.discard("ns/unknown")
    for entry, own in tools[:1]:
        everything.put(document(entry), own)

    answer = everything.rank(text, vector, visible, limit=limit, parts=parts)

    alone = [(e, v) for e, v in tools if e.tool_id in visible]
    assert answer == rank(text, vector, alone, limit=limit, parts=parts)


@examples(60)
@given(
    catalog=catalogs(),
    steps=st.lists(
        st.tuples(phrases, st.integers(0, 39), st.sampled_from(["ask", "put", "discard", "learn"])),
        max_size=12,
    ),
)
def test_what_is_remembered_of_a_view_never_shows_in_an_answer(
    catalog: tuple[list[tuple[IndexEntry, Vector | None]], set[str]], steps: list[tuple[str, int, str]]
) -> None:
    """One frozen set of ids, asked again and again while the index changes under it."""
    tools, visible = catalog
    held = {e.tool_id: (e, v) for e, v in tools}
    index = RankingIndex(DIMENSION)
    for entry, own in tools:
        index.put(document(entry), own)
    ids = frozenset(visible | {"ns/t000", "ns/t001"})
    for text, number, what in [("read the file", 0, "ask"), *steps]:
        changed = tool(number, text)
        if what == "put":
            held[changed.tool_id] = (changed, direction(number))
            index.put(document(changed), direction(number))
        elif what == "discard":
            held.pop(changed.tool_id, None)
            index.discard(changed.tool_id)
        elif what == "learn" and changed.tool_id in held:
            entry = held[changed.tool_id][0]
            held[changed.tool_id] = (entry, direction(number + 50))
            index.learn(entry.tool_id, entry.digest, direction(number + 50))
        for words in (text, "read the weather", "getUserName vault"):
            alone = [held[i] for i in sorted(ids) if i in held]
            assert index.rank(words, direction(3), ids, limit=20) == rank(
                words, direction(3), alone, limit=20
            )


def test_views_are_forgotten_when_nobody_holds_them_and_within_a_bound() -> None:
    index = RankingIndex(0)
    for i in range(100):
        index.put(document(tool(i, WORDS[i % 5])))
    held = [frozenset({f"ns/t{i:03d}", "ns/t099"}) for i in range(20)]
    scopes = PreparedViews(bytes_=2_000)
    for ids in held:
        index.rank("file", None, ids, limit=3)
        scopes.put(ids, LexicalIndex().scope(np.zeros(0, np.int64)))
    kept = [ids for ids in held if scopes.get(ids) is not None]
    assert len(kept) == 20
    lexical = LexicalIndex()
    for i in range(60):
        lexical.add(document(tool(i, "file")))
    scopes.put(held[3], lexical.scope(np.arange(60)))
    scopes.put(held[4], lexical.scope(np.arange(60)))
    assert scopes.get(held[4]) is not None
    assert scopes.get(held[3]) is None
    assert scopes.get(set(held[4])) is None
    del kept, held, ids
    scopes.put(frozenset({"ns/t001"}), lexical.scope(np.arange(1)))
    assert len(scopes) <= 1


def test_large_and_small_shares_are_multiplied_alike() -> None:
    """The two ways to a cosine, gathering rows first or multiplying all, give the same bits."""
    index = RankingIndex(DIMENSION)
    for i in range(2_000):
        index.put(document(tool(i, WORDS[i % len(WORDS)])), direction(i))
    ids = [f"ns/t{i:03d}" for i in range(2_000)]
    query = direction(99)

    few = {r.entry.tool_id: r.dense for r in index.rank("file", query, ids[500:600], limit=100)}
    all_of_them = {r.entry.tool_id: r.dense for r in index.rank("file", query, ids, limit=2_000)}

    assert few == {i: all_of_them[i] for i in ids[500:600]}


def test_ties_are_ordered_by_id_even_where_the_limit_cuts_through_them() -> None:
    tools = [(tool(i, "same words"), None) for i in range(20)]

    assert [r.entry.tool_id for r in rank("same", None, tools, limit=3)] == ["ns/t000", "ns/t001", "ns/t002"]


def test_the_name_counts_more_than_the_description() -> None:
    named = tool(1, "something", name="weather")
    described = tool(2, "weather something")
    others = [(tool(i, "filler words here"), None) for i in range(3, 9)]

    found = rank("weather", None, [(described, None), (named, None), *others], limit=2)

    assert [r.entry.tool_id for r in found] == [named.tool_id, described.tool_id]


def test_a_tool_whose_name_is_said_in_full_comes_before_one_that_says_the_same_words() -> None:
    """The descriptions are alike, and so is BM25; one name has a word that nobody asked for."""
    exact = tool(2, "Everything about issues and labels.", name="list_issues")
    longer = tool(1, "Everything about issues and labels.", name="list_issues_comments")
    others = [(tool(i, "filler words here"), None) for i in range(3, 9)]

    found = rank("list the issues", None, [(longer, None), (exact, None), *others], limit=2)

    assert [r.entry.tool_id for r in found] == [exact.tool_id, longer.tool_id]
    assert found[0].score > 1.1 * found[1].score


def test_without_a_vector_only_tools_with_a_word_of_the_query_are_found() -> None:
    assert [
        r.entry.tool_id
        for r in rank("city", None, [(tool(1, "file"), None), (tool(2, "city"), None)], limit=5)
    ] == ["ns/t002"]
    assert rank("nothing", None, [(tool(1, "file"), None)], limit=5) == []


def test_evidence_is_told_in_units_that_compare_across_queries() -> None:
    tools = [(tool(1, "read file"), direction(1)), (tool(2, "city weather"), direction(2))]

    (best, other) = rank("read file", direction(1), tools, limit=2)

    assert best.entry.tool_id == "ns/t001"
    assert best.dense == pytest.approx(1.0, abs=1e-5)
    assert 0.25 < best.lexical <= 1.0
    assert other.lexical == 0.0


def fifty() -> list[tuple[IndexEntry, Vector]]:
    """Tools of few words that all share some."""
    return [(tool(i, " ".join(WORDS[i % 5 : i % 5 + 3])), direction(i + 1)) for i in range(50)]


@pytest.mark.parametrize("held", [0, 20, 50])
def test_vectors_that_are_told_count_as_those_that_are_held(held: int) -> None:
    tools = fifty()
    index = RankingIndex(DIMENSION)
    for i, (entry, vector) in enumerate(tools):
        index.put(document(entry), vector if i < held else None)
    told = {e.tool_id: v for e, v in tools[held:]}
    parts = [Clause("read a file", direction(78)), Clause("the weather", direction(79))]

    for own in ((), parts):
        found = index.rank(
            "read the weather", direction(77), [e.tool_id for e, _ in tools], limit=50, told=told, parts=own
        )
        assert found == rank("read the weather", direction(77), tools, limit=50, parts=own)


def test_where_only_the_nearest_are_told_the_others_count_as_no_nearer_and_only_for_their_words() -> None:
    tools = fifty()
    index = RankingIndex(DIMENSION)
    for entry, _ in tools:
        index.put(document(entry), None)
    exact = rank("weather", direction(77), tools, limit=50, dense_weight=1.0)
    vectors = {e.tool_id: v for e, v in tools}
    told = {r.entry.tool_id: vectors[r.entry.tool_id] for r in exact[:10]}

    found = index.rank(
        "weather", direction(77), vectors, limit=50, told=told, reach=exact[9].dense, dense_weight=1.0
    )
    fused = index.rank("weather", direction(77), vectors, limit=50, told=told, reach=exact[9].dense)

    assert [r.entry for r in found[:10]] == [r.entry for r in exact[:10]]
    carry = {e.tool_id for e, _ in tools if "weather" in e.description}
    assert {r.entry.tool_id for r in fused} == carry | told.keys()
    assert all((r.dense is None) == (r.entry.tool_id not in told) for r in fused)


def test_vectors_are_held_up_to_a_bound_and_room_that_is_free_again_is_used_again() -> None:
    index = RankingIndex(DIMENSION, resident_bytes=3 * 4 * DIMENSION)
    tools = fifty()[:5]
    ids = [e.tool_id for e, _ in tools]
    for entry, vector in tools:
        index.put(document(entry), vector)
    assert (index.room, index.complete) == (3, False)
    assert index.without_vector(ids) == ids[3:]

    index.discard(ids[0])
    index.learn(ids[4], tools[4][0].digest, tools[4][1])

    assert index.without_vector(ids) == [ids[3]]
    (best,) = index.rank("", tools[4][1], [ids[4]], limit=1)
    assert best.dense == pytest.approx(1.0, abs=1e-5)


def test_each_thing_that_a_request_asks_for_brings_its_tool_to_the_top() -> None:
    flight = tool(1, "Finds planes between two cities.", name="search_flights")
    hotel = tool(2, "Reserves a room.", name="book_hotel")
    between = tool(3, "Travel advice: planes, cities and rooms.", name="travel_guide")
    others = [(tool(i, "filler words here"), direction(20 + i)) for i in range(4, 12)]
    a, b, c = direction(1), direction(2), direction(3)
    tools = [(flight, a), (hotel, b), (between, c), *others]
    text, whole = "planes between cities, then a room", (0.45 * a + 0.45 * b + 0.8 * c).astype(np.float32)
    parts = [Clause("planes between cities", a), Clause("a room", b)]

    assert rank(text, whole, tools, limit=1)[0].entry == between, "as a whole it is about travel"
    found = rank(text, whole, tools, limit=2, parts=parts)

    assert {r.entry.tool_id for r in found} == {flight.tool_id, hotel.tool_id}


def test_a_tool_that_suits_only_one_part_by_its_words_is_found_without_a_vector() -> None:
    found = rank("city", None, [(tool(1, "file"), None)], limit=5, parts=[Clause("city"), Clause("file")])

    assert [r.entry.tool_id for r in found] == ["ns/t001"]


def test_an_index_that_is_rewritten_again_and_again_stays_small_and_right() -> None:
    index = RankingIndex(DIMENSION)
    for version in range(40):
        for i in range(60):
            index.put(
                document(tool(i, f"{string.ascii_letters[version]} file {WORDS[i % 10]}")), direction(i)
            )

    expected = [
        (tool(i, f"{string.ascii_letters[39]} file {WORDS[i % 10]}"), direction(i)) for i in range(60)
    ]
    ids = [e.tool_id for e, _ in expected]
    assert index.rank("weather N", direction(5), ids, limit=9) == rank(
        "weather N", direction(5), expected, limit=9
    )
    assert len(index) == 60


def test_a_vector_is_learnt_only_for_the_version_it_belongs_to() -> None:
    index = RankingIndex(DIMENSION)
    index.put(document(tool(1, "file")), None)

    index.learn("ns/t001", "another digest", direction(1))
    assert index.without_vector(["ns/t001"]) == ["ns/t001"]
    index.learn("ns/t001", "d1", direction(1))

    assert index.without_vector(["ns/t001"]) == []
    index.put(document(tool(1, "new words")), None)
    assert index.without_vector(["ns/t001"]) == ["ns/t001"]
