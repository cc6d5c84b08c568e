"""Resident memory of each process at rest with the catalog: on a cluster, and of the local mode."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cluster_parts as parts
import httpx
import measure
from measure import rss

import held_loops
from cluster import Cluster
from local_mode import LocalMode
from realparts.processes import Child, clean_environment, free_port, wait_until


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures in bytes."""
    parts.require()
    limit = 200 if quick else None
    figures: dict[str, Any] = {}
    with Cluster() as cluster:
        parts.prepare(cluster)
        children = _children(cluster)
        empty = {name: rss(child.pid) for name, child in children.items()}
        count = int(asyncio.run(parts.load_catalog(cluster, limit))["tools"])
        with tempfile.TemporaryDirectory() as folder:
            runner = _runner(cluster, Path(folder))
            try:
                _used(cluster)
                for name, child in children.items():
                    measure.settle(child.pid, quiet=0.3)
                    figures[name] = {"empty": empty[name], "full": rss(child.pid)}
                figures["agent runner"] = {"empty": None, "full": rss(runner.pid)}
            finally:
                runner.stop()
        held_loops.check_folder(cluster.folder)
    with tempfile.TemporaryDirectory() as folder:
        figures["toolcrib up"] = _local(Path(folder), limit)
    rows = [
        [name, "" if f["empty"] is None else f"{f['empty'] / 2**20:.0f}", f"{f['full'] / 2**20:.0f}"]
        for name, f in figures.items()
    ]
    measure.table(f"Resident memory at rest, MiB, with {count:,} tools", ["", "empty", "with tools"], rows)
    return figures


def _children(cluster: Cluster) -> dict[str, Child]:
    assert cluster.weaviate is not None
    return {
        "kube-apiserver": cluster.api.process,
        "etcd": cluster.api.etcd,
        "Weaviate": cluster.weaviate.process,
        "registry": cluster.replicas[0].child,
        "operator": cluster.operators[0],
    }


def _used(cluster: Cluster) -> None:
    """One list of everything and one search: who is never asked holds less."""
    token = cluster.token("catalog", "librarian")
    cluster.discover(token)
    assert cluster.search(token, "read a file")["tools"]


def _runner(cluster: Cluster, folder: Path) -> Child:
    """An agent runner at rest: it has discovered its tools, talked to a model and called one of them."""
    port = free_port()
    token = folder / "token"
    token.write_text(cluster.token("catalog", "github-bot"))
    model_port = free_port()
    env = clean_environment({})
    model = Child(
        "scripted",
        [sys.executable, "-m", "toolcrib_runner.scripted", "--port", str(model_port)],
        log=folder / "model.log",
        env=env,
    )
    argv = [
        sys.executable, "-m", "toolcrib_cli", "agent", "run", "--name", "github-bot", "--registry-url", cluster.url,
        "--token-file", str(token), "--model-url", f"http://127.0.0.1:{model_port}/v1", "--model", "toolcrib-scripted",
        "--task", 'call create_issue {"owner": "o", "repo": "r", "title": "t"}', "--metrics-port", str(port),
        "--keep-serving",
    ]  # fmt: skip
    runner = Child("runner", argv, log=folder / "runner.log", env=env)
    with model:
        model.wait_ready(lambda: _ok(f"http://127.0.0.1:{model_port}/v1/models"), timeout=30)
        runner.start()
        url = f"http://127.0.0.1:{port}/metrics"
        runner.wait_ready(
            lambda: _ok(url) and "create_issue" in httpx.get(url, trust_env=False).text, timeout=30
        )
    return runner


def _ok(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _local(folder: Path, limit: int | None) -> dict[str, Any]:
    """`toolcrib up` over the catalog, with vectors, once everything is indexed."""
    manifests = [parts.CATALOG]
    if limit is not None:
        manifests = [parts.CATALOG / "00-namespace.yaml", parts.CATALOG / "bindings.yaml"]
        manifests += sorted((parts.CATALOG / "tools").glob("*.yaml"))[:40]
    nothing = folder / "none"
    nothing.mkdir()
    (folder / "a").mkdir()
    with LocalMode(folder / "a", nothing, embedder="packaged") as local:
        measure.settle(local.child.pid)
        empty = rss(local.child.pid)
    (folder / "b").mkdir()
    start = time.perf_counter()
    with LocalMode(folder / "b", *manifests, embedder="packaged") as local:
        up = time.perf_counter() - start
        text = lambda: httpx.get(local.url + "/metrics", trust_env=False).text  # noqa: E731
        total = parts.counter(text(), "toolcrib_catalog_tools")
        wait_until(
            lambda: parts.counter(text(), "toolcrib_index_written_tools_total") >= total,
            timeout=240,
            interval=0.5,
        )
        indexed = time.perf_counter() - start
        measure.settle(local.child.pid)
        held_loops.check("toolcrib up", local.output)
        return {"empty": empty, "full": rss(local.child.pid), "up_seconds": up, "indexed_seconds": indexed}
