"""The benchmark's own tools: a wrong ruler would go unnoticed."""

import base64
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield import_module("measure")
    sys.modules.pop("measure", None)


def job(measure: ModuleType, port: int, request: bytes, connections: int = 2) -> dict[str, object]:
    return {
        "host": "127.0.0.1", "port": port, "request": base64.b64encode(request).decode(),
        "connections": connections, "seconds": 0.2,
    }  # fmt: skip


def test_the_generator_counts_whole_answers_and_its_own_use_of_the_processor(
    measure: ModuleType, tmp_path: Path
) -> None:
    with measure.Talker("load.py", log=tmp_path / "log") as load:
        request = measure.http("POST", "/call", "token", {"expression": "6*7"})
        answer = load.ask(job(measure, load.hello["upstream"], request))

    assert answer["requests"] > 100
    assert 0 < answer["p50"] <= answer["p99"] < 1
    assert 0 < answer["busy"] <= 1.05


def test_an_answer_that_is_no_success_ends_the_measurement_and_shows_what_came(
    measure: ModuleType, tmp_path: Path
) -> None:
    with measure.Talker("load.py", log=tmp_path / "log") as load:
        with pytest.raises(RuntimeError, match="404 Not Found"):
            load.ask(job(measure, load.hello["upstream"], measure.http("GET", "/nowhere", None)))


def test_ratios_are_taken_round_by_round_so_that_a_slow_minute_hits_both(measure: ModuleType) -> None:
    assert measure.ratios([20.0, 2.0, 40.0], [10.0, 1.0, 10.0]) == (2.0, 2.0, 4.0)


def test_a_percentile_is_one_of_the_values(measure: ModuleType) -> None:
    values = [float(v) for v in range(1, 201)]

    assert measure.percentile(values, 0.5) == 101.0
    assert measure.percentile(values, 0.99) == 199.0
    assert measure.percentile([3.0], 0.99) == 3.0


@pytest.mark.parametrize(
    ("missed", "status", "said"), [([], 0, "met"), (["x by 0.31 µs"], 1, "missed: x by 0.31 µs")]
)
def test_a_part_that_is_asked_for_and_misses_its_goal_ends_the_run_with_1(
    measure: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    missed: list[str],
    status: int,
    said: str,
) -> None:
    class Part(ModuleType):
        @staticmethod
        def run(quick: bool) -> dict[str, object]:
            measure.verdict("at most 2 µs", missed)
            return {"missed": missed}

    bench = import_module("run")
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setitem(sys.modules, "hidden", Part("hidden"))
    monkeypatch.setattr(sys, "argv", ["run.py", "hidden"])

    assert bench.main() == status
    assert f"goal, at most 2 µs: {said}\n" in capsys.readouterr().out
    assert (tmp_path / "out" / "hidden.json").exists()
    sys.modules.pop("run")
