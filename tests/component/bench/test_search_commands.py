"""The search benchmark's commands on data as others would bring it, in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_search import BENCH, loaded, write_set
from realparts.required import require_real

FIGURES = {"hit@1", "recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr", "zero_hit"}
METHODS = {"keyword", "bm25", "dense", "seed", "lexical", "hybrid", "hybrid_uncut"}


def run(tmp_path: Path, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One command, with vectors kept in the test's folder."""
    return subprocess.run(
        [sys.executable, BENCH / "search" / "run.py", command, *arguments, "--cache", tmp_path / "cache"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two sets and a catalog, with what public data has in it."""
    folder = tmp_path / "data"
    write_set(
        folder,
        "plain",
        [
            {"id": "get_weather", "name": "get_weather", "description": "Weather forecast for a city"},
            {"id": "send_mail", "name": "sendMail", "description": "Send an e-mail to somebody", "tags": ["mail"]},
            {"id": "translate", "name": "translate", "description": ""},
        ],
        [{"query": "what will the weather be in Oslo", "relevant": ["get_weather"]},
         {"query": "send a mail to Ann and then translate the answer to German for me, please", "relevant": ["send_mail", "translate"]}],
    )  # fmt: skip
    write_set(
        folder,
        "awkward",
        [
            {"id": "天気", "name": "天気予報", "description": "都市の天気を調べる", "server": "気象庁 / JMA"},
            {"id": "a b/c::d", "name": "x" * 300, "description": "long words " * 5000, "parameters": {"p": None}},
            {"id": "twice", "name": "twice", "description": "one"},
            {"id": "twice", "name": "twice", "description": "another one"},
        ],
        [{"query": "明日の天気", "relevant": ["天気"]},
         {"query": "'; DROP TABLE tools; -- {__schema{types{name}}} (a+)+$", "relevant": ["gone"]},
         {"query": "twice", "relevant": ["twice"], "equivalent": ["nothing"]},
         {"query": "", "relevant": ["twice"]}],
    )  # fmt: skip
    write_set(
        folder, "catalog", [{"id": "weather_elsewhere", "name": "weather", "description": "Weather maps"}]
    )
    return folder


def checked(figures: dict[str, Any], methods: set[str]) -> None:
    assert set(figures) == {"awkward", "plain"}
    for by_method in figures.values():
        assert set(by_method) == methods
        for values in by_method.values():
            assert set(values) == FIGURES
            assert all(0.0 <= v <= 1.0 for v in values.values())


@pytest.mark.slow
def test_any_folder_in_the_data_format_is_measured_by_one_command(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"

    done = run(tmp_path, "compare", data, "--out", out, "--stores", "embedded", "--sample", "2")

    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    checked(figures, METHODS)
    assert figures["plain"]["hybrid"]["hit@1"] == 1.0
    assert figures["awkward"]["hybrid"]["zero_hit"] == pytest.approx(0.25)
    said = done.stdout
    for word in (
        "pooled: 8 tools, 6 requests",
        "mean of 2 sets",
        "ms p50",
        "build s",
        "MB",
        "encoding, one thread",
    ):
        assert word in said
    assert "1 query names relevant ids that tools.jsonl does not have" in said


def test_mistakes_in_the_data_end_the_command_before_anything_is_measured(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (data / "plain" / "queries.jsonl").open("a") as file:
        file.write('{"query": "q"}\n')
    out = tmp_path / "figures.json"

    with loaded("compare") as (compare,):
        status = compare.main([str(data), "--out", str(out)])

    assert status == 2
    assert capsys.readouterr().err.splitlines() == [
        "The data cannot be used:",
        f"{data}/plain/queries.jsonl:3: `relevant` must be a list of tool ids, not null",
    ]
    assert not out.exists()


@pytest.mark.slow
def test_the_gate_fails_with_a_table_where_a_figure_fell(data: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.json"
    written = run(tmp_path, "gate", "--data", data, "--expected", expected, "--update")
    assert written.returncode == 0, written.stderr
    figures = json.loads(expected.read_text())
    # a mean that search had when it was better than it is now
    figures["mean"]["lexical"]["hit@1"] += 0.011
    expected.write_text(json.dumps(figures))

    done = run(tmp_path, "gate", "--data", data, "--expected", expected)

    assert done.returncode == 1, done.stderr
    (line,) = [x for x in done.stdout.splitlines() if "FELL" in x]
    assert line.split()[:3] == ["mean", "lexical", "hit@1"]
    assert "1 figures are worse by more than their slack" in done.stdout


def test_make_hands_its_variables_on() -> None:
    asked = ["DATA=some folder", "OUT=figures.json", "LIMIT=500", "STORES=embedded"]

    done = subprocess.run(
        ["make", "-n", "bench-search", *asked], cwd=BENCH.parent, capture_output=True, text=True, check=True
    )

    assert (
        'run.py compare "some folder" --stores "embedded" --out "figures.json" --limit "500"' in done.stdout
    )


@pytest.mark.long
def test_speed_is_measured_on_the_committed_subset(tmp_path: Path) -> None:
    small = [
        "--sizes",
        "200",
        "--http-sizes",
        "200",
        "--weaviate-sizes",
        "",
        "--queries",
        "6",
        "--seconds",
        "0.2",
    ]
    out = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, BENCH / "search" / "scale.py", BENCH / "search" / "subset", *small, "--out", out],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    figures = json.loads(
        out.read_text(), parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON")
    )
    assert {"embedded/200", "http/200"} <= figures.keys()
    assert "embedded, 200 tools through the Searcher" in done.stdout


@pytest.mark.real
@pytest.mark.long
def test_both_stores_are_measured_and_compared(data: Path, tmp_path: Path) -> None:
    require_real("weaviate")
    out = tmp_path / "figures.json"

    done = run(tmp_path, "compare", data, "--out", out, "--stores", "weaviate", "--sample", "2")

    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    checked(figures, {*METHODS, "hybrid_weaviate"})
    for name in figures:
        assert figures[name]["hybrid_weaviate"] == pytest.approx(figures[name]["hybrid"])
    assert "the two stores: overlap@10" in done.stdout
