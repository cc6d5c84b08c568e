"""What the parts on real servers share: the catalog as JSON, quick writes to the API server, and its watches."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import orjson
import yaml

from cluster import Cluster, counter
from realparts.apiserver import ADMIN_TOKEN
from realparts.required import require_real

CATALOG = Path(__file__).parents[1] / "examples" / "catalog"
TOOLS = "/apis/toolcrib.dev/v1alpha1/namespaces/catalog/tools"
EVERYTHING = ("tools", "agentscopebindings", "clusteragentscopebindings")
_PATIENCE = 240.0
WRITERS = 16
"""Requests to the API server at one time: what `kubectl apply` of a folder does one after the other."""


def require() -> None:
    """Raise where a real server is missing; the message says how to get it."""
    require_real("kube-apiserver", "etcd", "kubectl", "weaviate")


def catalog(limit: int | None = None) -> list[dict[str, Any]]:
    """The tools of examples/catalog as objects: GitHub's first, so that a part of them has those too."""
    files = sorted((CATALOG / "tools").glob("*.yaml"), key=lambda f: (f.stem != "github", f.stem))
    found: list[dict[str, Any]] = []
    for file in files:
        if limit is None or len(found) < limit:
            found += yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader)
    return found[:limit]


def prepare(cluster: Cluster) -> None:
    """Namespace, service accounts and bindings of the catalog; no tools yet."""
    cluster.kubectl("apply", "-f", str(CATALOG / "00-namespace.yaml"))
    cluster.kubectl("apply", "-f", str(CATALOG / "bindings.yaml"))


@contextlib.asynccontextmanager
async def admin(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the API server with all rights."""
    async with aiohttp.ClientSession(
        cluster.api.url,
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        connector=aiohttp.TCPConnector(ssl=cluster.api.ssl_context, limit=WRITERS + 8),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=1 << 22,
    ) as session:
        yield session


async def create(session: aiohttp.ClientSession, tools: Iterable[Mapping[str, Any]]) -> float:
    """Create the tools, 16 at a time; the seconds it took."""
    queue = [orjson.dumps(t) for t in tools][::-1]

    async def work() -> None:
        while queue:
            body = queue.pop()
            async with session.post(TOOLS, data=body, headers={"Content-Type": "application/json"}) as answer:
                if answer.status != 201:
                    raise RuntimeError(await answer.text())

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(work())
    return time.perf_counter() - start


async def watch(
    session: aiohttp.ClientSession, heard: Callable[[str, dict[str, Any], float], None], ready: asyncio.Event
) -> None:
    """Tell `heard` of every event on the tools and when it came, until cancelled."""
    async with session.get(TOOLS + "?limit=1") as answer:
        version = (await answer.json())["metadata"]["resourceVersion"]
    while True:  # the API server ends the watch of a reader that is slow for a moment
        async with session.get(f"{TOOLS}?watch=1&resourceVersion={version}") as stream:
            ready.set()
            async for line in stream.content:
                now = time.perf_counter()
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(str(event["object"]))
                version = event["object"]["metadata"]["resourceVersion"]
                heard(event["type"], event["object"], now)


def is_ready(item: Mapping[str, Any]) -> bool:
    """Whether a tool is Ready in its present generation."""
    status = item.get("status", {})
    if status.get("observedGeneration") != item["metadata"]["generation"]:
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))


def versions(cluster: Cluster) -> dict[str, str]:
    """The resourceVersion of every object of ours."""
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    found: dict[str, str] = {}
    for plural in EVERYTHING:
        answer = cluster.api.client.get(f"/apis/toolcrib.dev/v1alpha1/{plural}", headers=accept)
        answer.raise_for_status()
        for item in answer.json()["items"] or ():
            meta = item["metadata"]
            found[f"{plural}/{meta.get('namespace', '')}/{meta['name']}"] = meta["resourceVersion"]
    return found


def matched(cluster: Cluster, binding: str) -> int:
    """What the status of a binding of the catalog says of the tools that it reaches."""
    path = f"/apis/toolcrib.dev/v1alpha1/namespaces/catalog/agentscopebindings/{binding}"
    return int(cluster.api.client.get(path).json().get("status", {}).get("matchedTools", -1))


def api_writes(cluster: Cluster) -> dict[str, float]:
    """Writes that the API server has counted, by what was written; the Lease is apart."""
    text = cluster.api.client.get("/metrics").text
    found = {"ours": 0.0, "lease": 0.0, "other": 0.0}
    for line in text.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        if not any(
            f'verb="{v}"' in line for v in ("POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION")
        ):
            continue
        kind = (
            "ours" if 'group="toolcrib.dev"' in line else "lease" if 'resource="leases"' in line else "other"
        )
        found[kind] += float(line.rsplit(" ", 1)[1])
    return found


def operator_metric(cluster: Cluster, name: str, operator: int = -1) -> float:
    """A metric of an operator process."""
    url = cluster.operators[operator].url  # type: ignore[attr-defined]
    return counter(httpx.get(f"{url}/metrics", trust_env=False).text, name)


def registry_metric(cluster: Cluster, name: str, **labels: str) -> float:
    """A metric of the first replica."""
    return counter(cluster.replicas[0].metrics(), name, **labels)


async def load_catalog(cluster: Cluster, limit: int | None = None) -> dict[str, float]:
    """Bring the catalog in and wait until every tool is Ready; when what was reached, in seconds."""
    tools = catalog(limit)
    pending = {t["metadata"]["name"] for t in tools}
    ready_at: list[float] = []
    started, finished = asyncio.Event(), asyncio.Event()

    def heard(kind: str, item: dict[str, Any], now: float) -> None:
        name = item["metadata"]["name"]
        if name in pending and is_ready(item):
            pending.remove(name)
            ready_at.append(now)
            if not pending:
                finished.set()

    async with admin(cluster) as session:
        watching = asyncio.create_task(watch(session, heard, started))
        await started.wait()
        begin = time.perf_counter()
        applied = await create(session, tools)
        url = f"{cluster.replicas[0].metrics_url}/metrics"
        visible = 0.0
        async with aiohttp.ClientSession() as plain:
            while not visible:
                async with plain.get(url) as answer:
                    if counter(await answer.text(), "toolcrib_catalog_tools") >= len(tools):
                        visible = time.perf_counter() - begin
                await asyncio.sleep(0.02)
        waiting = asyncio.create_task(finished.wait())
        done, _ = await asyncio.wait(
            [waiting, watching], timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (waiting, watching):
            task.cancel()
        if watching in done:
            watching.result()
        if pending:
            raise TimeoutError(f"{len(pending)} tools are not Ready after {_PATIENCE:g} s")
    return {
        "tools": len(tools),
        "applied": applied,
        "visible": visible,
        "first_ready": ready_at[0] - begin,
        "half_ready": ready_at[len(ready_at) // 2] - begin,
        "ready": ready_at[-1] - begin,
    }
