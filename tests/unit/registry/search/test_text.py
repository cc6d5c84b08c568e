"""Words out of names and prose."""

from __future__ import annotations

import numpy as np
import pytest

from reference_ranking import rank
from toolcrib_registry.search.document import (
    EXAMPLES_EMBEDDED,
    FIELD_WEIGHTS,
    combined,
    dense_text,
    dense_texts,
    document,
)
from toolcrib_registry.search.entry import IndexEntry, fingerprint
from toolcrib_registry.search.text import QUERY_LIMIT, QUERY_TERMS, query_terms, split_identifier, terms


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("read_file", "read file"),
        ("getHTTPStatus", "get HTTP Status"),
        ("azmcp_listKeys-v2", "azmcp list Keys v 2"),
        ("math.factorial", "math factorial"),
        ("__x__", "x"),
        ("", ""),
    ],
)
def test_an_identifier_reads_as_words(name: str, words: str) -> None:
    assert split_identifier(name) == words


def test_parts_and_the_joined_form_are_terms() -> None:
    assert terms("readFile") == ["read", "file", "readfil"]
    assert terms("read_file")[:2] == ["read", "file"]
    assert set(terms("read_file")) == set(terms("readFile"))


def test_words_are_stemmed_so_that_forms_meet() -> None:
    assert terms("calculating calculations") == terms("calculate calculation")


def test_a_request_loses_repetitions_and_stop_words() -> None:
    assert query_terms("please read the file, read the FILE") == ["read", "file"]


def test_a_request_of_stop_words_alone_keeps_them() -> None:
    assert query_terms("who is it") == ["who", "is", "it"]


def test_scripts_without_spaces_are_searched_by_pairs() -> None:
    assert terms("天气预报") == ["天气", "气预", "预报"]
    assert terms("wifi天气") == ["wifi", "天气"]
    assert terms("天") == ["天"]


@pytest.mark.parametrize(
    "text", ["", " \n", "!?", "\x00\x1b", "\ud800", "🌦️", "_", "a" * 10_000, "a_" * 5_000]
)
def test_any_text_gives_terms_that_fit_an_index(text: str) -> None:
    found = terms(text)

    assert all(0 < len(t) <= 64 and " " not in t for t in found)


def test_compatibility_forms_are_the_same_word() -> None:
    assert terms("ﬁle ｆｉｌｅ") == terms("file file")


def test_a_request_is_read_up_to_its_limit_only() -> None:
    assert query_terms("x " * QUERY_LIMIT + "weather") == ["x"]


def test_a_request_of_very_many_words_is_bounded() -> None:
    assert len(query_terms(" ".join(f"w{i}" for i in range(900)))) == QUERY_TERMS


def test_a_title_that_repeats_the_name_counts_once() -> None:
    plain = IndexEntry(tool_id="a/b", digest="d", namespace="a", name="b")

    assert document(plain).frequencies == document(with_title(plain, "b")).frequencies
    assert document(plain).frequencies != document(with_title(plain, "Bee")).frequencies


IN_ONE_FIELD: dict[str, dict[str, object]] = {
    "name": {"name": "zanzibar"},
    "title": {"title": "Zanzibar"},
    "server": {"server": "zanzibar-tours"},
    "description": {"description": "Ferries to Zanzibar."},
    "tags": {"tags": ("islands", "Zanzibar")},
    "parameter_names": {"parameters": {"zanzibar_port": ""}},
    "parameter_texts": {"parameters": {"port": "of Zanzibar"}},
    "examples": {"examples": ("take me to Zanzibar",)},
}


@pytest.mark.parametrize("field", FIELD_WEIGHTS)
def test_a_word_that_stands_in_one_field_alone_finds_its_tool(field: str) -> None:
    plain = IndexEntry(tool_id="a/plain", digest="d", namespace="a", name="boat", description="A boat.")
    there = IndexEntry.from_json({**plain.to_json(), "tool_id": "a/there", **IN_ONE_FIELD[field]})

    found = rank("zanzibar", None, [(plain, None), (there, None)], limit=2)

    assert [r.entry.tool_id for r in found] == ["a/there"]
    assert found[0].lexical > 0


def with_title(entry: IndexEntry, title: str) -> IndexEntry:
    """`entry` under another title."""
    return IndexEntry.from_json({**entry.to_json(), "title": title})


def test_the_embedded_sentence_has_server_name_and_description_but_no_parameters() -> None:
    entry = IndexEntry(
        tool_id="a/b",
        digest="d",
        namespace="a",
        name="listKeys",
        server="key_vault",
        description="Lists\n all   keys.",
        parameters={"vault": "which one"},
    )

    assert dense_text(entry) == "key vault list Keys: Lists all keys."


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"server": "s"},
        {"title": "t"},
        {"description": "d"},
        {"tags": ("t",)},
        {"scopes": ("s:use",)},
        {"state": "Disabled"},
        {"parameters": {"p": ""}},
        {"examples": ("e",)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_fingerprint_changes_with_every_field_that_a_search_sees(change: dict[str, object]) -> None:
    plain = IndexEntry(tool_id="a/b", digest="", namespace="a", name="b")

    changed = IndexEntry.from_json({**plain.to_json(), **change})

    assert fingerprint(changed) != fingerprint(plain)
    assert fingerprint(IndexEntry.from_json({**plain.to_json(), "digest": "x"})) == fingerprint(plain)


def test_the_sentence_and_the_examples_are_embedded_each_once() -> None:
    entry = IndexEntry(
        tool_id="a/b", digest="d", namespace="a", name="b", description="Does it.",
        examples=("do it", " do  it", "", *(f"number {i}" for i in range(20))),
    )  # fmt: skip

    texts = dense_texts(entry)

    assert texts[:3] == [dense_text(entry), "do it", "number 0"]
    assert len(texts) == 1 + EXAMPLES_EMBEDDED


def test_a_tool_without_examples_keeps_the_vector_of_its_sentence() -> None:
    vector = np.asarray([0.6, 0.8], np.float32)

    assert combined(vector[None]).tobytes() == vector.tobytes()


def test_examples_draw_the_vector_of_a_tool_towards_their_mean_and_it_stays_a_unit_vector() -> None:
    sentence, *examples = np.eye(4, dtype=np.float32)[:3]

    mixed = combined(np.stack([sentence, *examples]))

    assert np.linalg.norm(mixed) == pytest.approx(1.0, abs=1e-6)
    assert mixed @ sentence > 0.9
    assert mixed @ examples[0] == pytest.approx(mixed @ examples[1])
    assert mixed @ examples[0] > 0.15
