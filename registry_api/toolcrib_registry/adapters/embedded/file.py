"""The file behind the embedded store: definitions, digests and vectors in SQLite, synchronous and single-threaded.

One file, mode 0600, write-ahead log, `synchronous=FULL`: what `write` returned from survives `kill -9` and a power
cut. The file is held with an exclusive lock, so a second process is told instead of being let in. Each row carries
a checksum: SQLite's own check sees damaged pages, not a flipped bit inside a value.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Vector
from toolcrib_registry.search.errors import StoreDamaged, StoreUnavailable, brief

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    tool_id TEXT PRIMARY KEY,
    identity TEXT NOT NULL,
    digest TEXT NOT NULL,
    definition BLOB NOT NULL,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID
"""
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_BUSY_SECONDS = 1.0
_ROWS = "SELECT tool_id, digest, definition, vector, checksum FROM entries"
_DIGESTS = "SELECT tool_id, digest FROM entries"
_OF_THESE = " WHERE tool_id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One row: an entry and its vector (None in an index without vectors)."""

    entry: IndexEntry
    vector: Vector | None


class IndexFile:
    """An open index file. Use it from one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, identity: IndexIdentity) -> None:
        self._connection = connection
        self._identity = identity

    @classmethod
    def open(cls, path: Path, identity: IndexIdentity) -> IndexFile:
        """Open or create `path`; rows of another identity are dropped.

        Raises:
            StoreDamaged: the file is no intact database (it is still where it was: see `move_aside`).
            StoreUnavailable: another process has it, or it cannot be read or written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # created before SQLite sees it: the journal files take over its mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
            connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"the index file cannot be opened: {brief(error)}") from error
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            # pages are read once and written rarely; a small cache also sees damage sooner
            connection.execute("PRAGMA cache_size = -256")
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != ("ok",):
                raise StoreDamaged(f"the index file fails its check: {verdict and verdict[0]}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute("DELETE FROM entries WHERE identity != ?", (identity.key,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            connection.close()
            raise _translated(error) from error
        except StoreDamaged:
            connection.close()
            raise
        return cls(connection, identity)

    def read(self, ids: Sequence[str] | None = None) -> Iterator[StoredEntry | str]:
        """Every row, or those of `ids`; a row that does not match its checksum comes as its bare tool id."""
        return (self._decoded(*row) for row in self._rows(_ROWS, ids))

    def digests(self, ids: Sequence[str] | None = None) -> dict[str, str]:
        """Tool id to digest of every row, or of those of `ids`."""
        return dict(self._rows(_DIGESTS, ids))

    def _rows(self, statement: str, ids: Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
        try:
            if ids is None:
                yield from self._connection.execute(statement)
            else:
                yield from self._connection.execute(statement + _OF_THESE, (json.dumps(ids),))
        except sqlite3.Error as error:
            raise _translated(error) from error

    def write(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Put `entries` in, in one transaction: all are durable on return, or none is."""
        rows = []
        for i, entry in enumerate(entries):
            definition = json.dumps(entry.to_json(), separators=(",", ":")).encode()
            vector = b"" if vectors is None else vectors[i].astype("<f4").tobytes()
            checksum = _checksum(entry.tool_id, entry.digest, definition, vector)
            rows.append((entry.tool_id, self._identity.key, entry.digest, definition, vector, checksum))
        self._transaction("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)

    def delete(self, ids: Iterable[str]) -> None:
        """Take `ids` out, in one transaction."""
        self._transaction("DELETE FROM entries WHERE tool_id = ?", [(i,) for i in ids])

    def check(self) -> None:
        """Raise if the file cannot be read now."""
        try:
            self._connection.execute("SELECT 1 FROM entries LIMIT 1").fetchone()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Fold the log into the file and let go of it."""
        self._connection.close()

    def _transaction(self, statement: str, rows: Sequence[tuple[object, ...]] | None) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if rows is None:
                    self._connection.execute(statement)
                else:
                    self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _decoded(
        self, tool_id: str, digest: str, definition: bytes, vector: bytes, checksum: int
    ) -> StoredEntry | str:
        try:
            if checksum != _checksum(tool_id, digest, definition, vector):
                return tool_id
            entry = IndexEntry.from_json(json.loads(definition))
            numbers: Vector | None = None
            if self._identity.dimension:
                numbers = np.frombuffer(vector, "<f4").astype(np.float32)
                if len(numbers) != self._identity.dimension:
                    return tool_id
        except (TypeError, KeyError, ValueError):
            return tool_id
        return StoredEntry(entry, numbers)


def move_aside(path: Path) -> Path:
    """Rename a damaged index file and its journals, so that a new one can be made; the new name is returned."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for suffix in _SUFFIXES:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(target.with_name(target.name + suffix))
    return target


def _checksum(tool_id: str, digest: str, definition: bytes, vector: bytes) -> int:
    return zlib.crc32(
        vector, zlib.crc32(definition, zlib.crc32(f"{tool_id}\0{digest}\0".encode("utf-8", "replace")))
    )


def _translated(error: sqlite3.Error) -> StoreDamaged | StoreUnavailable:
    # OperationalError: locked, full, unreadable, an I/O error. A bare DatabaseError: "malformed", "not a database".
    if isinstance(error, sqlite3.OperationalError):
        if "locked" in str(error):
            return StoreUnavailable("the index file is in use by another process")
        return StoreUnavailable(f"the index file cannot be used: {brief(error)}")
    return StoreDamaged(f"the index file is damaged: {brief(error)}")
