"""2,651 tools from empty to Ready on the real API server and Weaviate, and a restart of the operator with them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import cluster_parts as parts
import httpx
import measure

import held_loops
from cluster import Cluster
from realparts.processes import wait_until


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    parts.require()
    limit = 200 if quick else None
    with Cluster(operators=0) as cluster:
        parts.prepare(cluster)
        bare = asyncio.run(_bare(cluster, limit))
        cluster.add_operator()
        wait_until(lambda: parts.registry_metric(cluster, "toolcrib_policy_epoch") > 0, timeout=30)
        loaded = asyncio.run(parts.load_catalog(cluster, limit))
        listed = _listed(cluster)
        writes = parts.operator_metric(cluster, "toolcrib_operator_status_writes_total")
        restart = _restart(cluster, int(loaded["tools"]))
        held_loops.check_folder(cluster.folder)
    tools = int(loaded["tools"])
    rows = [
        ["created, with no operator running", f"{bare:.1f}", "1.0"],
        *(
            [text, f"{loaded[key]:.1f}", f"{loaded[key] / bare:.1f}"]
            for key, text in (
                ("applied", "created, everything running"),
                ("visible", "all of them visible to agents"),
                ("first_ready", "the first one Ready"),
                ("half_ready", "half of them Ready"),
                ("ready", "all of them Ready"),
            )
        ),
    ]
    measure.table(f"{tools:,} tools from empty, seconds from the first request", ["", "s", "to bare"], rows)
    more = [
        ["status writes while loading, a tool", f"{writes / tools:.2f}"],
        [
            "GET / with all of them visible: first, then kept, ms",
            " / ".join(f"{t * 1e3:.1f}" for t in listed),
        ],
        ["restart: process start to leading, s", f"{restart['leading']:.2f}"],
        ["restart: process start to full publish in force, s", f"{restart['published']:.2f}"],
        ["restart: objects whose resourceVersion changed", f"{restart['changed']:.0f}"],
        ["restart: writes to objects of ours (API server's count)", f"{restart['ours']:.0f}"],
        ["restart: other writes (Lease apart)", f"{restart['other']:.0f}"],
        ["restart: tools embedded again", f"{restart['embedded']:.0f}"],
        ["restart: entries written to the index", f"{restart['indexed']:.0f}"],
    ]
    measure.table("And", ["", ""], more)
    return {"bare": bare, **loaded, "status_writes": writes, "listed": listed, "restart": restart}


async def _bare(cluster: Cluster, limit: int | None) -> float:
    """The same objects with nobody watching; they are gone afterwards."""
    async with parts.admin(cluster) as session:
        spent = await parts.create(session, parts.catalog(limit))
        async with session.delete(parts.TOOLS) as answer:
            answer.raise_for_status()
            await answer.read()
    return spent


def _listed(cluster: Cluster) -> list[float]:
    """`GET /` of the agent that sees everything: the first answer makes the view, the second is kept bytes."""
    headers = {"Authorization": f"Bearer {cluster.token('catalog', 'librarian')}"}
    spent = []
    with httpx.Client(base_url=cluster.url, headers=headers, trust_env=False) as client:
        client.get("/health")
        for _ in range(2):
            start = time.perf_counter()
            client.get("/").raise_for_status()
            spent.append(time.perf_counter() - start)
    return spent


def _restart(cluster: Cluster, tools: int) -> dict[str, float]:
    """Stop the operator, start it again, wait until it has compared everything; what that wrote."""

    def quiet() -> bool:
        names = ("toolcrib_operator_index_waiting", "toolcrib_operator_status_waiting")
        return all(parts.operator_metric(cluster, name) == 0 for name in names)

    wait_until(quiet, timeout=60, interval=0.5)
    # `matchedTools` is rewritten once a minute at most: a write that is still owed is no write of the restart
    wait_until(lambda: parts.matched(cluster, "librarian") == tools, timeout=90, interval=0.5)
    cluster.operators[0].stop(10)
    before, counted = parts.versions(cluster), parts.api_writes(cluster)
    embedded = parts.registry_metric(cluster, "toolcrib_index_embedded_tools_total")
    indexed = parts.registry_metric(cluster, "toolcrib_index_written_tools_total")
    epoch = parts.registry_metric(cluster, "toolcrib_policy_epoch")
    start = time.perf_counter()
    cluster.add_operator()
    wait_until(lambda: parts.operator_metric(cluster, "toolcrib_operator_leader") == 1, 30, 0.01)
    leading = time.perf_counter() - start
    wait_until(lambda: parts.registry_metric(cluster, "toolcrib_policy_epoch") > epoch, 30, 0.01)
    published = time.perf_counter() - start
    wait_until(lambda: parts.operator_metric(cluster, "toolcrib_catalog_tools") == tools, 30, 0.1)
    # long enough for an inventory, for the hold of a takeover (30 s) and a rewrite of counts (60 s) to show
    time.sleep(4 if tools < 2_000 else 75)
    wait_until(quiet, timeout=30, interval=0.5)
    after, recounted = parts.versions(cluster), parts.api_writes(cluster)
    return {
        "leading": leading,
        "published": published,
        "changed": sum(before.get(k) != v for k, v in after.items()) + len(before.keys() - after.keys()),
        "ours": recounted["ours"] - counted["ours"],
        "other": recounted["other"] - counted["other"],
        "embedded": parts.registry_metric(cluster, "toolcrib_index_embedded_tools_total") - embedded,
        "indexed": parts.registry_metric(cluster, "toolcrib_index_written_tools_total") - indexed,
    }
