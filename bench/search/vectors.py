"""Vectors by content: each text is encoded once a model, whichever set or run asks for it.

The file lies in the user's cache folder and may be deleted at any time. One file a model; those of models that were
not used for two weeks are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np

from toolcrib_registry.search.document import combined, dense_texts
from toolcrib_registry.search.entry import IndexEntry, Vector
from toolcrib_registry.search.vectors import Embedder

_KEPT_DAYS = 14
_CHUNK = 64
"""Texts encoded between two writes: what was done is there when a run is ended."""
_SAY_SECONDS = 10.0

Item = tuple[str, ...]
"""A document; or a request and its parts."""
Encode = Callable[[Embedder, Sequence[Item]], Awaitable[list[Vector]]]


def cache_folder() -> Path:
    """Where vectors are kept: `toolcrib/bench-vectors` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "toolcrib" / "bench-vectors"


class Remembered:
    """An `Embedder` in front of others of the same model, whose vectors are kept in a file.

    New documents are shared among `embedders`: two on two cores halve the time.
    """

    def __init__(self, embedders: Sequence[Embedder], folder: Path | None) -> None:
        """Keep vectors in `folder`; nowhere, if None."""
        self._embedders = embedders
        self.name = embedders[0].name
        self.dimension = embedders[0].dimension
        self._known: dict[bytes, Vector] = {}
        self._file = None if folder is None else _open(folder, self.name)
        self._said = time.monotonic()
        self.live = False
        """Set it to encode anew, as a registry does that is asked for the first time: to measure time."""

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """The kept rows of a request and its parts, else new ones."""
        if self.live:
            return await self._embedders[0].embed_request(texts)
        return (await self.embed_requests([texts]))[0]

    async def embed_requests(self, requests: Sequence[Sequence[str]]) -> list[Vector]:
        """The rows of each of `requests`: the whole and its parts."""

        async def make(embedder: Embedder, items: Sequence[Item]) -> list[Vector]:
            return [await embedder.embed_request(item) for item in items]

        return await self._of("q", [tuple(r) for r in requests], make)

    async def embed_queries(self, texts: Sequence[str]) -> Vector:
        """The vectors of requests as wholes, as rows."""
        return self._rows(await self.embed_requests([[t] for t in texts]))

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """The kept vectors of documents, as rows; new ones are made."""
        if self.live:
            return await self._embedders[0].embed_documents(texts)

        async def make(embedder: Embedder, items: Sequence[Item]) -> list[Vector]:
            rows = await embedder.embed_documents([i[0] for i in items])
            return [row[None] for row in rows]

        return self._rows(await self._of("d", [(t,) for t in texts], make))

    async def embed_tools(self, tools: Sequence[IndexEntry]) -> Vector:
        """A row for each of `tools`, made as the index makes it."""
        texts = [dense_texts(t) for t in tools]
        rows = await self.embed_documents([t for several in texts for t in several])
        made = np.zeros((len(tools), self.dimension), np.float32)
        start = 0
        for i, several in enumerate(texts):
            made[i] = combined(rows[start : start + len(several)])
            start += len(several)
        return made

    async def aclose(self) -> None:
        """Close the file and the embedders."""
        if self._file is not None:
            self._file.close()
        for embedder in self._embedders:
            await embedder.aclose()

    def _rows(self, made: Sequence[Vector]) -> Vector:
        return np.concatenate(made) if made else np.zeros((0, self.dimension), np.float32)

    async def _of(self, kind: str, items: Sequence[Item], encode: Encode) -> list[Vector]:
        if not self.dimension:
            return [np.zeros((len(i), 0), np.float32) for i in items]
        keys = [
            hashlib.blake2b(f"{kind}:{chr(0).join(i)}".encode("utf-8", "replace"), digest_size=16).digest()
            for i in items
        ]
        self._load([k for k in dict.fromkeys(keys) if k not in self._known])
        pairs = list({k: i for k, i in zip(keys, items, strict=True) if k not in self._known}.items())
        for start in range(0, len(pairs), _CHUNK):
            await self._make(pairs[start : start + _CHUNK], encode)
            if time.monotonic() - self._said > _SAY_SECONDS:
                self._said = time.monotonic()
                print(f"  encoding: {start + _CHUNK} of {len(pairs)} new texts", file=sys.stderr, flush=True)
        return [self._known[k] for k in keys]

    async def _make(self, pairs: Sequence[tuple[bytes, Item]], encode: Encode) -> None:
        shares = [pairs[i :: len(self._embedders)] for i in range(len(self._embedders))]
        work = [encode(e, [i for _, i in s]) for e, s in zip(self._embedders, shares, strict=True) if s]
        rows = await asyncio.gather(*work)
        made = {
            key: np.array(row, np.float32)
            for share, vectors in zip(shares, rows, strict=False)
            for (key, _), row in zip(share, vectors, strict=True)
        }
        self._known |= made
        if self._file is not None:
            # another run may be writing the same ones; a full disk is no reason to stop
            with contextlib.suppress(sqlite3.Error), self._file:
                self._file.executemany(
                    "INSERT OR IGNORE INTO vectors VALUES (?, ?)", [(k, v.tobytes()) for k, v in made.items()]
                )

    def _load(self, keys: Sequence[bytes]) -> None:
        if self._file is None:
            return
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ",".join("?" * len(part))
            with contextlib.suppress(sqlite3.Error):
                for key, data in self._file.execute(f"SELECT * FROM vectors WHERE key IN ({marks})", part):
                    if data and len(data) % (4 * self.dimension) == 0:
                        self._known[key] = np.frombuffer(data, np.float32).reshape(-1, self.dimension)


def _open(folder: Path, name: str) -> sqlite3.Connection | None:
    """The file of the model `name`; a damaged one is begun anew, and without a writable folder there is none."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.sqlite"):
            if time.time() - old.stat().st_mtime > _KEPT_DAYS * 86_400:
                old.unlink()
    path = folder / f"{''.join(c if c.isalnum() or c in '-._' else '-' for c in name)}.sqlite"
    for _ in range(2):
        try:
            file = sqlite3.connect(path, timeout=30)
            file.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
            )
            os.utime(path)
        except sqlite3.DatabaseError:
            with contextlib.suppress(OSError):
                path.unlink()
        except OSError:
            break
        else:
            return file
    print(f"  vectors are not being saved: {folder} cannot be written", file=sys.stderr)
    return None
