"""The contract of a VectorShelf, and what is particular to the one in a file."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from toolcrib_registry.adapters.embedders.vector_file import FILE_NAME, VectorFile
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.index.document_vectors import MemoryShelf
from toolcrib_registry.search.vectors import VectorShelf

pytestmark = pytest.mark.anyio

MOST = 1 << 20
DIMENSION = 256


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def vector(number: int) -> Vector:
    return np.random.default_rng(number).standard_normal(DIMENSION).astype(np.float32)


@pytest.fixture(params=["memory", "file"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorShelf]:
    """Each shelf in turn, for a megabyte."""
    shelf: VectorShelf = MemoryShelf(MOST) if request.param == "memory" else VectorFile(tmp_path, MOST)
    yield shelf
    await shelf.aclose()


async def test_a_shelf_gives_back_bit_for_bit_what_was_put(shelf: VectorShelf) -> None:
    await shelf.put({key(i): vector(i) for i in range(20)})
    await shelf.put({key(3): vector(99)})

    found = await shelf.get([key(i) for i in (0, 3, 7, 1000)])

    assert set(found) == {key(0), key(3), key(7)}
    assert (found[key(7)] == vector(7)).all()
    assert (found[key(3)] == vector(99)).all()
    assert found[key(0)].dtype == np.float32


async def test_nothing_is_asked_and_nothing_is_kept(shelf: VectorShelf) -> None:
    await shelf.put({})

    assert await shelf.get([]) == {}


async def test_a_shelf_is_bounded_and_the_oldest_make_room(shelf: VectorShelf) -> None:
    for start in range(0, 2_000, 100):
        await shelf.put({key(i): vector(i) for i in range(start, start + 100)})

    held = await shelf.get([key(i) for i in range(2_000)])

    assert 300 < len(held) <= MOST / (DIMENSION * 4)
    assert {key(i) for i in range(1_900, 2_000)} <= held.keys()
    assert key(0) not in held


async def test_what_is_used_stays(tmp_path: Path) -> None:
    days = [0.0]
    file = VectorFile(tmp_path, MOST, clock=lambda: days[0])
    memory = MemoryShelf(MOST)
    for shelf in (file, memory):
        await shelf.put({key(i): vector(i) for i in range(200)})
    for _ in range(20):
        days[0] += 86_400
        for shelf in (file, memory):
            assert key(5) in await shelf.get([key(5)])
            await shelf.put({key(int(days[0]) + i): vector(i) for i in range(200)})

    for shelf in (file, memory):
        assert set(await shelf.get([key(5), key(6)])) == {key(5)}
    await file.aclose()


async def test_a_file_is_there_after_a_restart_and_nobody_elses_to_read(tmp_path: Path) -> None:
    first = VectorFile(tmp_path / "new", MOST)
    await first.put({key(1): vector(1)})
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new").iterdir()}
    await first.aclose()
    second = VectorFile(tmp_path / "new", MOST)

    assert (await second.get([key(1)]))[key(1)].tolist() == vector(1).tolist()
    assert FILE_NAME in modes
    assert set(modes.values()) == {0o600}
    await second.aclose()


async def test_a_file_that_is_no_database_is_recreated(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, by any means" * 100)
    file = VectorFile(tmp_path, MOST)

    await file.put({key(1): vector(1)})
    await file.put({key(2): vector(2)})

    assert set(await file.get([key(1), key(2)])) == {key(2)}
    await file.aclose()


async def test_a_vector_with_a_flipped_bit_is_not_given(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, MOST)
    await file.put({key(1): vector(1), key(2): vector(2)})
    await file.aclose()
    with sqlite3.connect(tmp_path / FILE_NAME) as damaged:
        data = bytearray(damaged.execute("SELECT vector FROM vectors WHERE key = ?", (key(1),)).fetchone()[0])
        data[17] ^= 4
        damaged.execute("UPDATE vectors SET vector = ? WHERE key = ?", (bytes(data), key(1)))
    damaged.close()
    file = VectorFile(tmp_path, MOST)

    assert set(await file.get([key(1), key(2)])) == {key(2)}
    await file.put({key(1): vector(1)})
    assert set(await file.get([key(1), key(2)])) == {key(1), key(2)}
    await file.aclose()


async def test_a_place_that_cannot_be_written_costs_nothing_but_the_keeping(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    file = VectorFile(tmp_path / "file" / "below", MOST)

    await file.put({key(1): vector(1)})

    assert await file.get([key(1)]) == {}
    os.unlink(tmp_path / "file")
    await file.put({key(1): vector(1)})
    assert set(await file.get([key(1)])) == {key(1)}
    await file.aclose()
    await file.put({key(1): vector(1)})
    assert await file.get([key(1)]) == {}
