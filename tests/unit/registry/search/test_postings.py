"""The columns of postings answer as a plain dictionary does, whatever was added, asked and dropped in whatever order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suites import examples
from toolcrib_registry.search import postings
from toolcrib_registry.search.postings import Postings

TERMS = [f"term{i}" for i in range(12)]
ROW = st.dictionaries(st.sampled_from(TERMS), st.tuples(st.integers(1, 400), st.integers(0, 5)))
STEP = st.one_of(ROW, st.sampled_from(["ask", "compact"]))


@examples(150)
@given(steps=st.lists(STEP, max_size=40), least=st.sampled_from([0, 4, 4_096]))
def test_they_hold_what_was_added_less_what_was_dropped(steps: list[object], least: int) -> None:
    held, plain, following = Postings(), dict[str, list[tuple[int, float, float]]](), 0
    before = postings._LEAST
    postings._LEAST = least
    try:
        for step in steps:
            if isinstance(step, dict):
                terms = [(term, quarters / 4, words) for term, (quarters, words) in step.items()]
                held.add(following, terms)
                for term, frequency, words in terms:
                    plain.setdefault(term, []).append((following, frequency, 1 / words if words else 0.0))
                following += 1
            elif step == "compact":
                living = [row for row in range(following) if row % 3]
                renumbered = np.full(following, -1, np.int64)
                renumbered[living] = np.arange(len(living))
                held.compact(renumbered)
                plain = {
                    term: [(int(renumbered[row]), *rest) for row, *rest in found if renumbered[row] >= 0]
                    for term, found in plain.items()
                }
                following = len(living)
            else:
                _equal(held, plain)
        _equal(held, plain)
        assert len(held) == sum(map(len, plain.values()))
    finally:
        postings._LEAST = before


def _equal(held: Postings, plain: dict[str, list[tuple[int, float, float]]]) -> None:
    for term in (*TERMS, "never added"):
        found = held.of(term)
        rows = zip(found.rows.tolist(), found.frequencies.tolist(), found.shares.tolist(), strict=True)
        assert sorted(rows) == sorted(plain.get(term, [])), term


def test_a_term_of_a_row_takes_eighteen_bytes() -> None:
    held = Postings()
    for row in range(200):
        held.add(row, [(f"own {row} {i}", 1.0, 0) for i in range(250)])
    held.settle()

    columns = [*held._main, *held._recent]
    assert sum(column.nbytes for column in columns) == 18 * len(held) == 18 * 50_000
