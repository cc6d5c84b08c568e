"""The embedded store on disk: nothing acknowledged is lost, and damage is noticed, told and survived."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import signal
import sqlite3
import stat
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import index_entries
from hash_embedder import HashEmbedder
from toolcrib_registry.adapters.embedded.store import FILE_NAME, EmbeddedStore
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Pushdown
from toolcrib_registry.search.errors import StoreDamaged, StoreUnavailable

pytestmark = pytest.mark.anyio

SUPPORT = Path(__file__).parents[2] / "support"
EMBEDDER = HashEmbedder(8)
IDENTITY = identity_of(EMBEDDER)

# Writes batch after batch and says so only after the store did; every fourth batch is a removal.
WRITER = """
import asyncio, sys
from pathlib import Path
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.search.embedding import identity_of
from hash_embedder import HashEmbedder
from toolcrib_registry.search.entry import IndexEntry

async def main(folder, start):
    embedder = HashEmbedder(8)
    store = await EmbeddedStore.open(Path(folder), identity_of(embedder))
    print("open", flush=True)
    for batch in range(start, start + 10_000):
        ids = [f"ns/t{batch}-{i}" for i in range(5)]
        entries = [IndexEntry(tool_id=i, digest=f"d{batch}", namespace="ns", name="t", description=i) for i in ids]
        await store.put(entries, await embedder.embed_documents(ids))
        print("in", *ids, flush=True)
        if batch % 4 == 3:
            print("going", *ids[:2], flush=True)
            await store.remove(ids[:2])
            print("out", *ids[:2], flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def entry(name: str, description: str = "some words") -> IndexEntry:
    """A tool."""
    return index_entries.entry(f"ns/{name}", digest=f"d-{name}", description=description)


async def put(store: EmbeddedStore, *entries: IndexEntry) -> None:
    """Upsert with vectors."""
    await store.put(entries, await EMBEDDER.embed_documents([e.description for e in entries]))


async def rewrite(store: EmbeddedStore) -> None:
    """Touch every page: new entries in, old ones out."""
    for i in range(50):
        await put(store, *(entry(f"u{i}-{j}", "words " * 50) for j in range(50)))
        await store.remove([f"ns/t{j}" for j in range(300)])


def names(folder: Path) -> list[str]:
    """What is in `folder`."""
    return [p.name for p in folder.iterdir()]


async def test_kill_9_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    acknowledged: dict[str, str] = {}
    removed: set[str] = set()
    for turn in range(6):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER, str(tmp_path), str(turn * 10_000)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        )
        assert child.stdout is not None
        enough = chance.randint(1, 60)
        lines: list[str] = []
        underway: dict[str, str] = {}
        try:
            async with asyncio.timeout(60):
                while len(lines) <= enough:
                    line = await child.stdout.readline()
                    assert line, "the writer ended by itself"
                    lines.append(line.decode())
                child.send_signal(signal.SIGKILL)
                lines += [rest.decode() async for rest in child.stdout]
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
        for line in lines:
            if not line.endswith("\n"):
                continue
            verb, *ids = line.split()
            if verb == "in":
                acknowledged |= {tool_id: "d" + tool_id[4:].partition("-")[0] for tool_id in ids}
            for tool_id in ids if verb == "going" else ():
                underway[tool_id] = acknowledged.pop(tool_id)
            if verb == "out":
                removed |= underway.keys()
                underway = {}

        store = await EmbeddedStore.open(tmp_path, IDENTITY)
        held = await store.inventory()
        found = await store.nearest((await EMBEDDER.embed_request(["t"])), 100_000, Pushdown())
        vectors = await store.get(held)
        damage = store.damage
        await store.aclose()

        if underway.keys() & held.keys():
            acknowledged |= underway  # all of a removal that nobody acknowledged, or nothing of it
        else:
            removed |= underway.keys()
        assert {i: held.get(i) for i in acknowledged} == acknowledged
        assert not removed & held.keys()
        assert {s.tool_id for s in found} == held.keys() == {s.tool_id for s in vectors}
        assert damage == ()
    assert len(acknowledged) > 20


