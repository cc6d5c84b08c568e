"""Memory that a catalog takes in a replica, a tool, against its bound: 12 KB and three times its JSON.

Each catalog is sent in chunks to a registry in a process of its own, then listed and searched, and resident memory is
taken before and after. `python bench/run.py replica_memory` fails where it exceeds the bound.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BASE, FACTOR = 12_288, 3
"""The bound of a tool in bytes: so much, and so many times its JSON."""
ALLOCATOR = 8 << 20
"""What the allocator may keep beyond that, of all tools together."""
LARGE, ORDINARY = 1_000, 10_000

Schema = dict[str, Any]


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _prose(i: int) -> Schema:
    return _object(
        {f"p{k}": {"type": "string", "description": f"What {k} of {i} means. " * 6} for k in range(280)}
    )


def _names(i: int) -> Schema:
    return _object({f"{k:04}{i}": {} for k in range(4_000)})


def _nested(i: int) -> Schema:
    return _object({f"p{k}": {"items": {"items": {"enum": [k, 0.5]}}, "minimum": i} for k in range(800)})


def _ordinary(i: int) -> Schema:
    one = {
        f"argument_{k}": {"type": "string", "description": f"Which {k} is meant, as tool {i} knows it."}
        for k in range(6)
    }
    return _object(one) | {"required": ["argument_0"]}


def _own_words(i: int) -> Schema:
    """250 words that no other tool has: what search remembers of a term is then of one tool."""
    draw = random.Random(i)
    words = ("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(250))
    return _object({"a": {"type": "string", "description": " ".join(words)}})


CATALOGS: dict[str, tuple[int, int, Callable[[int], Schema]]] = {
    "large, prose": (LARGE, 2, _prose),
    "large, names": (LARGE, 2, _names),
    "large, nested": (LARGE, 2, _nested),
    "ordinary": (ORDINARY, 1, _ordinary),
    "words of its own": (ORDINARY // 2, 1, _own_words),
}
"""Tools, schemas of each, and how one is made."""


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures in bytes."""
    import measure

    figures = {name: measured(name, 10 if quick else 1) for name in CATALOGS}
    rows = [
        [name, f"{f['tools']:,.0f}"]
        + [f"{f[k] / 1024:.1f}" for k in ("json", "rest", "searched", "bound", "listed")]
        + [f"{f['peak'] / 2**20:.0f}"]
        for name, f in figures.items()
    ]
    measure.table(
        "Memory of a replica, KiB a tool",
        ["catalog", "tools", "JSON", "published", "searched", "bound", "listed", "peak of all, MiB"],
        rows,
    )
    if above := [name for name, f in figures.items() if f["searched"] > f["bound"]]:
        raise AssertionError(f"above the bound: {', '.join(above)}")
    return figures


def measured(name: str, divisor: int = 1) -> dict[str, float]:
    """The figures of one catalog, of which a `divisor`th is taken."""
    script = [sys.executable, str(Path(__file__)), name, str(divisor)]
    done = subprocess.run(script, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Staged:
    """The replica of this process, as the operator's sending side sees one."""

    name = "here"

    def __init__(self, deps: Any) -> None:
        self._staging = deps.staging
        self.size = 0

    async def stage(self, body: bytes) -> Any:
        from toolcrib.wire.publish import SnapshotChunk

        self.size += len(body)
        return await self._staging.take(
            await asyncio.to_thread(SnapshotChunk.model_validate_json, body), body
        )

    async def commit(self, commit: Any) -> Any:
        return await self._staging.commit(commit)


def _resident() -> int:
    """Bytes, without what the allocator only keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


async def _child(name: str, divisor: int) -> dict[str, float]:
    import server

    from registry_harness import binding, tool
    from toolcrib import process
    from toolcrib.identity import Identity
    from toolcrib.snapshot import Snapshot
    from toolcrib.wire.features import FEATURES
    from toolcrib.wire.publish import Publish, PublishedTool, Revision
    from toolcrib_operator.replicas.transfer import SnapshotTransfer
    from toolcrib_registry.policy import discovery
    from toolcrib_registry.search.question import Wanted

    count, schemas, make = CATALOGS[name]
    count //= divisor
    to = Revision(epoch=1, seq=2)

    def tools(some: range) -> Iterator[PublishedTool]:
        for i in some:
            schema = make(i)
            more = {"output_schema": schema} if schemas == 2 else {}
            yield tool(
                f"tool-{i:05}",
                scopes=("all:use",),
                description=f"Does what {i} asks. " * 10,
                input_schema=schema,
                **more,
            )

    async def source(snapshot: Snapshot) -> Any:
        for one in tools(range(count)):
            yield one

    grant = binding("reader", ("all:use",))
    first = Publish(
        to=Revision(epoch=1, seq=1), tools=tuple(tools(range(count, count + 20))), bindings=(grant,)
    )
    with tempfile.TemporaryDirectory() as folder, process.heap.settled():
        made = await server.registry(
            Path(folder), "replica", first, limits={"list_bytes": 1 << 30, "view_bytes": 1 << 30}
        )
        state = made.deps.state
        who = Identity(
            issuer=server.ISSUER, subject="system:serviceaccount:team:reader", expires_at=2e10, cluster=True
        )

        async def searched() -> None:
            await made.deps.search.search(
                await state.caller_view(who), Wanted(query="which argument is meant")
            )

        await searched()
        await discovery.answer(made.deps.state, await state.caller_view(who), made.deps.settings)
        before = _resident()
        replica = _Staged(made.deps)
        full = SnapshotTransfer(Snapshot(revision=to, bindings={grant.uid: grant}), to, source)
        await full.send(replica, FEATURES, age=lambda: 0.0, may_act=lambda: True)  # type: ignore[arg-type]
        size = sum(len(t.model_dump_json()) for t in state.snapshot.tools.values())
        assert len(state.snapshot.tools) == count
        rest = _resident() - before
        await searched()
        after = _resident() - before
        await discovery.answer(made.deps.state, await state.caller_view(who), made.deps.settings)
        listed = _resident() - before
        peak = _peak()
        await made.aclose()
    each = size / count
    return {
        "tools": count, "json": each, "rest": rest / count, "searched": after / count,
        "listed": listed / count, "bound": BASE + FACTOR * each + ALLOCATOR / count,
        "peak": peak,
    }  # fmt: skip


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent / "tests" / "support")]
    print(json.dumps(asyncio.run(_child(sys.argv[1], int(sys.argv[2])))))
