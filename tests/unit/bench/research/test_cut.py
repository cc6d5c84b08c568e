"""The least confidence of a best hit is fitted to what it costs and what it is worth, by how many tools are in view."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bench_search
from toolcrib_registry.search import calibration, confidence


@pytest.fixture(scope="module")
def cut() -> Iterator[Any]:
    with bench_search.loaded("cut") as found:
        yield found[0]


def answers(cut: Any, best: list[float], size: int) -> Any:
    return cut.Answers(np.array(best), np.full(len(best), float(size)), np.full(len(best), 1.0 / len(best)))


def test_the_cut_lies_between_chance_and_what_is_right_in_views_of_each_size(cut: Any) -> None:
    chance = {3: [0.002, 0.003], 10: [0.004, 0.005], 100: [0.015, 0.016], 1_000: [0.017, 0.018]}
    right = {3: [0.006, 0.5], 10: [0.009, 0.5], 100: [0.03, 0.5], 1_000: [0.035, 0.9]}
    views = {s: {"right": answers(cut, right[s], s), "nonsense": answers(cut, chance[s], s)} for s in chance}

    numbers = cut.fit(views)

    assert numbers[2] == cut.LARGEST == 100
    assert [kinds["right"].below(numbers) for kinds in views.values()] == [0, 0, 0, 0]
    assert [kinds["nonsense"].below(numbers) for kinds in views.values()] == [1, 1, 1, 1]


def test_no_right_hit_is_given_up_to_be_rid_of_chance(cut: Any) -> None:
    views = {10: {"right": answers(cut, [0.003], 10), "nonsense": answers(cut, [0.9], 10)}}

    assert views[10]["right"].below(cut.fit(views)) == 0


def test_search_cuts_where_the_fit_does(cut: Any) -> None:
    sizes = [1, 7, 100, 3_000, 100_000]

    assert [confidence.least_fit(s) for s in sizes] == pytest.approx(
        cut.least(np.array(sizes, float), calibration.LEAST_FIT).tolist()
    )


def test_a_model_or_data_that_calibrate_cannot_use_is_said_in_a_line(tmp_path: Path) -> None:
    script = bench_search.BENCH / "research" / "calibrate.py"
    bench_search.write_set(tmp_path, "mine", [{"id": "a", "name": "a"}], [{"query": "a", "relevant": ["a"]}])
    ended = [
        subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        for arguments in ((str(tmp_path), "--model", str(tmp_path / "none")), (str(tmp_path),))
    ]

    assert [(e.returncode, e.stdout, len(e.stderr.splitlines())) for e in ended] == [(2, "", 1)] * 2
    assert "no set has 20 requests" in ended[1].stderr