async def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    before = os.umask(0)
    try:
        store = await EmbeddedStore.open(folder, IDENTITY)
        await put(store, entry("a"))
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
        await store.aclose()
    finally:
        os.umask(before)

    assert FILE_NAME in modes
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_second_process_is_told_that_the_file_is_in_use(tmp_path: Path) -> None:
    first = await EmbeddedStore.open(tmp_path, IDENTITY)

    with pytest.raises(StoreUnavailable, match="in use"):
        await EmbeddedStore.open(tmp_path, IDENTITY)

    await put(first, entry("a"))
    await first.aclose()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"this is no database at all, but it is long enough to be one" * 100,
        lambda data: data[:100] + bytes(len(data) - 100),
        lambda data: data[: len(data) // 2],
        lambda data: data[:2048] + b"\xff" * 4096 + data[6144:],
        lambda data: b"\x00" * len(data),
    ],
    ids=["text", "zeroed", "cut", "overwritten", "empty-header"],
)
async def test_a_damaged_file_is_moved_aside_and_the_store_starts_empty(
    tmp_path: Path, damage: object
) -> None:
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    await put(store, *(entry(f"t{i}", "words " * 50) for i in range(200)))
    await store.aclose()
    file = tmp_path / FILE_NAME
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]

    store = await EmbeddedStore.open(tmp_path, IDENTITY)

    assert await store.inventory() == {}
    assert len(store.damage) == 1
    assert any(".damaged-" in name for name in names(tmp_path))
    await put(store, entry("new"))
    await store.aclose()
    again = await EmbeddedStore.open(tmp_path, IDENTITY)
    assert await again.inventory() == {"ns/new": "d-new"}
    assert again.damage == ()
    await again.aclose()


async def test_a_flipped_bit_inside_a_value_costs_that_entry_alone(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    await put(store, entry("a"), entry("b"), entry("c"))
    await store.aclose()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("UPDATE entries SET vector = zeroblob(32) WHERE tool_id = 'ns/b'")
    connection.close()

    store = await EmbeddedStore.open(tmp_path, IDENTITY)

    assert await store.inventory() == {"ns/a": "d-a", "ns/c": "d-c"}
    assert "ns/b" in store.damage[0]
    await store.aclose()


async def test_damage_found_while_running_empties_the_store_which_goes_on(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    await put(store, *(entry(f"t{i}", "words " * 600) for i in range(300)))
    await store.aclose()
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    file = tmp_path / FILE_NAME
    with file.open("r+b") as raw:
        raw.seek(0)
        raw.write(b"\xff" * file.stat().st_size)

    with pytest.raises((StoreDamaged, StoreUnavailable)):
        await rewrite(store)

    assert await store.inventory() == {}
    await put(store, entry("new"))
    assert await store.inventory() == {"ns/new": "d-new"}
    await store.aclose()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def damaged(folder: Path) -> EmbeddedStore:
    """A store of 300 tools, open on a file that is noise."""
    store = await EmbeddedStore.open(folder, IDENTITY)
    await put(store, *(entry(f"t{i}", "words " * 600) for i in range(300)))
    await store.aclose()
    store = await EmbeddedStore.open(folder, IDENTITY)
    file = folder / FILE_NAME
    with file.open("r+b") as raw:
        raw.write(b"\xff" * file.stat().st_size)
    return store


async def test_damage_that_is_found_while_the_disk_is_full_is_over_when_it_is_not(tmp_path: Path) -> None:
    store = await damaged(tmp_path)
    with full_disk():
        for work in (lambda: store.remove(["ns/t1"]), store.healthy, lambda: put(store, entry("new"))):
            with pytest.raises(StoreUnavailable):
                await work()
        with pytest.raises(StoreUnavailable):
            await store.inventory()

    await store.healthy()
    assert await store.inventory() == {}
    await put(store, entry("new"))

    assert await store.inventory() == {"ns/new": "d-new"}
    assert len(store.damage) == 1
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.healthy()
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    assert await store.inventory() == {"ns/new": "d-new"}
    await store.aclose()


async def test_a_damaged_file_that_cannot_be_moved_is_said_to_be_unavailable_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await damaged(tmp_path)

    def read_only(path: Path, target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", read_only)
        for work in (lambda: store.remove(["ns/t1"]), lambda: put(store, entry("new"))):
            with pytest.raises(StoreUnavailable, match=r"cannot be moved aside: .*Read-only"):
                await work()

    with pytest.raises(StoreDamaged):
        await store.healthy()
    await put(store, entry("new"))
    assert await store.inventory() == {"ns/new": "d-new"}
    await store.aclose()


async def test_another_identity_starts_empty_on_the_same_file(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    await put(store, entry("a"))
    await store.aclose()

    other = await EmbeddedStore.open(tmp_path, IndexIdentity("other", 8))

    assert await other.inventory() == {}
    await other.aclose()


async def test_the_event_loop_goes_on_while_much_is_written_and_read(tmp_path: Path) -> None:
    """Ticks of a neighbour keep coming: none of the work happens on the loop."""
    store = await EmbeddedStore.open(tmp_path, IDENTITY)
    many = [entry(f"t{i}", f"words of tool {i} " * 20) for i in range(500)]
    vectors = await EMBEDDER.embed_documents([e.tool_id for e in many])
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    neighbour = asyncio.create_task(tick())
    during = []
    for _ in range(5):  # the loop's thread may get no time while a busy machine gives it to the writer
        before = ticks
        await store.put(many, vectors)
        during.append(ticks - before)
    neighbour.cancel()
    await store.aclose()

    assert statistics.median(during) > 20, during
