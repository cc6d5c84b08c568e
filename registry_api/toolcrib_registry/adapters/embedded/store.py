"""The catalog store without a server: a durable file, of which nothing is held in memory.

Every row is read and checked at the start (10,000 tools: 0.1 s); a write is on disk before the call returns. SQLite runs in
a thread, never on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from toolcrib_registry.adapters.embedded.file import IndexFile, StoredEntry, move_aside
from toolcrib_registry.search.entry import (
    IndexEntry,
    IndexIdentity,
    Pushdown,
    Stored,
    Vector,
    cosines,
)
from toolcrib_registry.search.errors import StoreDamaged, StoreUnavailable, brief

log = logging.getLogger(__name__)

FILE_NAME = "search-index.sqlite"
_COMPARED = 1_000
"""Vectors that are compared at a time."""
_T = TypeVar("_T")


class EmbeddedStore:
    """A `CatalogStore` in this process. Open it with `await EmbeddedStore.open(folder, identity)`."""

    def __init__(self, path: Path, identity: IndexIdentity) -> None:
        self._path = path
        self._identity = identity
        self._file: IndexFile | None = None
        self._closed = False
        self._disk = ThreadPoolExecutor(1, "index-disk")
        self.damage: tuple[str, ...] = ()
        """What was found damaged and moved aside or dropped since this object was made, one sentence each."""

    @classmethod
    async def open(cls, folder: Path, identity: IndexIdentity) -> EmbeddedStore:
        """Open or create the index in `folder` (made with mode 0700). A damaged file is moved aside.

        Raises:
            StoreUnavailable: another process has it, or the folder cannot be used.
        """
        store = cls(folder / FILE_NAME, identity)
        try:
            await store._on_disk(store._open)
        except BaseException:
            await store.aclose()
            raise
        return store

    @property
    def identity(self) -> IndexIdentity:
        """What was given at the opening."""
        return self._identity

    async def get(self, ids: Collection[str]) -> list[Stored]:
        """Read them from the file."""
        wanted = list(ids)
        return await self._on_disk(lambda: list(_stored(self._opened().read(wanted))))

    async def put(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Write to disk."""
        given = self._identity.checked(len(entries), vectors)
        await self._on_disk(lambda: self._opened().write(entries, given))

    async def remove(self, ids: Collection[str]) -> None:
        """Delete from disk."""
        wanted = list(ids)
        await self._on_disk(lambda: self._opened().delete(wanted))

    async def inventory(self) -> dict[str, str]:
        """Tool id to digest of everything in the file."""
        return await self._on_disk(lambda: self._opened().digests())

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """Read them back from the file."""
        wanted = list(ids)
        return await self._on_disk(lambda: self._opened().digests(wanted))

    async def nearest(self, vectors: Vector, limit: int, within: Pushdown) -> list[Stored]:
        """Read all of the file: half a second for 10,000 tools."""
        return await self._on_disk(lambda: _nearest(self._opened().read(), vectors, limit, within))

    async def tidy(self) -> list[str]:
        """Nothing to do: the file holds one identity."""
        return []

    async def healthy(self) -> None:
        """Read from the file."""
        await self._on_disk(lambda: self._opened().check())

    async def aclose(self) -> None:
        """Wait for the write in progress, fold the log into the file and let go of it."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._disk, self._close)
        self._disk.shutdown(wait=False)

    # What follows runs in threads.

    def _open(self) -> None:
        try:
            self._load(IndexFile.open(self._path, self._identity))
        except StoreDamaged as error:
            self._start_empty(error)

    def _start_empty(self, error: StoreDamaged) -> None:
        self._close()
        try:
            aside = move_aside(self._path)
        except OSError as failed:
            raise StoreUnavailable(f"{error}; it cannot be moved aside: {brief(failed)}") from failed
        self.damage = (*self.damage, f"{error}; moved to {aside.name}")
        log.error("search index: %s; moved to %s, starting empty", error, aside.name)
        self._file = IndexFile.open(self._path, self._identity)

    def _load(self, file: IndexFile) -> None:
        try:
            bad = [row for row in file.read() if isinstance(row, str)]
        except BaseException:
            file.close()
            raise
        self._file = file
        if bad:
            file.delete(bad)
            self.damage = (*self.damage, f"{len(bad)} damaged entries dropped, first {bad[0]}")
            log.error("search index: %d damaged entries dropped", len(bad))

    def _opened(self) -> IndexFile:
        if self._file is None and not self._closed:
            # a damaged file was moved aside when no other could be made, on a full disk for one
            self._load(IndexFile.open(self._path, self._identity))
            log.warning("search index: the file %s is open again", self._path.name)
        if self._file is None:
            raise StoreUnavailable("the index is closed")
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _on_disk(self, work: Callable[[], _T]) -> _T:
        def guarded() -> _T:
            try:
                return work()
            except StoreDamaged as error:
                self._start_empty(error)
                raise

        if self._closed:
            raise StoreUnavailable("the index is closed")
        return await asyncio.get_running_loop().run_in_executor(self._disk, guarded)


def _stored(rows: Iterator[StoredEntry | str]) -> Iterator[Stored]:
    for row in rows:
        if isinstance(row, StoredEntry) and row.vector is not None:
            yield Stored(row.entry.tool_id, row.entry.digest, row.vector)


def _nearest(
    rows: Iterator[StoredEntry | str], vectors: Vector, limit: int, within: Pushdown
) -> list[Stored]:
    admitted = _stored(r for r in rows if isinstance(r, StoredEntry) and within.admits(r.entry))
    best: list[tuple[float, str, Stored]] = []
    while part := list(itertools.islice(admitted, _COMPARED)):
        near = np.max(cosines(np.stack([s.vector for s in part]), list(vectors)), axis=0)
        found = ((-n, s.tool_id, s) for n, s in zip(near.tolist(), part, strict=True))
        best = heapq.nsmallest(max(0, limit), itertools.chain(best, found), key=lambda b: b[:2])
    return [s for _, _, s in best]
