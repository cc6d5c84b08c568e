"""From a PATCH to the event at a watching agent: 200 changes at 1,000 tools, real API server and real Weaviate.

One clock (this process's): before the PATCH is sent, when its answer is there, when a watch of the API server itself
tells of it, and when the events reach an agent that sees 26 tools and one that sees all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any

import aiohttp
import cluster_parts as parts
import measure
import orjson
from measure import percentile

import held_loops
from cluster import Cluster

SEEN = {"github-bot": "an agent that sees 26 tools", "librarian": "an agent that sees all"}


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    parts.require()
    count, changes = (200, 40) if quick else (1_000, 200)
    with Cluster() as cluster:
        parts.prepare(cluster)
        figures = asyncio.run(_measure(cluster, count, changes))
        held_loops.check_folder(cluster.folder)
    rows = []
    base = figures["PATCH answered"]["p50"]
    for name, f in figures.items():
        rows.append(
            [name, *(f"{f[k] * 1e3:.1f}" for k in ("p50", "p90", "p99", "max")), f"{f['p50'] / base:.1f}"]
        )
    measure.table(
        f"Apply to visible, ms from before the PATCH: {changes} changes at {count:,} tools",
        ["", "p50", "p90", "p99", "max", "to PATCH"],
        rows,
    )
    return figures


async def _measure(cluster: Cluster, count: int, changes: int) -> dict[str, Any]:
    await parts.load_catalog(cluster, count)
    names = [t["metadata"]["name"] for t in parts.catalog(26)]
    spent: dict[str, list[float]] = {"PATCH answered": [], "a watch of the API server": []}
    spent |= {text: [] for text in SEEN.values()}
    seen: dict[str, asyncio.Future[float]] = {}
    wanted = ""

    def tell(who: str, description: str, now: float) -> None:
        if description == wanted and who in seen and not seen[who].done():
            seen[who].set_result(now)

    def heard(kind: str, item: dict[str, Any], now: float) -> None:
        tell("a watch of the API server", item["spec"].get("description", ""), now)

    async with parts.admin(cluster) as session, aiohttp.ClientSession(read_bufsize=1 << 22) as agents:
        started = [asyncio.Event() for _ in range(1 + len(SEEN))]
        tasks = [asyncio.create_task(parts.watch(session, heard, started[0]))]
        for event, (account, text) in zip(started[1:], SEEN.items(), strict=True):
            token = cluster.token("catalog", account)
            tasks.append(asyncio.create_task(_agent(agents, cluster.url, token, text, tell, event)))
        await asyncio.gather(*(e.wait() for e in started))
        chance = random.Random(1)
        for number, name in zip(range(changes), itertools.cycle(names), strict=False):
            seen = {n: asyncio.get_running_loop().create_future() for n in list(spent)[1:]}
            wanted = f"Changed for the {number}th time, to be seen by whoever watches."
            body = orjson.dumps({"spec": {"description": wanted}})
            start = time.perf_counter()
            async with session.patch(
                f"{parts.TOOLS}/{name}",
                data=body,
                headers={"Content-Type": "application/merge-patch+json"},
            ) as answer:
                if answer.status != 200:
                    raise RuntimeError(await answer.text())
                await answer.read()
            spent["PATCH answered"].append(time.perf_counter() - start)
            waiting = asyncio.gather(*seen.values())
            done, _ = await asyncio.wait([waiting, *tasks], timeout=30, return_when=asyncio.FIRST_COMPLETED)
            if waiting not in done:
                for task in done:
                    task.result()
                raise TimeoutError(f"change {number} is not seen after 30 s")
            for who, future in seen.items():
                spent[who].append(future.result() - start)
            # out of step with whatever beats in the parts
            await asyncio.sleep(chance.uniform(0.02, 0.1))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        name: {
            "p50": percentile(values, 0.5),
            "p90": percentile(values, 0.9),
            "p99": percentile(values, 0.99),
            "max": max(values),
        }
        for name, values in spent.items()
    }


async def _agent(
    session: aiohttp.ClientSession, url: str, token: str, who: str, tell: Any, started: asyncio.Event
) -> None:
    """Read a watch stream as an agent does."""
    headers = {"Authorization": f"Bearer {token}"}
    kind = ""
    async with session.get(
        f"{url}/v1/watch", headers=headers, timeout=aiohttp.ClientTimeout(total=None)
    ) as stream:
        if stream.status != 200:
            raise RuntimeError(await stream.text())
        async for line in stream.content:
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                now = time.perf_counter()
                if kind == "snapshot":
                    started.set()
                elif kind == "changed":
                    tell(who, orjson.loads(line[6:])["tool"]["description"], now)
