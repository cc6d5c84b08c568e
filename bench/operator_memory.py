"""What a tool costs the operator at rest, against its bound: 12 KiB and three times its JSON.

A real API server, resident memory of the operator's process as it is, once all tools are Ready; then the same of an
operator that is started over them. `python bench/run.py operator_memory` fails where one exceeds the bound.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import cluster_parts as parts
import httpx
import measure
import orjson
from measure import rss

from cluster import Cluster
from realparts.processes import Child, wait_until
from realparts.required import require_real

NAMESPACE = "sizes"
WARM = 20
"""Tools before the first look: what is loaded and cached on the way is no tool's."""
BASE, FACTOR = 12_288, 3
"""The bound of a tool in bytes: so much, and so many times its JSON."""
ALLOCATOR = 8 << 20
"""What may come on top of all tools together where few are measured (`--quick`), as of a replica."""

Schema = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """Tools of one kind: how many are measured, and the properties of one of both schemas."""

    tools: int
    properties: Callable[[random.Random], Schema]


def _texts(size: int, parameters: int) -> Callable[[random.Random], Schema]:
    """Of a tool of `size` bytes with so many parameters: texts that a compression can make little of."""
    length, letters = max(10, size // parameters - 50), string.ascii_letters + string.digits

    def made(dice: random.Random) -> Schema:
        return {
            f"p{n}": {"type": "string", "description": "".join(dice.choices(letters, k=length))}
            for n in range(parameters // 2)
        }

    return made


def _names(dice: random.Random) -> Schema:
    return {f"{k:04}{dice.randrange(10**8)}": {} for k in range(2_900)}


def _nested(dice: random.Random) -> Schema:
    found: Schema = {}
    for k in range(60):
        deep: Schema = {"enum": [dice.randrange(10**6), 0.5]}
        for level in range(13):
            deep = {"properties": {f"l{level}": deep}, "minimum": k}
        found[f"p{k}"] = deep
    return found


KINDS = {
    "5 parameters": Kind(1_500, _texts(1_000, 5)),
    "20 parameters": Kind(800, _texts(4_000, 20)),
    "200 parameters": Kind(400, _texts(20_000, 200)),
    "2 long texts": Kind(200, _texts(100_000, 2)),
    "50 long texts": Kind(200, _texts(100_000, 50)),
    "5,800 short names": Kind(200, _names),
    "nested 13 deep": Kind(200, _nested),
}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures in bytes."""
    require_real("kube-apiserver", "etcd", "kubectl")
    figures = {
        name: asyncio.run(measured(kind, kind.tools // (20 if quick else 1), ALLOCATOR if quick else 0))
        for name, kind in KINDS.items()
    }
    rows = [
        [
            name,
            f"{f['tools']:,}",
            *(f"{f[k] / 1024:.1f}" for k in ("json", "used", "restarted", "bound")),
            f"{f['peak'] / 2**20:.0f}",
        ]
        for name, f in figures.items()
    ]
    measure.table(
        "Operator, KiB a tool",
        ["tools", "count", "JSON", "memory", "restarted", "bound", "most in all, MiB"],
        rows,
    )
    above = [name for name, f in figures.items() if max(f["used"], f["restarted"]) > f["bound"]]
    if above:
        raise AssertionError(f"above the bound: {', '.join(above)}")
    return figures


async def measured(kind: Kind, count: int, allowed: int) -> dict[str, Any]:
    """The figures of so many tools of a kind; `allowed` bytes of all together are not counted."""
    with Cluster(
        store="embedded", embedder="none", operator_flags=["--quota-tools", "0", "--quota-bytes", "0"]
    ) as cluster:
        cluster.kubectl("create", "namespace", NAMESPACE)
        operator = cluster.operators[0]
        await _create(cluster, range(WARM), kind)
        await asyncio.to_thread(_all_ready, cluster, operator, WARM)
        before = rss(operator.pid)
        written = await _create(cluster, range(WARM, WARM + count), kind)
        await asyncio.to_thread(_all_ready, cluster, operator, WARM + count)
        used = rss(operator.pid) - before
        peak = _peak(operator)
        await asyncio.to_thread(operator.stop)
        following = await asyncio.to_thread(cluster.add_operator)
        await asyncio.to_thread(_all_ready, cluster, following, WARM + count)
        mean = written / count
        return {
            "tools": count,
            "json": mean,
            "used": used / count,
            "restarted": (rss(following.pid) - before) / count,
            "bound": BASE + FACTOR * mean + allowed / count,
            "peak": max(peak, _peak(following)),
        }


async def _create(cluster: Cluster, numbers: range, kind: Kind) -> int:
    """Create tools; the JSON bytes of their specs."""
    written = 0
    async with parts.admin(cluster) as session:
        for number in numbers:
            tool = manifest(number, kind)
            written += len(orjson.dumps(tool["spec"]))
            await _post(session, tool)
    return written


async def _post(session: aiohttp.ClientSession, tool: dict[str, Any]) -> None:
    path = f"/apis/toolcrib.dev/v1alpha1/namespaces/{NAMESPACE}/tools"
    async with session.post(
        path, data=orjson.dumps(tool), headers={"Content-Type": "application/json"}
    ) as answer:
        if answer.status != 201:
            raise RuntimeError(await answer.text())


def manifest(number: int, kind: Kind) -> dict[str, Any]:
    """A Tool of a kind; no two are alike."""
    dice = random.Random(number)
    schemas = [{"type": "object", "properties": kind.properties(dice)} for _ in range(2)]
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": f"t{number:05}", "namespace": NAMESPACE},
        "spec": {
            "description": f"Looks up record number {number}",
            "scopes": ["sizes:use"],
            "inputSchema": schemas[0],
            "outputSchema": schemas[1],
            "backend": {"none": {}},
        },
    }


def _all_ready(cluster: Cluster, operator: Child, count: int) -> None:
    url = f"{operator.url}/metrics"  # type: ignore[attr-defined]

    def ready() -> bool:
        text = httpx.get(url, trust_env=False, timeout=60).text
        published = parts.counter(text, "toolcrib_catalog_tools")
        waiting = parts.counter(text, "toolcrib_operator_index_waiting")
        backlog = parts.counter(text, "toolcrib_operator_status_waiting")
        return (published, waiting, backlog) == (count, 0, 0)

    wait_until(ready, timeout=900, interval=1)
    measure.settle(operator.pid, quiet=0.3)


def _peak(child: Child) -> int:
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10
