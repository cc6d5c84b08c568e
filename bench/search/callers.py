"""Many callers at once: throughput, latency and how long the event loop was held, in process and over HTTP."""

from __future__ import annotations

import asyncio
import base64
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import measure
import numpy as np

from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.search.embedding import QueryCache
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.visible import Visible

CALLERS = (1, 8, 64)
_TICK = 0.005
_DIFFERENT = 2_000
"""Requests that differ: more than are answered in one measurement."""


class Lag:
    """How late a task that asks for every 5 ms of the event loop gets it."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def watch(self) -> None:
        """Run until cancelled."""
        while True:
            start = time.perf_counter()
            await asyncio.sleep(_TICK)
            self.late.append(time.perf_counter() - start - _TICK)

    def figures(self) -> dict[str, float]:
        """p50, p99 and the most, in ms."""
        p50, p99, most = np.percentile(self.late or [0.0], [50, 99, 100]) * 1e3
        return {"lag_p50": p50, "lag_p99": p99, "lag_max": most}


async def through_searcher(
    store: CatalogStore, model: OnnxEmbedder, entries: list[IndexEntry], texts: list[str], seconds: float
) -> list[dict[str, Any]]:
    """1, 8, 64 callers of one Searcher with requests that differ, each its own; nobody waits between two."""
    searcher = Searcher(store, QueryCache(model), store_seconds=60, embed_seconds=60)
    await searcher.prepare(entries)
    view = Visible((e.tool_id, e) for e in entries)
    down = Pushdown(scopes=frozenset({"all:use"}))
    number = iter(range(1 << 60))
    rows = []
    for count in CALLERS:
        spent: list[list[float]] = [[] for _ in range(count)]
        end = time.perf_counter() + seconds

        async def caller(mine: list[float], end: float) -> None:
            while (start := time.perf_counter()) < end:
                i = next(number)
                await searcher.search(
                    view, Wanted(f"{texts[i % len(texts)]} {i}", limit=10, min_score=0.0), down
                )
                mine.append(time.perf_counter() - start)

        lag = Lag()
        watching, used, begun = asyncio.create_task(lag.watch()), time.process_time(), time.perf_counter()
        await asyncio.gather(*(caller(mine, end) for mine in spent))
        wall, used = time.perf_counter() - begun, time.process_time() - used
        watching.cancel()
        rows.append(summary(count, spent, wall) | {"cpu": used / wall} | lag.figures())
    searcher.close()
    return rows


def summary(count: int, spent: list[list[float]], seconds: float) -> dict[str, float]:
    """Rate, latency, and how unequal callers were served (least to most answers)."""
    everything = [s for mine in spent for s in mine]
    p50, p99 = np.percentile(everything, [50, 99]) * 1e3
    answers = [len(mine) for mine in spent]
    return {
        "callers": count, "rate": len(everything) / seconds, "p50": p50, "p99": p99,
        "fairness": min(answers) / max(answers),
    }  # fmt: skip


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """The table of one run."""
    measure.table(
        title,
        ["callers", "searches/s", "p50 ms", "p99 ms", "least/most served", "cores", "loop late p99 ms", "most"],
        [
            [
                f"{r['callers']}", f"{r['rate']:.0f}", f"{r['p50']:.1f}", f"{r['p99']:.1f}", _fairness(r["fairness"]),
                f"{r['cpu']:.2f}", f"{r['lag_p99']:.1f}", f"{r['lag_max']:.1f}",
            ]
            for r in rows
        ],
    )  # fmt: skip


def _fairness(share: float | None) -> str:
    """Unknown where the generator counts for all connections together."""
    return "–" if share is None else f"{share:.2f}"


def through_http(
    data: Path, cache: Path, size: int, texts: list[str], seconds: float
) -> dict[str, list[dict[str, Any]]]:
    """1, 8, 64 connections to the real registry: requests that differ, and one again and again."""
    found: dict[str, list[dict[str, Any]]] = {}
    arguments = [str(data), str(size), str(cache)]
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        with (
            measure.Talker("search/scale_server.py", *arguments, log=logs / "server.log") as server,
            measure.Talker("load.py", log=logs / "load.log") as load,
        ):
            token, pid = server.hello["token"], server.hello["pid"]
            number = itertools.count()
            for kind in ("different", "the same"):
                found[kind] = []
                for count in CALLERS:
                    many = range(_DIFFERENT if kind == "different" else 1)
                    queries = [f"{texts[i % len(texts)]} {next(number)}" for i in many]
                    requests = [measure.http("POST", "/v1/search", token, {"query": q}) for q in queries]
                    server.ask({})
                    used = measure.cpu_seconds(pid)
                    answer = load.ask({
                        "host": "127.0.0.1", "port": server.hello["port"], "connections": count,
                        "seconds": seconds, "request": [base64.b64encode(r).decode() for r in requests],
                    })  # fmt: skip
                    found[kind].append({
                        "callers": count, "rate": answer["requests"] / answer["seconds"],
                        "p50": answer["p50"] * 1e3, "p99": answer["p99"] * 1e3, "fairness": None,
                        "cpu": (measure.cpu_seconds(pid) - used) / answer["seconds"], **server.ask({}),
                    })  # fmt: skip
                show(f"HTTP, embedded, {size:,} tools, requests: {kind}", found[kind])
    return found
