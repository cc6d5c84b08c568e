"""The catalog store without a server: exact ranking in memory over a durable file.

Everything is loaded at the start (about 0.3 ms a tool) and searched in memory; a write is on disk before it is in
memory and before the call returns. SQLite and the ranking run in threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from toolcrib_registry.adapters.embedded.file import IndexFile, StoredEntry, move_aside
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import (
    IndexEntry,
    IndexIdentity,
    StoreHit,
    StoreQuery,
    Vector,
    cosines,
)
from toolcrib_registry.search.errors import StoreDamaged, StoreUnavailable, brief
from toolcrib_registry.search.ranking import DENSE_WEIGHT, RankingIndex

log = logging.getLogger(__name__)

FILE_NAME = "search-index.sqlite"
_T = TypeVar("_T")


class EmbeddedStore:
    """A `CatalogStore` in this process. Open it with `await EmbeddedStore.open(folder, identity)`."""

    exact = True

    def __init__(self, path: Path, identity: IndexIdentity) -> None:
        self._path = path
        self._identity = identity
        self._index = RankingIndex(identity.dimension)
        self._lock = threading.Lock()
        self._file: IndexFile | None = None
        self._closed = False
        self._disk = ThreadPoolExecutor(1, "index-disk")
        self._search = ThreadPoolExecutor(2, "index-search")
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

    @property
    def state(self) -> int | None:
        """The version of the index that searches read: nobody else writes to it."""
        return self._index.version

    async def inventory(self) -> dict[str, str]:
        """Tool id to digest of everything in the index."""
        return await self._in_memory(lambda: {e.tool_id: e.digest for e in self._index.entries()})

    async def upsert(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Write to disk, then into the index."""
        given = self._identity.checked(len(entries), vectors)

        def write() -> None:
            documents = [document(e) for e in entries]
            self._opened().write(entries, given)
            with self._lock:
                for i, doc in enumerate(documents):
                    self._index.put(doc, None if given is None else given[i])

        await self._on_disk(write)

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """Ask the index that searches read."""

        def read() -> dict[str, str]:
            found = (self._index.get(i) for i in ids)
            return {e.tool_id: e.digest for e in found if e is not None}

        return await self._in_memory(read)

    async def remove(self, ids: Collection[str]) -> None:
        """Delete from disk, then from the index."""
        wanted = list(ids)

        def delete() -> None:
            self._opened().delete(wanted)
            with self._lock:
                for tool_id in wanted:
                    self._index.discard(tool_id)

        await self._on_disk(delete)

    async def search(self, query: StoreQuery) -> list[StoreHit]:
        """Rank exactly what the query admits; 1 ms for 3,000 tools."""
        if query.mode == "nearest":
            return await self._in_memory(lambda: self._nearest(query))
        vector = None if query.mode == "lexical" else query.vector
        weight = 1.0 if query.mode == "dense" else DENSE_WEIGHT

        def work() -> list[StoreHit]:
            ranked = self._index.rank(
                query.text,
                vector,
                self._admitted(query),
                limit=query.limit,
                dense_weight=weight,
                parts=query.parts,
            )
            return [StoreHit(r.entry.tool_id, r.entry.digest, r.score, r.lexical, r.dense) for r in ranked]

        return await self._in_memory(work)

    async def vectors(self, ids: Collection[str]) -> dict[str, tuple[str, Vector]]:
        """Copies of the vectors held."""

        def read() -> dict[str, tuple[str, Vector]]:
            found = {}
            for tool_id in ids:
                entry, vector = self._index.get(tool_id), self._index.vector(tool_id)
                if entry is not None and vector is not None:
                    found[tool_id] = (entry.digest, vector)
            return found

        return await self._in_memory(read)

    async def tidy(self) -> list[str]:
        """Nothing to do: the file holds one identity."""
        return []

    async def wipe(self) -> None:
        """Empty the file and the index."""

        def work() -> None:
            self._opened().wipe()
            with self._lock:
                self._index.clear()

        await self._on_disk(work)

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
        self._search.shutdown(wait=False)

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
        with self._lock:
            self._index.clear()
        self._file = IndexFile.open(self._path, self._identity)

    def _load(self, file: IndexFile) -> None:
        bad = []
        with self._lock:
            # not another index: what it calls its versions would come again
            self._index.clear()
        try:
            for row in file.read():
                if isinstance(row, StoredEntry):
                    doc = document(row.entry)
                    with self._lock:
                        self._index.put(doc, row.vector)
                else:
                    bad.append(row)
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

    def _admitted(self, query: StoreQuery) -> Collection[str]:
        if query.ids is not None and not query.tags and not query.servers:
            return query.ids
        if query.ids is not None:
            found = (self._index.get(i) for i in query.ids)
            return [e.tool_id for e in found if e is not None and query.admits(e)]
        return [e.tool_id for e in self._index.entries() if query.admits(e)]

    def _nearest(self, query: StoreQuery) -> list[StoreHit]:
        """For callers that treat every store alike: `rank` needs no candidates."""
        admitted = ((e, self._index.vector(i)) for i in self._admitted(query) if (e := self._index.get(i)))
        held = [(e, v) for e, v in admitted if v is not None]
        if not held or query.vector is None:
            return []
        vectors = np.stack([v for _, v in held])
        found = [
            StoreHit(e.tool_id, e.digest, max(c), None, c[0], tuple(c[1:]), v)
            for (e, v), c in zip(held, cosines(vectors, query), strict=True)
        ]
        return sorted(found, key=lambda h: (-h.score, h.tool_id))[: max(0, query.limit)]

    async def _on_disk(self, work: Callable[[], _T]) -> _T:
        def guarded() -> _T:
            try:
                return work()
            except StoreDamaged as error:
                self._start_empty(error)
                raise

        return await self._run(self._disk, guarded)

    async def _in_memory(self, work: Callable[[], _T]) -> _T:
        def guarded() -> _T:
            with self._lock:
                return work()

        return await self._run(self._search, guarded)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        if self._closed:
            raise StoreUnavailable("the index is closed")
        return await asyncio.get_running_loop().run_in_executor(pool, work)
