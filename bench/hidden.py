"""How much longer an answer takes for a hidden tool than for none: pairs of requests over one connection on loopback.

Each pair asks for a hidden and for an absent name of the same length, in random order. Between them run pairs of two
absent names: the difference of those is noise, and a difference of the others that is not beyond it means nothing.
"""

from __future__ import annotations

import json
import random
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

PAIRS = 20_000
GOAL = 2.0
"""Microseconds."""
NAMES = 200
ROUTES = (
    ("POST", "/v1/describe"), ("POST", "/v1/call"), ("GET", "/tools/"), ("POST", "/mcp"), ("POST", "/mcp/direct"),
)  # fmt: skip


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    from measure import table, verdict

    from registry_harness import binding, mint, tool
    from registry_process import configuration, process

    pairs = PAIRS // 20 if quick else PAIRS
    hidden = [tool(f"hidden-{i:03}", scopes=("vault:use", f"own-{i}:use")) for i in range(NAMES)]
    grants = [
        binding("bot"),
        binding("bot", ("vault:use",), name="narrow", allow=("nothing",)),
        binding("bot", (), name="never", deny=("other-*", "hidden-1*")),
        *(binding("bot", (f"other-{i}:use",), name=f"other-{i}") for i in range(6)),
    ]
    rows, figures = [], {}
    with tempfile.TemporaryDirectory() as folder:
        audit = {"path": str(Path(folder) / "decisions.jsonl")}
        with process(configuration(Path(folder) / "registry", audit=audit)) as registry:
            registry.publish(tool("calculator"), *hidden, bindings=tuple(grants))
            token = mint("system:serviceaccount:team:bot")
            for method, path in ROUTES:
                found = _measured(registry.agents, token, method, path, pairs)
                figures[f"{method} {path}"] = found
                shown = [f"{found[k]:+.2f} µs" for k in ("hidden", "hidden_error", "noise", "noise_error")]
                shown[1], shown[3] = shown[1].replace("+", "± "), shown[3].replace("+", "± ")
                rows.append((f"{method} {path}", f"{found['request']:.0f} µs", *shown))
    title = f"Hidden against absent, {pairs:,} pairs on loopback each; the goal is at most {GOAL:g} µs"
    table(
        title,
        ("route", "a request", "hidden - absent, median", "95 %", "absent - absent, median", "95 %"),
        rows,
    )
    missed = [
        f"{route} by {abs(found['hidden']) - GOAL:.2f} µs"
        for route, found in figures.items()
        if abs(found["hidden"]) > GOAL
    ]
    verdict(f"at most {GOAL:g} µs", missed)
    return {"goal": GOAL, "missed": missed, "routes": figures}


def _body(path: str, name: str) -> dict[str, Any] | None:
    """What is sent to ask for a tool; None: its name stands in the path."""
    if path == "/tools/":
        return None
    if path.startswith("/mcp"):
        params = {"name": name, "arguments": {}}
        if path == "/mcp":
            params = {"name": "call_tool", "arguments": {"tool_id": name}}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return {"tool": name} | ({"arguments": {}} if path == "/v1/call" else {})


def _measured(port: int, token: str, method: str, path: str, pairs: int) -> dict[str, float]:
    """Medians of the differences, in microseconds, and how far 95 % of such medians are from the true one."""
    draw = random.Random(1)

    def request(name: str) -> bytes:
        asked = _body(path, name)
        body = "" if asked is None else json.dumps(asked)
        target = path + name if asked is None else path
        kind = "" if asked is None else "content-type: application/json\r\n"
        head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{kind}"
        return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()

    hidden = [request(f"hidden-{i:03}") for i in range(NAMES)]
    absent = [request(f"absent-{i:03}") for i in range(2 * NAMES)]
    differences: dict[bool, list[float]] = {True: [], False: []}
    spent = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(65536)

        def ask(sent: bytes) -> float:
            begun = time.perf_counter_ns()
            connection.sendall(sent)
            got = connection.recv_into(buffer)
            took = time.perf_counter_ns() - begun
            while not buffer[:got].rstrip().endswith(b"}"):  # the body came later than the head
                got += connection.recv_into(memoryview(buffer)[got:])
            return took / 1000

        for one in [*hidden, *absent] * 2:
            ask(one)
        for _ in range(pairs):
            for real in draw.sample((True, False), 2):
                first, second = draw.choice(hidden if real else absent), draw.choice(absent)
                if draw.random() < 0.5:
                    a = ask(first)
                    b = ask(second)
                else:
                    b = ask(second)
                    a = ask(first)
                differences[real].append(a - b)
                spent.append(b)
    found = {"request": statistics.median(spent)}
    for real, name in ((True, "hidden"), (False, "noise")):
        found[name], found[f"{name}_error"] = _median(differences[real])
    return found


def _median(values: list[float]) -> tuple[float, float]:
    """The median, and half of its 95 % interval by order statistics: no shape of the values is assumed."""
    ordered, count = sorted(values), len(values)
    reach = 0.98 * count**0.5
    low, high = ordered[int(count / 2 - reach)], ordered[min(count - 1, int(count / 2 + reach))]
    return statistics.median(ordered), (high - low) / 2
