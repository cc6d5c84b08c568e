"""Instructions that a call takes, counted by valgrind's callgrind: they hardly depend on what else the machine does.

User mode alone: what the kernel does for a call is not in it. The server runs some fifty times as slowly as without.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
from measure import HERE, Talker, http

TOOLS = 60
"""Fewer than `call` has: starting takes minutes, and a call does not depend on them."""
ARGUMENTS = {"expression": "6*7"}
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def run(quick: bool) -> dict[str, Any]:
    """Count and print; the figures."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as counts:
        counted = _counted(Path(folder), Path(counts), 0.5 if quick else 5.0)
    bare = counted["proxy: aiohttp"]
    rows = [[name, f"{count:,.0f}", f"{count / bare:.2f}"] for name, count in counted.items()]
    measure.table("Instructions a call, in thousands, 16 connections", ["", "thousands", "to aiohttp"], rows)
    return counted


def _counted(folder: Path, counts: Path, seconds: float) -> dict[str, float]:
    with (
        Talker("load.py", log=folder / "load.log") as load,
        Talker(measure.echo(folder), log=folder / "echo.log") as echo,
        # apart: so slow a loop is held all the time, which fails a run whose log says so
        (counts / "server.log").open("wb") as log,
        subprocess.Popen(
            [
                "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts / 'out'}",
                sys.executable, str(HERE / "server.py"), str(TOOLS), str(echo.hello["upstream"]),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        ) as server,
    ):  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            hello = json.loads(server.stdout.readline())
            ports, token = hello["ports"], hello["token"]
            named = http("POST", "/v1/call", token, {"tool": "team/tool-00003", "arguments": ARGUMENTS})
            asked = {
                "proxy: aiohttp": ("aiohttp", http("POST", "/call", token, ARGUMENTS)),
                "POST /v1/call": ("registry", named),
                "the same, decision log on": ("logging", named),
                "the same, and the assertion": ("asserted", named),
            }
            return {
                name: _of(load, hello["pid"], counts, ports[port], request, seconds)
                for name, (port, request) in asked.items()
            }
        finally:
            server.stdin.close()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()


def _of(load: Talker, pid: int, counts: Path, port: int, request: bytes, seconds: float) -> float:
    """Thousands of instructions for one of these requests."""
    job = {
        "host": "127.0.0.1",
        "port": port,
        "request": base64.b64encode(request).decode(),
        "connections": 16,
        "seconds": seconds,
    }
    load.ask(job)  # warms connections, caches and the code
    before = set(counts.iterdir())
    _control(pid, "--instr=on")
    answer = load.ask(job)
    _control(pid, "--instr=off")
    _control(pid, "--dump=counted")
    made = max(set(counts.iterdir()) - before, key=os.path.getmtime)
    found = _TOTAL.findall(made.read_text(errors="replace"))
    return float(max(map(int, found)) / answer["requests"] / 1e3)


def _control(pid: int, what: str) -> None:
    subprocess.run(["callgrind_control", what, str(pid)], check=True, stdout=subprocess.DEVNULL)
