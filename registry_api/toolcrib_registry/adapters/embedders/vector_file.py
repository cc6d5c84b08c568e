"""Vectors of texts in a SQLite file, so that they outlive the process and the search index.

Nothing depends on it: whatever goes wrong with the file is logged once and costs an encoding, never an answer. A
file that is damaged is deleted; each row carries a checksum. The longest unused vectors make room for new ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import brief

log = logging.getLogger(__name__)

FILE_NAME = "vectors.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL, day INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_day ON vectors (day);
"""
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_BUSY_SECONDS = 1.0
_EVICT = "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY day, rowid LIMIT ?)"
_DAY = 86_400
_T = TypeVar("_T")


class VectorFile:
    """A `VectorShelf` in a file of at most about `most_bytes`. Making one opens nothing."""

    def __init__(self, folder: Path, most_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / FILE_NAME
        self._most = most_bytes
        self._clock = clock
        self._trouble = Trouble(log)
        self._connection: sqlite3.Connection | None = None
        self._disk = ThreadPoolExecutor(1, "vectors-disk")
        self._closed = False

    async def get(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Those of `keys` that are held; nothing while the file cannot be read."""
        wanted = list(keys)
        return await self._run(lambda file: self._get(file, wanted), {})

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep `vectors`, if the file can be written."""
        if vectors:
            await self._run(lambda file: self._put(file, vectors), None)

    async def aclose(self) -> None:
        """Fold the log into the file and let go of it."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._disk, self._close)
        self._disk.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        if self._closed:
            return otherwise
        return await asyncio.get_running_loop().run_in_executor(self._disk, self._tried, work, otherwise)

    # What follows runs in the thread.

    def _tried(self, work: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        try:
            if self._connection is None:
                self._connection = self._open()
            done = work(self._connection)
        except (OSError, sqlite3.Error) as error:
            self._trouble.failed("vectors are not being saved: %s", brief(error))
            self._close()
            if _damaged(error):
                for suffix in _SUFFIXES:
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return otherwise
        self._trouble.over("vectors are being saved again")
        return done

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # created before SQLite sees it: the journal files take over its mode
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._path.chmod(0o600)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # what a power cut takes is made again
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def _get(self, file: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, Vector]:
        found: dict[bytes, Vector] = {}
        today = int(self._clock() // _DAY)
        stale = []
        for key in keys:
            row = file.execute("SELECT vector, checksum, day FROM vectors WHERE key = ?", (key,)).fetchone()
            if row is not None and zlib.crc32(key + row[0]) == row[1] and len(row[0]) % 4 == 0:
                found[key] = np.frombuffer(row[0], "<f4").astype(np.float32)
                if row[2] != today:
                    stale.append((today, key))
        if stale:
            _transaction(file, "UPDATE vectors SET day = ? WHERE key = ?", stale)
        return found

    def _put(self, file: sqlite3.Connection, vectors: Mapping[bytes, Vector]) -> None:
        today = int(self._clock() // _DAY)
        rows = []
        for key, vector in vectors.items():
            data = vector.astype("<f4").tobytes()
            rows.append((key, data, zlib.crc32(key + data), today))
        _transaction(file, "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
        self._make_room(file)

    def _make_room(self, file: sqlite3.Connection) -> None:
        pages, free, size = (
            int(file.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size <= self._most:
            return
        # a tenth at once: this is not done again for every batch
        share = 1.0 - 0.9 * self._most / ((pages - free) * size)
        count = int(file.execute("SELECT count(*) FROM vectors").fetchone()[0])
        _transaction(file, _EVICT, [(max(1, int(count * share)),)])

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _transaction(file: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    file.execute("BEGIN IMMEDIATE")
    try:
        file.executemany(statement, rows)
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise


def _damaged(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
