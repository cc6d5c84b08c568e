"""The figures of the search benchmark against values worked out by hand and against an independent formula."""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bench_search


@pytest.fixture(scope="module")
def metrics() -> Iterator[Any]:
    with bench_search.loaded("metrics") as (module,):
        yield module


def sought(metrics: Any, *ids: str, equivalent: dict[str, int] | None = None, anywhere: str = "") -> Any:
    places = {tool_id: place for place, tool_id in enumerate(ids)} | (equivalent or {})
    return metrics.Sought(len(ids), places, frozenset(anywhere.split()))


def test_the_figures_of_an_answer_are_those_worked_out_by_hand(metrics: Any) -> None:
    figures = metrics.judge(["x", "a", "y", "z", "u", "v", "b"], sought(metrics, "a", "b"))

    assert figures == pytest.approx(
        {
            "hit@1": 0.0,
            "recall@1": 0.0,
            "recall@5": 0.5,
            "recall@10": 1.0,
            "ndcg@5": 0.63093 / 1.63093,  # 1/log2 3 of 1 + 1/log2 3
            "ndcg@10": (0.63093 + 0.33333) / 1.63093,  # and 1/log2 8
            "mrr": 0.5,
            "zero_hit": 0.0,
        },
        abs=1e-5,
    )


def test_a_perfect_answer_has_the_best_of_every_figure(metrics: Any) -> None:
    figures = metrics.judge(["a", "b", "c"], sought(metrics, "b", "a"))

    assert figures.pop("zero_hit") == 0.0
    assert figures.pop("recall@1") == 0.5
    assert set(figures.values()) == {1.0}


def test_an_answer_without_a_right_tool_among_ten_is_a_zero_hit(metrics: Any) -> None:
    late = [*(f"wrong-{i}" for i in range(10)), "a"]

    for found in ([], late):
        figures = metrics.judge(found, sought(metrics, "a"))
        assert figures.pop("zero_hit") == 1.0
        assert set(figures.values()) == {0.0}


def test_a_request_with_more_right_tools_than_places_cannot_be_recalled_whole_but_can_be_ranked_perfectly(
    metrics: Any,
) -> None:
    right = [f"t{i}" for i in range(8)]

    figures = metrics.judge(right, sought(metrics, *right))

    assert (figures["recall@1"], figures["recall@5"], figures["recall@10"]) == (1 / 8, 5 / 8, 1.0)
    assert figures["ndcg@5"] == figures["ndcg@10"] == pytest.approx(1.0)


def test_a_tool_and_its_equivalent_count_once_and_whichever_comes_first(metrics: Any) -> None:
    wanted = sought(metrics, "a", "b", equivalent={"a2": 0})

    both = metrics.judge(["a2", "a", "x"], wanted)
    assert (both["hit@1"], both["recall@5"]) == (1.0, 0.5)
    assert both["ndcg@5"] == pytest.approx(1 / 1.63093, abs=1e-5)
    assert metrics.judge(["b", "a2"], wanted)["recall@5"] == 1.0


def test_an_equivalent_of_no_named_tool_stands_for_one_that_is_not_found(metrics: Any) -> None:
    wanted = sought(metrics, "a", "b", anywhere="e f")

    assert metrics.judge(["e"], wanted)["recall@5"] == 0.5
    assert metrics.judge(["e", "a"], wanted)["recall@5"] == 1.0
    assert metrics.judge(["e", "a", "b", "f"], wanted)["recall@5"] == 1.0


def test_an_id_that_is_answered_twice_takes_one_place(metrics: Any) -> None:
    figures = metrics.judge(["a", "a", "a", "a", "a", "b"], sought(metrics, "a", "b"))

    assert figures["recall@5"] == 1.0
    assert figures["ndcg@5"] == pytest.approx(1.0)


def test_ndcg_equals_the_share_of_the_best_of_all_orders_with_gains_of_two_to_the_relevance_less_one(
    metrics: Any,
) -> None:
    chance = random.Random(5)
    for _ in range(60):
        relevance = [chance.randint(0, 1) for _ in range(6)]
        if not any(relevance):
            continue
        discounts = 1 / np.log2(np.arange(2, 7))
        gained = (2.0 ** np.array(relevance[:5]) - 1) @ discounts
        best = max(
            (2.0 ** np.array(order[:5]) - 1) @ discounts for order in itertools.permutations(relevance)
        )
        ids = [f"t{i}" for i in range(6)]
        wanted = sought(metrics, *(i for i, r in zip(ids, relevance, strict=True) if r))

        assert metrics.judge(ids, wanted)["ndcg@5"] == pytest.approx(gained / best)


def test_means_are_taken_figure_by_figure_and_never_of_nothing(metrics: Any) -> None:
    assert metrics.mean([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.5}]) == {"a": 0.5, "b": 0.25}
    with pytest.raises(ValueError, match="no figures"):
        metrics.mean([])
    assert math.isclose(metrics.mean([{"a": 0.1}] * 10)["a"], 0.1)
