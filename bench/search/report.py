"""Tables of what was measured, and the same as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaluate import METHODS, Evaluation, Result, overlap
from folder import counted
from measure import percentile, table
from metrics import FIGURES, PUBLISHED, Figures, mean

_NONE = "–"


def catalog(done: Evaluation) -> None:
    """Every method on one catalog."""
    queries = done.tools.queries
    title = f"{done.tools.name}: {len(done.tools.tools)} tools, {len(queries)} requests"
    head = ["method", *FIGURES, "ms p50", "p99", "cpu ms", "+encoding p50", "p99", "build s", "MB"]
    table(title, head, [_row(result) for result in done.results.values()])
    for remark in done.tools.remarks:
        print(f"  {remark}")
    if done.encode_query_seconds:
        p50, p99 = _milliseconds(done.encode_query_seconds)
        print(
            f"  encoding, one thread: a request {p50:.1f} ms (p99 {p99:.1f}), a tool {done.encode_tool_seconds * 1e3:.1f} ms"
        )
    if {"hybrid", "hybrid_weaviate"} <= done.results.keys():
        agreement = overlap(done.results["hybrid"], done.results["hybrid_weaviate"])
        print(
            f"  the two stores: overlap@10 {agreement['overlap@10']:.3f}, same first hit {agreement['same_first']:.3f}"
        )


def pooled(done: Evaluation) -> None:
    """The catalog of all tools, and how each set's requests fare in it."""
    catalog(done)
    origins = list(dict.fromkeys(q.origin for q in done.tools.queries))
    for figure in ("recall@5", "ndcg@5"):
        _matrix(
            f"{figure} in the pooled catalog", origins, done.results, figure, lambda r, o: r.figures_of(o)
        )


def summary(done: Sequence[Evaluation]) -> None:
    """Means over the sets, and the sets side by side."""
    if not done:
        return
    rows = []
    for method, figures in means(done).items():
        rows.append([method, *(f"{figures[name]:.3f}" for name in FIGURES)])
    names = [e.tools.name for e in done]
    table(f"mean of {counted(len(done), 'set', 'sets')}", ["method", *FIGURES], rows)
    by_name = {e.tools.name: e for e in done}
    methods = {m: None for e in done for m in e.results}
    for figure in ("ndcg@5", "recall@5", "hit@1"):
        rows = []
        for method in methods:
            each = [by_name[n].results.get(method) for n in names]
            cells = [f"{r.figures[figure]:.3f}" if r else _NONE for r in each]
            known = [r.figures[figure] for r in each if r]
            rows.append(
                [method, *cells, f"{sum(known) / len(known):.3f}" if len(known) == len(names) else _NONE]
            )
        table(figure, ["method", *names, "mean"], rows)


def means(done: Sequence[Evaluation]) -> dict[str, Figures]:
    """The mean over the sets of every method that all of them have."""
    common = [m for m in METHODS if all(m in e.results for e in done)]
    return {m: mean(e.results[m].figures for e in done) for m in common}


def published(done: Sequence[Evaluation]) -> dict[str, dict[str, Figures]]:
    """`{set: {method: {figure: value}}}`."""
    return {
        e.tools.name: {m: {name: r.figures[name] for name in PUBLISHED} for m, r in e.results.items()}
        for e in done
    }


def everything(done: Sequence[Evaluation], whole: Evaluation | None) -> dict[str, Any]:
    """All that was measured."""
    found: dict[str, Any] = {
        "sets": {e.tools.name: _plain(e) for e in done},
        "mean": means(done) if done else {},
    }
    if whole is not None:
        origins = list(dict.fromkeys(q.origin for q in whole.tools.queries))
        by_origin = {m: {o: r.figures_of(o) for o in origins} for m, r in whole.results.items()}
        mean_of = {m: mean(figures.values()) for m, figures in by_origin.items()}
        found["pooled"] = {**_plain(whole), "by_set": by_origin, "mean": mean_of}
    return found


def _plain(done: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tools": len(done.tools.tools),
        "requests": len(done.tools.queries),
        "remarks": done.tools.remarks,
        "encode_query_ms": _milliseconds(done.encode_query_seconds),
        "encode_tool_ms": done.encode_tool_seconds * 1e3,
        "methods": {
            m: {
                **r.figures,
                **r.needs,
                "search_ms": _milliseconds(r.search_seconds),
                "cpu_ms": r.cpu_seconds / max(1, len(r.each)) * 1e3,
                "whole_ms": _milliseconds(r.whole_seconds),
            }
            for m, r in done.results.items()
        },
    }
    if {"hybrid", "hybrid_weaviate"} <= done.results.keys():
        found["stores"] = overlap(done.results["hybrid"], done.results["hybrid_weaviate"])
    return found


def _row(result: Result) -> list[str]:
    figures = result.figures
    search, whole = _milliseconds(result.search_seconds), _milliseconds(result.whole_seconds)
    return [
        result.method,
        *(f"{figures[name]:.3f}" for name in FIGURES),
        *(f"{ms:.2f}" for ms in search),
        f"{result.cpu_seconds / max(1, len(result.each)) * 1e3:.2f}",
        *([f"{ms:.2f}" for ms in whole] if result.whole_seconds else [_NONE, _NONE]),
        f"{result.needs['build_seconds']:.2f}" if result.needs else _NONE,
        f"{result.needs['memory_bytes'] / 1e6:.0f}" if result.needs else _NONE,
    ]


def _matrix(
    title: str,
    origins: Sequence[str],
    results: dict[str, Result],
    figure: str,
    of: Callable[[Result, str], Figures],
) -> None:
    rows = []
    for method, result in results.items():
        values = [of(result, origin)[figure] for origin in origins]
        rows.append([method, *(f"{v:.3f}" for v in values), f"{sum(values) / len(values):.3f}"])
    table(title, ["method", *origins, "mean"], rows)


def _milliseconds(seconds: Sequence[float]) -> tuple[float, float]:
    """(p50, p99) in ms; zeros without values."""
    if not seconds:
        return 0.0, 0.0
    return percentile(seconds, 0.5) * 1e3, percentile(seconds, 0.99) * 1e3
