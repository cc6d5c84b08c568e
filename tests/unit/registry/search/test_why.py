"""Why a hit is a hit: the request's own words, where they stand, and how near the meaning is."""

from __future__ import annotations

import pytest

from index_entries import entry
from toolcrib_registry.search import why

READER = entry(
    "ns/reader",
    name="readFile",
    server="shared_folder",
    description="Reads a text of the folder.",
    tags=("documents",),
    parameters={"path": "which document, by its path"},
    examples=("show me the minutes",),
)


def reason(text: str, cosine: float | None = None) -> str:
    return why.by_evidence(why.asked_for(text), READER, cosine)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reading files", "name: reading, files"),
        ("Read a TEXT", "name: Read; description: TEXT"),
        ("documents in a folder", "server: folder; tags: documents"),
        ("its path", "parameters: path"),
        ("minutes", "examples: minutes"),
        ("weather in Oslo", "no word in common"),
        ("", "no word in common"),
    ],
)
def test_each_word_is_shown_as_it_was_asked_for_and_once(text: str, said: str) -> None:
    assert reason(text) == said


def test_nearness_is_told_where_there_is_some() -> None:
    assert reason("read", 0.7149) == "name: read; meaning: 0.71"
    assert reason("weather", -0.05) == "no word in common; meaning: -0.05"


def test_a_reason_is_short_and_holds_no_sign_that_was_sent() -> None:
    long = "file" + "x" * 500
    tool = entry("ns/a", description=f"{long} " * 300)
    text = f'{long} <b>"evil"\x1b[31m\u202e\n {{}}'

    said = why.by_evidence(why.asked_for(text), tool, 0.5)

    assert len(said) < 400
    assert not set(said) & set('<>"\x1b\u202e\n{}')


@pytest.mark.parametrize("field", ["description", "name"])
def test_a_word_far_into_a_long_text_is_found_all_the_same(field: str) -> None:
    tool = entry("ns/a", **{field: "some other text " * 1_200 + "Zanzibar"})

    assert why.by_evidence(why.asked_for("to zanzibar"), tool, None) == f"{field}: zanzibar"


def test_many_words_are_cut_to_a_few() -> None:
    tool = entry("ns/a", description=" ".join("bcdfghjklm"))

    assert why.by_evidence(why.asked_for(" ".join("bcdfghjklm")), tool, None).count(",") == 5


def test_a_hit_by_filters_names_those_it_passed() -> None:
    assert (
        why.by_filters(READER, ("Documents",), ("shared_folder",)) == "tags: Documents; server: shared_folder"
    )
    assert why.by_filters(READER, (), ()) is None
