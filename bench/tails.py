"""How much longer the slowest calls take than the usual ones, against bare proxies: p99 / p50 of `POST /v1/call`.

The registry holds 2,651 and 10,000 tools; five tools with one upstream are called in turns. Each server is a process
of its own: the local mode, the registry as in a cluster, and the two bare proxies, whose memory is empty. One generator
asks one after the other, again and again, so that what else the machine does hits all of them alike.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import measure
from cluster_parts import CATALOG, catalog, counter
from measure import Talker, Variant, http

import held_loops
from local_mode import LocalMode
from realparts.processes import wait_until
from registry_harness import backend, binding, mint, tool
from registry_process import configuration, process

SIZES = (2_651, 10_000)
CONNECTIONS = (16, 64)
TIMES = 1.5
"""The goal: so many times the p99 / p50 of each proxy."""
FIVE = tuple(f"echo_{i}" for i in range(5))
ARGUMENTS = {"expression": "6*7"}
SCHEMA = {
    "type": "object",
    "properties": {"expression": {"type": "string", "description": "What to work out."}},
    "required": ["expression"],
    "additionalProperties": False,
}
BASES = ("bare proxy: uvicorn", "bare proxy: aiohttp")


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    figures, held = {}, list[str]()
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            figures[str(size)] = _at(size, Path(folder), held, 2 if quick else 9, 1.0 if quick else 4.0)
    missed = [
        f"{size} tools, {connections} connections, {name}, by {row['times'][base] - TIMES:.2f} × {base}"
        for size, of_size in figures.items()
        for connections, rows in of_size.items()
        for name, row in rows.items()
        if name not in BASES
        for base in BASES
        if row["times"][base] > TIMES
    ]
    assert not held, "an event loop was held:\n" + "\n".join(held)
    measure.verdict(f"at most {TIMES} × both proxies", missed)
    return {"goal": TIMES, "missed": missed, "figures": figures}


def _at(size: int, folder: Path, held: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Talker("load.py", log=folder / "load.log"))
        upstream = int(load.hello["upstream"])
        proxies = stack.enter_context(Talker("proxies.py", str(upstream), log=folder / "proxies.log"))
        variants = [
            Variant(
                name,
                proxies.hello["ports"][name.rpartition(" ")[2]],
                http("POST", "/call", None, ARGUMENTS),
                pid=proxies.hello["pid"],
            )
            for name in BASES
        ]
        for port, token, pid, name in (
            stack.enter_context(_local(size, folder, upstream, held)),
            stack.enter_context(_served(size, folder, upstream, held)),
        ):
            calls = [
                http(
                    "POST",
                    "/v1/call",
                    token,
                    {"tool": f"tails/{n.replace('_', '-')}", "arguments": ARGUMENTS},
                )
                for n in FIVE
            ]
            variants.append(Variant(name, port, calls, pid=pid))
        return {
            str(connections): _with(size, connections, load, variants, rounds, seconds)
            for connections in CONNECTIONS
        }


def _tools(size: int) -> list[dict[str, Any]]:
    """The catalog, as often as it takes, each time under other names."""
    found: list[dict[str, Any]] = []
    objects = catalog()
    for copy in range(-(-size // len(objects))):
        for item in objects[: size - len(found)]:
            tail = f"-{copy}" if copy else ""
            meta = {**item["metadata"], "name": item["metadata"]["name"][:240] + tail}
            spec = {**item["spec"], "name": item["spec"]["name"][:120] + tail}
            found.append({**item, "metadata": meta, "spec": spec})
    return found


def _five() -> list[dict[str, Any]]:
    """The tools that are called, as manifests with their namespace, Service, caller and grant."""
    version = "toolcrib.dev/v1alpha1"
    port = {"name": "http", "port": 8080}
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tails"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "caller", "namespace": "tails"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo", "namespace": "tails"}, "spec": {"ports": [port]}},
        {
            "apiVersion": version,
            "kind": "AgentScopeBinding",
            "metadata": {"name": "caller", "namespace": "tails"},
            "spec": {"subjects": [{"kind": "ServiceAccount", "name": "caller"}], "scopes": ["echo:use"]},
        },
    ]  # fmt: skip
    http_backend = {"service": {"name": "echo", "port": 8080}, "path": "/call", "method": "POST"}
    for name in FIVE:
        spec = {
            "name": name,
            "description": f"Works out an expression, way {name[-1]}.",
            "scopes": ["echo:use"],
            "inputSchema": SCHEMA,
            "backend": {"http": http_backend},
        }
        meta = {"name": name.replace("_", "-"), "namespace": "tails"}
        found.append({"apiVersion": version, "kind": "Tool", "metadata": meta, "spec": spec})
    return found


def _with(
    size: int, connections: int, load: Talker, variants: list[Variant], rounds: int, seconds: float
) -> dict[str, Any]:
    fresh = [Variant(v.name, v.port, v.request, v.pid) for v in variants]
    for v in fresh:
        measure.settle(v.pid, quiet=0.05)
    measure.rounds(load, fresh[0].pid, fresh, count=rounds, seconds=seconds, connections=connections)
    tails = {v.name: [p99 / p50 for p99, p50 in zip(v.p99s, v.p50s, strict=True)] for v in fresh}
    rows, figures = [], {}
    for v in fresh:
        times = {base: measure.ratios(tails[v.name], tails[base]) for base in BASES}
        figures[v.name] = {
            "per_second": statistics.median(v.rates),
            "p50_ms": statistics.median(v.p50s) * 1e3,
            "p99_ms": statistics.median(v.p99s) * 1e3,
            "tail": statistics.median(tails[v.name]),
            "times": {base: median for base, (median, _, _) in times.items()},
        }
        f = figures[v.name]
        shown = [f"{m:.2f} ({low:.2f}–{high:.2f})" for m, low, high in times.values()]
        rows.append(
            [
                v.name,
                f"{f['per_second']:,.0f}",
                f"{f['p50_ms']:.1f}",
                f"{f['p99_ms']:.1f}",
                f"{f['tail']:.2f}",
                *shown,
            ]
        )
    measure.table(
        f"{size:,} tools, {connections} connections ({rounds} rounds in turns, medians)",
        ["", "per second", "p50 ms", "p99 ms", "p99/p50", "to uvicorn's", "to aiohttp's"],
        rows,
    )
    return figures


@contextlib.contextmanager
def _local(size: int, folder: Path, upstream: int, held: list[str]) -> Iterator[tuple[int, str, int, str]]:
    """`toolcrib up`, with everything indexed: port, token, pid, name."""
    manifests = folder / "manifests"
    manifests.mkdir()
    (folder / "local").mkdir()
    objects = [*_tools(size), *_five()]
    for start in range(0, len(objects), 500):
        text = "\n---\n".join(map(json.dumps, objects[start : start + 500]))
        (manifests / f"{start:05}.yaml").write_text(text)
    with LocalMode(
        folder / "local", CATALOG / "00-namespace.yaml", CATALOG / "bindings.yaml", manifests,
        embedder="packaged" if size == SIZES[0] else "none",
        extra=("--backend", f"tails/echo=127.0.0.1:{upstream}", "--quota-tools", "0"), patience=300,
    ) as local:  # fmt: skip
        total = size + len(FIVE)
        wait_until(
            lambda: counter(httpx.get(local.url + "/metrics", trust_env=False).text, "toolcrib_index_written_tools_total") >= total,
            timeout=300,
            interval=0.5,
        )  # fmt: skip
        yield int(local.url.rpartition(":")[2]), local.token("tails/caller"), local.child.pid, "toolcrib up"
        held += held_loops.unknown(local.output.splitlines())


@contextlib.contextmanager
def _served(size: int, folder: Path, upstream: int, held: list[str]) -> Iterator[tuple[int, str, int, str]]:
    """`toolcrib-registry` after one full publish: port, token, pid, name."""
    tools = [
        tool(
            t["spec"].get("name", t["metadata"]["name"]), namespace="catalog", object_name=t["metadata"]["name"],
            description=t["spec"]["description"], scopes=tuple(t["spec"]["scopes"]),
            input_schema=t["spec"].get("inputSchema"), server=t["spec"].get("server"),
        )
        for t in _tools(size)
    ]  # fmt: skip
    to = backend(upstream, "/call")
    tools += [tool(n, namespace="tails", input_schema=SCHEMA, scopes=("echo:use",), backend=to) for n in FIVE]
    config = configuration(folder / "served", egress={"loopback": True})
    with process(config) as registry:
        registry.publish(
            *tools,
            bindings=(
                binding("caller", ("echo:use",), namespace="tails", account_namespace="tails"),
                binding("librarian", ("catalog:read",), namespace="catalog", account_namespace="catalog"),
            ),
        )
        token = mint("system:serviceaccount:tails:caller")
        yield registry.agents, token, registry.child.pid, "toolcrib-registry"
        held += held_loops.unknown(registry.lines)
