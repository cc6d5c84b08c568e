"""What the search benchmark's commands do with an OUT or DATA that they cannot use: say so before anything is measured."""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench_search
from bench_search import write_set

COMMANDS = ("compare", "recall", "scale")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, Any]]:
    names = ("outcome", "folder", "callers", "evaluate", "gate", "vectors", *COMMANDS)
    with bench_search.loaded(*names) as found:
        yield dict(zip(names, found, strict=True))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A set as others may bring it, beside folders that are none."""
    data = tmp_path / "data"
    one = write_set(data, "one", [])
    (one / "tools.jsonl").write_bytes(
        b'\xef\xbb\xbf{"id": "a", "name": "add"}\r\n\n{"id": "m", "name": "mail"}\n'
    )
    long = "x" * 10_001
    (one / "queries.jsonl").write_text(
        '\n{"query": "add", "relevant": ["a"]}\n\n' + json.dumps({"query": f"add {long}", "relevant": ["a"]})
    )
    write_set(data, "catalog", [{"id": "t", "name": "translate"}])
    (data / ".hidden").mkdir()
    (data / "notes").mkdir()
    return data


@pytest.mark.parametrize("command", COMMANDS)
def test_an_out_that_cannot_be_written_is_refused_before_anything_else(
    modules: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "e").mkdir()
    for out, why in (
        (tmp_path / "e", "is a folder"),
        (tmp_path / "absent" / "y.json", "there is no folder"),
        (Path("/dev/null"), "is not a file"),
        (tmp_path / ("n" * 250), "File name too long"),
    ):
        with pytest.raises(SystemExit) as ended:
            modules[command].main([str(tmp_path / "nope"), "--out", str(out)])
        assert ended.value.code == 2
        assert why in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["e"]


@pytest.mark.parametrize("command", COMMANDS)
def test_data_that_cannot_be_used_is_said_in_words(
    modules: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status = modules[command].main([str(tmp_path / "nope")])

    assert status == 2
    said = capsys.readouterr().err
    assert said.startswith(f"The data cannot be used:\n{tmp_path}/nope: not a folder")
    assert "Traceback" not in said


def test_the_gate_says_in_words_what_it_cannot_use(
    modules: dict[str, Any], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = modules["gate"]
    (tmp_path / "broken.json").write_text("{")

    with pytest.raises(SystemExit) as ended:
        gate.main(["--data", str(data), "--update", "--expected", str(tmp_path)])
    assert ended.value.code == 2
    assert "argument --expected" in capsys.readouterr().err
    assert gate.main(["--data", str(tmp_path / "nope"), "--update", "--expected", str(tmp_path / "e")]) == 2
    assert "nope: not a folder" in capsys.readouterr().err
    assert gate.main(["--data", str(data), "--expected", str(tmp_path / "broken.json")]) == 2
    assert "is not what --update writes" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("command", ["recall", "scale"])
def test_a_catalog_without_requests_is_refused(
    modules: dict[str, Any], data: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status = modules[command].main([str(data / "catalog")])

    assert status == 2
    assert "no set has queries.jsonl with a request" in capsys.readouterr().err


def test_figures_stand_in_the_place_of_the_file_whole_or_not_at_all(
    modules: dict[str, Any], tmp_path: Path
) -> None:
    outcome = modules["outcome"]
    target, link = tmp_path / "figures.json", tmp_path / "link.json"
    link.symlink_to(target)
    out = outcome.writable(link)
    outcome.write(out, {"a": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        outcome.write(out, {"a": math.nan})
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        outcome.write(tmp_path / "folder", {})

    assert link.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1.5}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figures.json", "folder", "link.json"]
    with pytest.raises(argparse.ArgumentTypeError, match="is a folder"):
        outcome.writable("")


@pytest.mark.parametrize("which", [".", "one"])
def test_speed_is_measured_with_the_data_that_quality_is_measured_with(
    modules: dict[str, Any], data: Path, tmp_path: Path, which: str
) -> None:
    out = tmp_path / "figures.json"
    nothing = ["--sizes", "", "--http-sizes", "", "--weaviate-sizes", "", "--cache", str(tmp_path / "cache")]

    status = modules["scale"].main([str(data / which), *nothing, "--out", str(out)])

    assert status == 0
    assert {"machine", "start", "peak_mib"} == json.loads(out.read_text()).keys()


def test_speed_is_asked_with_requests_that_the_registry_takes(modules: dict[str, Any], data: Path) -> None:
    assert modules["scale"].questions(modules["folder"].read(data), 6) == ["add"]


def test_an_unknown_fairness_is_shown_as_such(
    modules: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    row = dict.fromkeys(("callers", "rate", "p50", "p99", "cpu", "lag_p99", "lag_max"), 1)

    modules["callers"].show("many", [{**row, "fairness": None}, {**row, "fairness": 0.5}])

    said = capsys.readouterr().out
    assert " – " in said
    assert "0.50" in said
    assert "nan" not in said


@pytest.mark.anyio
async def test_a_request_that_the_route_refuses_finds_nothing_and_that_is_said(
    modules: dict[str, Any], data: Path
) -> None:
    from toolcrib_registry.search.embedding import NullEmbedder

    words = modules["vectors"].Remembered([NullEmbedder()], None)
    (tools,) = modules["folder"].read(data, only=["one"])

    bench = modules["evaluate"].Bench(words, methods=("keyword", "lexical"), sample=0, needs=False)
    done = await bench.evaluate(tools)

    assert done.results["lexical"].found == [["a"], []]
    assert done.results["keyword"].found == [["a"], ["a"]]
    assert done.tools.remarks == (
        "1 query is longer than the registry takes: there our methods find nothing",
    )


def test_a_list_of_methods_that_names_none_is_refused(
    modules: dict[str, Any], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        modules["compare"].main([str(data), "--methods", ","])

    assert ended.value.code == 2
    assert "--methods names none; there are: keyword" in capsys.readouterr().err
