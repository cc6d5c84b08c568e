"""The quality gate: it lets through what is as good, and stops what is worse."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench_search
from hash_embedder import HashEmbedder

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parents[4] / "bench" / "search"


@pytest.fixture(scope="module")
def modules() -> Iterator[list[Any]]:
    with bench_search.loaded("gate", "vectors", "product") as found:
        # the rest of them would show the same again
        found[0].narrowed.REQUESTS = 12
        yield found


@pytest.fixture(scope="module")
def good(modules: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return asyncio.run(measured(modules, small(tmp_path_factory.mktemp("good"))))


class OtherWords(HashEmbedder):
    """Vectors that do not fit each other: a request is never near what it asks for."""

    async def embed_request(self, texts: Any) -> Any:
        return await super().embed_request([t[::-1] for t in texts])


def figures(hit: float, gain: float, nothing: float = 0.02) -> dict[str, float]:
    return {"hit@1": hit, "ndcg@5": gain, "nothing_found": nothing}


def side(
    hit: float = 0.5,
    gain: float = 0.6,
    requests: int = 200,
    nothing: float = 0.02,
    precision: float = 0.9,
    wrongly: float = 0.2,
    identical: float = 1.0,
) -> dict[str, Any]:
    both = {"hybrid": figures(hit, gain, nothing), "lexical": figures(0.4, 0.5)}
    return {
        "embedder": "e",
        "sets": {"one": {"requests": requests, **both}},
        "mean": both,
        "no answer": {
            "empty": 40, "unanswerable": 50, "answerable": 50,
            "precision": precision, "answered_wrongly": wrongly, "nothing_found": 0.04,
        },
        "visible": {"1": {"requests": 200, **figures(0.9, 0.9), "identical": identical}},
    }  # fmt: skip


def bad(gate: Any, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [f"{x.where} {x.method} {x.figure}" for x in gate.compared(before, now) if x.bad]


def test_a_fall_of_a_point_is_let_through_and_a_larger_one_is_not(modules: list[Any]) -> None:
    gate = modules[0]

    assert bad(gate, side(), side()) == []
    assert bad(gate, side(), side(hit=0.9, gain=0.9)) == []
    assert bad(gate, side(), side(hit=0.49)) == []
    assert bad(gate, side(), side(hit=0.4899)) == ["one hybrid hit@1", "mean hybrid hit@1"]
    assert bad(gate, side(), side(gain=0.5888)) == ["one hybrid ndcg@5", "mean hybrid ndcg@5"]


def test_in_a_small_set_one_request_may_turn_but_the_mean_may_not_fall(modules: list[Any]) -> None:
    gate = modules[0]

    assert bad(gate, side(), side(hit=0.5 - 1 / 50, requests=50)) == ["mean hybrid hit@1"]
    assert "one hybrid hit@1" in bad(gate, side(), side(hit=0.5 - 2 / 50, requests=50))


def test_answers_that_are_empty_more_often_fail(modules: list[Any]) -> None:
    gate = modules[0]

    assert bad(gate, side(), side(nothing=0.03)) == []
    assert bad(gate, side(), side(nothing=0.0)) == []
    assert bad(gate, side(), side(nothing=0.0301)) == [
        "one hybrid nothing_found",
        "mean hybrid nothing_found",
    ]


def test_an_empty_answer_that_means_less_fails(modules: list[Any]) -> None:
    gate = modules[0]

    assert bad(gate, side(), side(precision=0.9 - 1 / 40, wrongly=0.2 + 1 / 50)) == []
    assert bad(gate, side(), side(precision=0.9 - 2 / 40)) == ["no answer hybrid precision"]
    assert bad(gate, side(), side(wrongly=0.2 + 2 / 50)) == ["no answer hybrid answered_wrongly"]


def test_a_ranking_that_hidden_tools_change_fails_however_rarely(modules: list[Any]) -> None:
    assert bad(modules[0], side(), side(identical=0.995)) == ["1 % visible hybrid identical"]


def test_a_set_that_only_one_side_has_is_not_passed_over(modules: list[Any]) -> None:
    gate = modules[0]
    more = side()
    more["sets"]["two"] = more["sets"]["one"]

    assert len(bad(gate, side(), more)) == len(bad(gate, more, side())) == 6


def small(folder: Path) -> Path:
    """A part of the subset."""
    one = folder / "data" / "azure_mcp"
    one.mkdir(parents=True)
    for name, count in (("tools.jsonl", 157), ("queries.jsonl", 100)):
        rows = (HERE / "subset" / "azure_mcp" / name).read_text().splitlines()
        (one / name).write_text("\n".join(rows[:count]) + "\n")
    return one.parent


async def measured(modules: list[Any], data: Path, embedder: type[HashEmbedder] = HashEmbedder) -> Any:
    gate, vectors, _ = modules
    return await gate.measured(data, vectors.Remembered([embedder()], None))


@pytest.mark.slow
async def test_a_worse_ranking_fails_and_the_same_one_passes(
    modules: list[Any], good: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = modules[0]
    data = small(tmp_path)

    again = await measured(modules, data)
    worse = await measured(modules, data, OtherWords)

    assert gate.show(gate.compared(good, again))
    capsys.readouterr()
    assert not gate.show(gate.compared(good, worse))
    fallen = bad(gate, good, worse)
    for place in ("azure_mcp", "mean", "100 % visible", "10 % visible"):
        assert {f"{place} hybrid hit@1", f"{place} hybrid ndcg@5"} <= {*fallen}
    assert not [f for f in fallen if "lexical" in f or "identical" in f]
    printed = capsys.readouterr().out
    assert "FELL" in printed
    assert "--update" in printed


@pytest.mark.slow
async def test_a_search_that_never_answers_nothing_fails(
    modules: list[Any], good: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, _, product = modules
    monkeypatch.setattr(product, "_DEFAULT", product._DEFAULT.model_copy(update={"min_score": 0.0}))

    assert "no answer hybrid answered_wrongly" in bad(gate, good, await measured(modules, small(tmp_path)))


@pytest.mark.slow
async def test_a_search_that_ranks_all_tools_and_then_hides_some_fails(
    modules: list[Any], good: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, _, product = modules
    ranked = product.Product.hits

    async def hidden_afterwards(self: Any, text: str, *, view: Any = None, **options: Any) -> Any:
        hits = await ranked(self, text, **options)
        return tuple(h for h in hits if view is None or h.tool_id in view)

    monkeypatch.setattr(product.Product, "hits", hidden_afterwards)
    fallen = bad(gate, good, await measured(modules, small(tmp_path)))

    assert {f"{share} % visible hybrid identical" for share in (10, 1)} <= {*fallen}
    assert not [f for f in fallen if f.startswith(("azure_mcp", "mean", "100 %", "no answer"))]


@pytest.mark.slow
def test_an_embedder_that_became_worse_fails_whatever_is_kept_of_what_it_was(
    modules: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, vectors, _ = modules
    arguments = ["--data", str(small(tmp_path)), "--expected", str(tmp_path / "expected.json")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = ["--cache", str(vectors.cache_folder())]

    def embedder(kind: type[HashEmbedder]) -> None:
        monkeypatch.setattr(gate, "embedder", lambda model, cache: vectors.Remembered([kind()], cache))

    embedder(HashEmbedder)
    assert gate.main([*arguments, *kept, "--update"]) == 0
    embedder(OtherWords)
    assert gate.main([*arguments, *kept]) == 0  # the vectors of before
    assert gate.main(arguments) == 1
    assert "FELL" in capsys.readouterr().out


def test_the_expected_figures_are_those_of_the_committed_subset(modules: list[Any]) -> None:
    expected = json.loads((HERE / "expected.json").read_text())

    for folder in sorted(p for p in (HERE / "subset").iterdir() if p.is_dir()):
        requests = (folder / "queries.jsonl").read_text(encoding="utf-8").strip().split("\n")
        assert expected["sets"][folder.name]["requests"] == len(requests)
        assert f"| {folder.name} |" in (HERE / "subset" / "SOURCES.md").read_text()
    assert sum(p.stat().st_size for p in (HERE / "subset").rglob("*.jsonl")) < 700_000
