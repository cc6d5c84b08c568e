"""What the embedded store and the searcher's own index need, measured in a process of its own.

A process that has run before gives memory back to itself and not to the system, so another index would look free.
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

import numpy as np

from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.searcher import Searcher

_BATCH = 500


class _Named(NullEmbedder):
    """Says its dimension and encodes nothing."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension


def footprint(tools: Sequence[IndexEntry], vectors: Vector) -> dict[str, float]:
    """`build_seconds` and `memory_bytes` for `tools`; encoding them is not part of it."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        np.save(f"{folder}/vectors.npy", vectors)
        Path(folder, "tools.json").write_text(json.dumps([t.to_json() for t in tools]))
        done = subprocess.run(
            [sys.executable, __file__, folder], stdout=subprocess.PIPE, check=True, text=True, timeout=600
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def _measured(folder: Path) -> dict[str, float]:
    vectors = np.load(folder / "vectors.npy")
    tools = [IndexEntry.from_json(t) for t in json.loads((folder / "tools.json").read_text())]
    embedder = _Named(vectors.shape[1])
    store = await EmbeddedStore.open(folder / "index", identity_of(embedder))
    searcher = Searcher(store, embedder)
    before, start = _resident(), time.perf_counter()
    for first in range(0, len(tools), _BATCH):
        await store.upsert(tools[first : first + _BATCH], vectors[first : first + _BATCH])
    await searcher.prepare(tools)
    seconds, after = time.perf_counter() - start, _resident()
    searcher.close()
    await store.aclose()
    return {"build_seconds": seconds, "memory_bytes": float(max(0, after - before))}


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no memory in /proc/self/status")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(Path(sys.argv[1])))))
