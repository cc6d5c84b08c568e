"""What a replica needs to take a catalog in, measured in a process of its own.

A process that has run before gives memory back to itself and not to the system, so another index would look free. What
is counted is what the search adds to a process that holds the tools already: words, vectors, and the store's own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Vector
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Searcher
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.visible import Visible

_BATCH = 500
_SEARCHES = 20


class _Named(NullEmbedder):
    """Says its dimension, encodes no tool, and gives requests the vectors of tools in turn."""

    def __init__(self, vectors: Vector) -> None:
        self.dimension = vectors.shape[1]
        self._vectors = iter(vectors)

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """The next tool's."""
        return np.stack([next(self._vectors)] * len(texts))


def identity(vectors: Vector) -> IndexIdentity:
    """Of the store that `start` looks for."""
    return identity_of(_Named(vectors))


def footprint(tools: Sequence[IndexEntry], vectors: Vector) -> dict[str, float]:
    """`build_seconds` and `memory_bytes` for `tools`; encoding them is not part of it."""
    with _laid_out(tools, vectors) as folder:
        return _child(folder, "build")


def start(
    tools: Sequence[IndexEntry], vectors: Vector, weaviate: dict[str, Any] | None = None
) -> dict[str, float]:
    """What a replica needs that starts over a filled store (embedded, or where `weaviate` says): `open`, `prepare` and `first`
    (its first search) in seconds; `mib` that all of it added, after some searches."""
    with _laid_out(tools, vectors) as folder:
        Path(folder, "weaviate.json").write_text(json.dumps(weaviate))
        if weaviate is None:
            _child(folder, "build")
        return _child(folder, "start")


def _laid_out(tools: Sequence[IndexEntry], vectors: Vector) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="toolcrib-bench-")
    np.save(f"{folder.name}/vectors.npy", vectors)
    Path(folder.name, "tools.json").write_text(json.dumps([t.to_json() for t in tools]))
    return folder


def _child(folder: str, what: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, what, folder], stdout=subprocess.PIPE, check=True, text=True, timeout=600
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def _build(folder: Path) -> dict[str, float]:
    vectors = np.load(folder / "vectors.npy")
    tools = [IndexEntry.from_json(t) for t in json.loads((folder / "tools.json").read_text())]
    embedder = _Named(vectors)
    store = await EmbeddedStore.open(folder / "index", identity_of(embedder))
    searcher = Searcher(store, embedder)
    before, begun = _resident(), time.perf_counter()
    for first in range(0, len(tools), _BATCH):
        await store.put(tools[first : first + _BATCH], vectors[first : first + _BATCH])
    await searcher.prepare(tools)
    seconds, after = time.perf_counter() - begun, _resident()
    searcher.close()
    await store.aclose()
    return {"build_seconds": seconds, "memory_bytes": float(max(0, after - before))}


async def _start(folder: Path) -> dict[str, float]:
    few = np.load(folder / "vectors.npy", mmap_mode="r")[: _SEARCHES + 1].copy()
    tools = [IndexEntry.from_json(t) for t in json.loads((folder / "tools.json").read_text())]
    embedder = _Named(few)
    place = json.loads((folder / "weaviate.json").read_text())
    before, times = _resident(), [time.perf_counter()]
    store: CatalogStore
    if place is None:
        store = await EmbeddedStore.open(folder / "index", identity_of(embedder))
    else:
        from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
        from toolcrib_registry.adapters.weaviate.store import WeaviateStore

        store = WeaviateStore(WeaviateSettings(**place), identity_of(embedder))
        await store.healthy()
        before = _resident()
    times.append(time.perf_counter())
    searcher = Searcher(store, embedder, store_seconds=60)
    await searcher.prepare(tools)
    times.append(time.perf_counter())
    view = Visible((t.tool_id, t) for t in tools)
    for number in range(_SEARCHES):
        answer = await searcher.search(
            view, Wanted(f"read the file number {number}", limit=10, min_score=0.0)
        )
        assert (answer.mode, answer.degradation) == ("hybrid", ""), answer
        if not number:
            times.append(time.perf_counter())
    opened, prepared, first = np.diff(times).tolist()
    figures = {
        "open": opened,
        "prepare": prepared,
        "first": first,
        "mib": (_resident() - before) / 2**20,
    }
    searcher.close()
    await store.aclose()
    return figures


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no memory in /proc/self/status")


if __name__ == "__main__":
    work = {"build": _build, "start": _start}[sys.argv[1]]
    print(json.dumps(asyncio.run(work(Path(sys.argv[2])))))
