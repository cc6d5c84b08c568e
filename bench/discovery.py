"""`GET /` at 1,000 and 10,000 tools, 20 visible, against an empty route of the same server process."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import measure
from measure import Talker, Variant, http


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    result: dict[str, Any] = {}
    for count in (1_000, 10_000):
        result[str(count)] = _at(count, 2 if quick else 9, 0.3 if quick else 1.0)
    return result


def _at(count: int, turns: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        with (
            Talker("load.py", log=Path(folder) / "load.log") as load,
            Talker(
                "server.py", str(count), str(load.hello["upstream"]), log=Path(folder) / "server.log"
            ) as server,
        ):
            ports, token = server.hello["ports"], server.hello["token"]
            empty = Variant("empty route, plain FastAPI", ports["plain"], http("GET", "/empty", token))
            found = Variant("GET /", ports["registry"], http("GET", "/", token))
            variants = [
                empty,
                found,
                Variant("GET /, decision log on", ports["logging"], http("GET", "/", token)),
                Variant("empty route behind our edge", ports["registry"], http("GET", "/empty", token)),
                Variant("bare ASGI callable", ports["bare"], http("GET", "/", token)),
            ]
            measure.rounds(load, server.hello["pid"], variants, count=turns, seconds=seconds, connections=8)
            # alone, for one request takes longer than a round of the others
            slow = Variant("filter and encode per request", ports["plain"], http("GET", "/filtered", token))
            again = Variant("", ports["plain"], http("GET", "/empty", token))
            measure.rounds(load, server.hello["pid"], [again, slow], count=3, seconds=seconds, connections=2)
    rows, figures = [], {}
    for variant in (*variants, slow):
        base = again if variant is slow else empty
        rate, low, high = measure.ratios(variant.rates, base.rates)
        cost, _, _ = measure.ratios(base.costs, variant.costs)
        figures[variant.name] = {
            "per_second": statistics.median(variant.rates),
            "ratio": rate,
            "ratio_low": low,
            "ratio_high": high,
            "cpu_ratio": cost,
            "cpu_us": statistics.median(variant.costs) * 1e6,
            "p50_ms": statistics.median(variant.p50s) * 1e3,
            "p99_ms": statistics.median(variant.p99s) * 1e3,
            "generator_busy": statistics.median(variant.load),
        }
        f = figures[variant.name]
        rows.append(
            [
                variant.name,
                f"{f['per_second']:,.0f}",
                f"{rate:.2f}",
                f"{low:.2f}–{high:.2f}",
                f"{f['cpu_us']:,.0f}",
                f"{cost:.2f}",
                f"{f['p99_ms']:.2f}",
                f"{f['generator_busy']:.0%}",
            ]
        )
    measure.table(
        f"Discovery with {count:,} tools, 20 visible (ratio to the empty route; {turns} rounds in turns)",
        ["", "per second", "ratio", "low–high", "CPU µs", "CPU ratio", "p99 ms", "generator"],
        rows,
    )
    return figures
