"""A call through the registry against bare Python reverse proxies to the same compiled upstream, in one process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
from measure import Talker, Variant, http

from realparts import gotool

ARGUMENTS = {"expression": "6*7"}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    return {
        "16 connections": _with(16, 2 if quick else 7, 0.3 if quick else 1.0),
        "8 connections": _with(8, 2 if quick else 7, 0.3 if quick else 1.0),
        "1 connection": _with(1, 2 if quick else 5, 0.3 if quick else 1.0),
    }


def _echo(folder: Path) -> Path:
    """The compiled upstream (`echo/main.go`), built into `folder`; it takes the Go of `make build-tools`."""
    program, source = folder / "echo", measure.HERE / "echo"
    settings = gotool.provide(source, os.environ, sys.stderr)
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, env=settings, check=True)
    return program


def _with(connections: int, turns: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        with (
            Talker("load.py", log=Path(folder) / "load.log") as load,
            Talker(_echo(Path(folder)), log=Path(folder) / "echo.log") as echo,
            Talker(
                "server.py", "1000", str(echo.hello["upstream"]), log=Path(folder) / "server.log"
            ) as server,
        ):
            ports, token = server.hello["ports"], server.hello["token"]
            proxied = http("POST", "/call", token, ARGUMENTS)
            named = {"tool": "team/tool-00050", "arguments": ARGUMENTS}
            bases = [
                Variant("proxy: Starlette + httpx", ports["starlette"], proxied),
                Variant("proxy: aiohttp", ports["aiohttp"], proxied),
            ]
            calls = [
                Variant("POST /v1/call", ports["registry"], http("POST", "/v1/call", token, named)),
                Variant("POST /tools/NAME", ports["registry"], http("POST", "/tools/tool-00050", token, ARGUMENTS)),
                Variant("the same, decision log on", ports["logging"], http("POST", "/tools/tool-00050", token, ARGUMENTS)),
                Variant("the same, and the assertion", ports["asserted"], http("POST", "/tools/tool-00050", token, ARGUMENTS)),
                Variant("decision log strict, no assertion", ports["strict"], http("POST", "/tools/tool-00050", token, ARGUMENTS)),
            ]  # fmt: skip
            both = [*bases, *calls]
            measure.rounds(
                load, server.hello["pid"], both, count=turns, seconds=seconds, connections=connections
            )
    rows, figures = [], {}
    for variant in both:
        first, low, high = measure.ratios(variant.rates, bases[0].rates)
        second, _, _ = measure.ratios(variant.rates, bases[1].rates)
        f = figures[variant.name] = {
            "per_second": statistics.median(variant.rates),
            "ratio_starlette_httpx": first,
            "ratio_low": low,
            "ratio_high": high,
            "ratio_aiohttp": second,
            "cpu_us": statistics.median(variant.costs) * 1e6,
            "cpu_to_httpx": measure.ratios(variant.costs, bases[0].costs)[0],
            "cpu_to_aiohttp": measure.ratios(variant.costs, bases[1].costs)[0],
            "p50_ms": statistics.median(variant.p50s) * 1e3,
            "p99_ms": statistics.median(variant.p99s) * 1e3,
        }
        rows.append(
            [
                variant.name,
                f"{f['per_second']:,.0f}",
                f"{first:.2f}",
                f"{low:.2f}–{high:.2f}",
                f"{second:.2f}",
                f"{f['cpu_us']:,.0f}",
                f"{f['cpu_to_httpx']:.2f}",
                f"{f['cpu_to_aiohttp']:.2f}",
                f"{f['p50_ms']:.2f}",
                f"{f['p99_ms']:.2f}",
            ]
        )
    measure.table(
        f"Calls, {connections} connections, one upstream ({turns} rounds in turns)",
        [
            "",
            "per second",
            "to httpx",
            "low–high",
            "to aiohttp",
            "CPU µs",
            "CPU to httpx",
            "CPU to aiohttp",
            "p50 ms",
            "p99 ms",
        ],
        rows,
    )
    return figures
