"""The seed formula, against one that is written down a second time."""

from __future__ import annotations

import re

import numpy as np
import pytest

from index_entries import entry
from toolcrib_registry.search import seed_formula
from toolcrib_registry.search.entry import IndexEntry

ISSUES = entry(
    "ns/create_issue",
    server="github",
    description="Open a new Issue on a repository.",
    tags=("Issues", "vcs"),
)
CASES = [
    ("open an issue on github", 5 + 3 + 2 + 2 + 1.5),
    ("ISSUE", 3 + 2 + 1.5),
    ("issue issue", 2 * (3 + 2 + 1.5)),
    ("get it on to a", 0.0),
    ("hub", 5.0),
    ("vcs", 1.5),
    ("weather", 0.0),
    ("", 0.0),
]


@pytest.mark.parametrize(("request_", "boost"), CASES)
def test_each_word_adds_what_the_places_it_stands_in_are_worth(request_: str, boost: float) -> None:
    assert seed_formula.boost(ISSUES, seed_formula.words(request_)) == boost


def test_a_score_is_the_cosine_made_positive_and_a_twentieth_of_the_boost() -> None:
    assert seed_formula.score(1.0, 0.0) == 1.0
    assert seed_formula.score(-1.0, 0.0) == 0.0
    assert seed_formula.score(0.2, 13.5) == pytest.approx(0.6 + 0.675)


def test_the_order_is_that_of_the_formula_and_ties_go_by_id() -> None:
    draw = np.random.default_rng(5)
    pool = ("read", "write", "file", "issue", "city", "weather")
    view = {}
    for i in range(300):
        server, name, text, tag = (str(draw.choice(pool)) for _ in range(4))
        view[f"ns/{i:03}"] = entry(f"ns/{i:03}", name=name, server=server, description=text, tags=(tag,))
    cosines = {i: round(float(draw.uniform(-0.2, 0.9)), 1) for i in list(view)[:250]}

    found = seed_formula.best(view, cosines, "Read the file, issue?", 300)

    def again(entry: IndexEntry) -> float:
        total = 0.0
        for word in re.findall(r"\w+", "read file issue"):
            for worth, text in (
                (5, entry.server),
                (3, entry.name),
                (2, entry.description),
                (1.5, entry.tags[0]),
            ):
                total += worth * (word in (text or ""))
        return (cosines.get(entry.tool_id, 0.0) + 1) / 2 + 0.05 * total

    wanted = sorted(view.values(), key=lambda e: (-again(e), e.tool_id))
    assert [e.tool_id for e, _, _ in found] == [e.tool_id for e in wanted]
    assert [s for _, s, _ in found] == pytest.approx([again(e) for e in wanted])
    assert {e.tool_id for e, _, c in found if c is None} == set(list(view)[250:])
    assert [e.tool_id for e, _, _ in seed_formula.best(view, cosines, "Read the file, issue?", 7)] == [
        e.tool_id for e in wanted[:7]
    ]
