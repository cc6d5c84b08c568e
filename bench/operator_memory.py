"""What a tool costs the operator at rest, against 12 KiB and three times its JSON: a real API server, all Ready."""

from __future__ import annotations

import asyncio
import random
import string
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
KINDS = (
    ("1 KB, small parameters", 1_000, 5, 1_500),
    ("20 KB, small parameters", 20_000, 200, 200),
    ("100 KB, long texts", 100_000, 50, 200),
)
"""What is shown, JSON bytes, parameters, tools."""


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures in bytes."""
    require_real("kube-apiserver", "etcd", "kubectl")
    figures: dict[str, Any] = {}
    for name, size, parameters, count in KINDS:
        figures[name] = asyncio.run(_measured(size, parameters, count // 20 if quick else count))
    rows = [
        [
            name,
            f"{f['tools']:,}",
            *(f"{f[k] / 1024:.1f}" for k in ("json", "used", "bound")),
            f"{f['peak'] / 2**20:.0f}",
        ]
        for name, f in figures.items()
    ]
    measure.table(
        "Operator, KiB a tool", ["tools", "count", "JSON", "memory", "bound", "most in all, MiB"], rows
    )
    return figures


async def _measured(size: int, parameters: int, count: int) -> dict[str, Any]:
    with Cluster(
        store="embedded", embedder="none", operator_flags=["--quota-tools", "0", "--quota-bytes", "0"]
    ) as cluster:
        cluster.kubectl("create", "namespace", NAMESPACE)
        operator = cluster.operators[0]
        await _create(cluster, range(WARM), size, parameters)
        await asyncio.to_thread(_all_ready, cluster, operator, WARM)
        before = rss(operator.pid)
        written = await _create(cluster, range(WARM, WARM + count), size, parameters)
        await asyncio.to_thread(_all_ready, cluster, operator, WARM + count)
        used = (rss(operator.pid) - before) / count
        mean = written / count
        return {
            "tools": count,
            "json": mean,
            "used": used,
            "bound": 12 * 1024 + 3 * mean,
            "peak": _peak(operator),
        }


async def _create(cluster: Cluster, numbers: range, size: int, parameters: int) -> int:
    """Create tools; the JSON bytes of their specs."""
    written = 0
    async with parts.admin(cluster) as session:
        for number in numbers:
            tool = _tool(number, size, parameters)
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


def _tool(number: int, size: int, parameters: int) -> dict[str, Any]:
    """Texts that a compression can make little of; no two tools alike."""
    dice = random.Random(number)
    length = max(10, size // parameters - 50)
    letters = string.ascii_letters + string.digits
    schemas = [
        {
            "type": "object",
            "properties": {
                f"p{n}": {"type": "string", "description": "".join(dice.choices(letters, k=length))}
                for n in range(parameters // 2)
            },
        }
        for _ in range(2)
    ]
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
