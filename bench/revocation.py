"""From a DELETE or PATCH of a binding to its end on the slowest of three replicas, under load, for a token issued
before: at calls, in lists, searches and watch streams; while Weaviate works, is dead, and is killed and started over
and over. And how long an answer in flight outlives its grant.

One clock (this process's), from before the request to the API server is sent. "Still served" ends with the last answer
that had the tool, "first without" is the next one: what is between is the time of one request, and a search that waits
for a Weaviate that has just died takes two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import cluster_parts as parts
import measure
from measure import percentile

import held_loops
from cluster import EXAMPLES, Cluster
from revocation_watch import WAYS, Eyes, crowd
from slow_backend import SlowBackend, slow_backend

REPLICAS = 3
BINDINGS = "/apis/toolcrib.dev/v1alpha1/namespaces/heist/agentscopebindings"
SITUATIONS = ("Weaviate at work", "Weaviate dead", "Weaviate killed and started again and again")
TOLD = {"call": "still let through at calls", "list": "still in lists", "search": "still found by search"}
TOLD |= {"watch": "still there by the watch stream"}
EVERYTHING, WITHOUT = "still served by any of these", "first answers without it by all of these"
RETURNS = "a DELETE is over, the object gone"
CUT = "an answer in flight is cut"
_MERGE = {"Content-Type": "application/merge-patch+json"}

Times = dict[str, list[float]]


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    parts.require()
    count, tools = (5, 60) if quick else (30, 300)
    with slow_backend() as slow:
        place = {"backends": {"heist/slow": f"127.0.0.1:{slow.port}"}}
        with Cluster(replicas=REPLICAS, registry=place) as cluster:
            _prepare(cluster, tools)
            figures = asyncio.run(_measure(cluster, slow, count))
            held_loops.check_folder(cluster.folder)
    for situation, times in figures["seconds"].items():
        rows = []
        for what, values in times.items():
            shown = (percentile(values, 0.5), percentile(values, 0.99), max(values))
            rows.append([what, str(len(values)), *(f"{value * 1e3:.0f}" for value in shown)])
        measure.table(
            f"{situation}: ms from before the request, slowest of {REPLICAS} replicas, {tools} tools more",
            ["", "times", "p50", "p99", "max"],
            rows,
        )
    print(f"  under {figures['load']:.0f} requests/s of other agents, {figures['wrong']} of them went wrong")
    return figures


def _prepare(cluster: Cluster, tools: int) -> None:
    http = {"service": {"name": "slow", "port": 80}, "path": "/", "method": "POST", "timeout": "60s"}
    spec = {"description": "Takes its time.", "scopes": ["slow:use"], "backend": {"http": http}}
    tool = {"apiVersion": "toolcrib.dev/v1alpha1", "kind": "Tool", "spec": spec}
    cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
    cluster.kubectl("create", "serviceaccount", "victim", "-n", "heist")
    named = {**tool, "metadata": {"name": "slow", "namespace": "heist"}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(named))
    parts.prepare(cluster)
    asyncio.run(parts.load_catalog(cluster, tools))
    cluster.wait_ready("toolcrib")


async def _measure(cluster: Cluster, slow: SlowBackend, count: int) -> dict[str, Any]:
    urls = [replica.url for replica in cluster.replicas]
    victim, safecracker = cluster.token("heist", "victim"), cluster.token("heist", "safecracker")
    weaviate = cluster.weaviate
    assert weaviate is not None
    found: dict[str, Times] = {}
    start = time.perf_counter()
    async with (
        parts.admin(cluster) as admin,
        crowd(urls, safecracker) as did,
        Eyes(urls, victim) as eyes,
    ):
        found[SITUATIONS[0]] = await _revoke(admin, eyes, count)
        found[SITUATIONS[0]][CUT] = await _cut(admin, urls, victim, slow, count)
        weaviate.kill()
        found[SITUATIONS[1]] = await _revoke(admin, eyes, count)
        with _coming_and_going(cluster):
            found[SITUATIONS[2]] = await _revoke(admin, eyes, count)
        seconds = time.perf_counter() - start
    done = sum(did.done.values())
    return {"seconds": found, "load": done / seconds, "wrong": sum(did.wrong.values())}


@contextlib.contextmanager
def _coming_and_going(cluster: Cluster) -> Iterator[None]:
    """Start the dead Weaviate, kill it when it answers, and so on until the block ends."""
    weaviate, over = cluster.weaviate, threading.Event()
    assert weaviate is not None

    def work() -> None:
        while not over.is_set():
            weaviate.start()
            over.wait(1.0)
            weaviate.kill()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(150)


async def _revoke(admin: aiohttp.ClientSession, eyes: Eyes, count: int) -> Times:
    """Grant and take back, by a DELETE and by an edit in turns."""
    times: Times = {told: [] for told in (*TOLD.values(), EVERYTHING, WITHOUT, RETURNS)}
    for turn in range(count):
        await _grant(admin, "calculator:use")
        await eyes.until(True)
        looking = asyncio.create_task(eyes.until(False))
        await asyncio.sleep(0)
        start = time.perf_counter()
        if turn % 2:
            await _edit(admin, "none:use")
        else:
            await _delete(admin)
            times[RETURNS].append(time.perf_counter() - start)
        seen = await looking
        # a stream tells by itself: there is no answer before
        last = {place: seen.first[place] if place[1] == "watch" else at for place, at in seen.last.items()}
        for way in WAYS:
            times[TOLD[way]].append(max(last[i, way] for i in range(REPLICAS)) - start)
        times[EVERYTHING].append(max(last.values()) - start)
        times[WITHOUT].append(max(seen.first.values()) - start)
    return times


async def _cut(
    admin: aiohttp.ClientSession, urls: list[str], token: str, slow: SlowBackend, count: int
) -> list[float]:
    """From the DELETE to the last of three answers `revoked`, one of each replica."""
    times = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:

        async def call(url: str) -> tuple[int, str]:
            while True:
                async with session.post(f"{url}/tools/slow", json={}) as answer:
                    code = (await answer.json())["code"]
                    if code != "not_permitted":  # not granted here yet
                        return answer.status, code

        for _ in range(count):
            await _grant(admin, "slow:use")
            calls = [asyncio.create_task(call(url)) for url in urls]
            for _ in calls:
                await asyncio.to_thread(slow.began.get, timeout=30)
            start = time.perf_counter()
            deleting = asyncio.create_task(_delete(admin))
            answers = await asyncio.gather(*calls)
            times.append(time.perf_counter() - start)
            if set(answers) != {(403, "revoked")}:
                raise RuntimeError(f"not cut: {answers}")
            await deleting
    return times


async def _grant(admin: aiohttp.ClientSession, scope: str) -> None:
    await _delete(admin)
    subject = {"kind": "ServiceAccount", "name": "victim"}
    body = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": "victim"},
        "spec": {"subjects": [subject], "scopes": [scope]},
    }
    async with _told(admin.post(BINDINGS, json=body), 201):
        pass


async def _edit(admin: aiohttp.ClientSession, scope: str) -> None:
    body = json.dumps({"spec": {"scopes": [scope]}})
    async with _told(admin.patch(f"{BINDINGS}/victim", data=body, headers=_MERGE), 200):
        pass


async def _delete(admin: aiohttp.ClientSession) -> None:
    """Delete the binding and wait until it is gone, as kubectl does."""
    async with _told(admin.delete(f"{BINDINGS}/victim"), 200, 404):
        pass
    while True:
        async with _told(admin.get(f"{BINDINGS}/victim"), 200, 404) as answer:
            if answer.status == 404:
                return
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _told(request: Any, *statuses: int) -> AsyncIterator[aiohttp.ClientResponse]:
    async with request as answer:
        if answer.status not in statuses:
            raise RuntimeError(await answer.text())
        await answer.read()
        yield answer
