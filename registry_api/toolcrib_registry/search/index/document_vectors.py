"""The vectors of tools to be indexed: no text is embedded twice, whatever happens to the tool or to the index.

A vector belongs to a text, so it is looked up by the text's hash: tags, scopes, states and ids may change, tools may
go and come back, the index may be wiped. What this process never embedded may still lie in the index under the tool's
former version; it is taken from there if that version's texts were the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolcrib_registry.search.document import combined, dense_texts
from toolcrib_registry.search.entry import IndexEntry, Stored, Vector
from toolcrib_registry.search.errors import EmbedderRefused, EmbedderUnavailable, StoreError, brief
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder, VectorShelf

_CHUNK = 64
"""Texts embedded between two visits to the shelf: what is made is kept even if a later chunk fails."""


class MemoryShelf:
    """Keeps the latest vectors in memory, `most_bytes` of them at most."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._held: OrderedDict[bytes, Vector] = OrderedDict()

    async def get(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Those of `keys` that are held."""
        found = {k: self._held[k] for k in keys if k in self._held}
        for key in found:
            self._held.move_to_end(key)
        return found

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep `vectors`; the longest unused make room."""
        for key, vector in vectors.items():
            if (old := self._held.pop(key, None)) is not None:
                self._bytes -= old.nbytes
            self._held[key] = vector
            self._bytes += vector.nbytes
        while self._bytes > self._most:
            self._bytes -= self._held.popitem(last=False)[1].nbytes

    async def aclose(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class Made:
    """What could be made of some entries."""

    entries: list[IndexEntry]
    """Those that have a vector, as far as there are vectors at all."""
    vectors: Vector | None
    """One row each; None where the embedder has no dimension."""
    refused: dict[str, str] = field(default_factory=dict)
    """Tool id to why the embedder takes its text never."""
    embedded: int = 0
    """Tools for which the embedder was asked."""
    reused: int = 0
    """Tools whose vectors were there."""

    def of(self, ids: Collection[str]) -> tuple[list[IndexEntry], Vector | None]:
        """The entries of `ids` alone, with their vectors."""
        rows = [i for i, entry in enumerate(self.entries) if entry.tool_id in ids]
        return [self.entries[i] for i in rows], None if self.vectors is None else self.vectors[rows]


class DocumentVectors:
    """Makes the vectors of entries with as little embedding as possible."""

    def __init__(self, embedder: Embedder, shelf: VectorShelf, store: CatalogStore) -> None:
        self._embedder = embedder
        self._shelf = shelf
        self._store = store
        self._stored: dict[str, tuple[str, bytes]] = {}
        """Tool id to the digest that the store confirmed and the hash of that version's texts."""

    async def remember(self, entries: Sequence[IndexEntry], forget: Collection[str] = ()) -> None:
        """`entries` are in the store as they are; nothing is known of `forget` any more."""
        for tool_id in forget:
            self._stored.pop(tool_id, None)
        known = self._stored
        new = [e for e in entries if known.get(e.tool_id, ("",))[0] != e.digest]
        if not new or not self._embedder.dimension:
            return
        known.update(await asyncio.to_thread(lambda: {e.tool_id: (e.digest, self._whole(e)) for e in new}))

    async def of(self, entries: Sequence[IndexEntry]) -> Made:
        """The vectors of `entries`.

        Raises:
            EmbedderUnavailable: some could not be made now. What was made is kept, so a repetition goes on from there.
        """
        if not entries or not self._embedder.dimension:
            return Made(list(entries), None)
        keyed = await asyncio.to_thread(self._keyed, entries)
        texts = {key: text for of_tool in keyed for key, text in of_tool.items()}
        found = await self._shelf.get(texts.keys())
        whole = await self._from_store(entries, [k.keys() <= found.keys() for k in keyed])
        missing = {
            key: texts[key]
            for entry, of_tool in zip(entries, keyed, strict=True)
            if entry.tool_id not in whole
            for key in of_tool
            if key not in found
        }
        refused: dict[bytes, str] = {}
        made = await self._embed(missing, refused)
        result = Made([], None)
        rows: list[Vector] = []
        found |= made
        for entry, of_tool in zip(entries, keyed, strict=True):
            why = next((refused[k] for k in of_tool if k in refused), None)
            if why is not None and entry.tool_id not in whole:
                result.refused[entry.tool_id] = why
                continue
            result.embedded += entry.tool_id not in whole and not of_tool.keys().isdisjoint(made)
            row = whole.get(entry.tool_id)
            rows.append(combined(np.stack([found[k] for k in of_tool])) if row is None else row)
            result.entries.append(entry)
        result.reused = len(rows) - result.embedded
        result.vectors = np.stack(rows) if rows else np.zeros((0, self._embedder.dimension), np.float32)
        return result

    async def _embed(self, texts: Mapping[bytes, str], refused: dict[bytes, str]) -> dict[bytes, Vector]:
        made: dict[bytes, Vector] = {}
        keys = list(texts)
        for start in range(0, len(keys), _CHUNK):
            chunk = await self._chunk({k: texts[k] for k in keys[start : start + _CHUNK]}, refused)
            await self._shelf.put(chunk)
            made |= chunk
        return made

    async def _chunk(self, texts: Mapping[bytes, str], refused: dict[bytes, str]) -> dict[bytes, Vector]:
        keys = list(texts)
        try:
            vectors = await self._embedder.embed_documents([texts[k] for k in keys])
        except EmbedderRefused as error:
            if not refused:
                await self._blame_texts(error)
            if len(keys) == 1:
                refused[keys[0]] = f"the embedder rejects its text: {brief(error)}"
                return {}
            half = len(keys) // 2
            first = await self._chunk({k: texts[k] for k in keys[:half]}, refused)
            return first | await self._chunk({k: texts[k] for k in keys[half:]}, refused)
        # copies: a row would keep the whole matrix alive
        return {key: vector.copy() for key, vector in zip(keys, vectors, strict=True)}

    async def _blame_texts(self, refusal: EmbedderRefused) -> None:
        """Return if the embedder takes a harmless text: else the texts are not to blame for `refusal`.

        Raises:
            EmbedderUnavailable: it takes nothing.
        """
        try:
            await self._embedder.embed_documents(["tool"])
        except EmbedderRefused:
            raise EmbedderUnavailable(str(refusal)) from refusal

    async def _from_store(self, entries: Sequence[IndexEntry], complete: Sequence[bool]) -> dict[str, Vector]:
        """Vectors that the store holds of former versions of `entries` with the same texts."""
        same = {
            e.tool_id: self._stored[e.tool_id][0]
            for e, done in zip(entries, complete, strict=True)
            if not done and e.tool_id in self._stored and self._stored[e.tool_id][1] == self._whole(e)
        }
        found: list[Stored] = []
        if same:
            with contextlib.suppress(StoreError):  # the write that follows meets it again
                found = await self._store.get(same)
        return {s.tool_id: s.vector for s in found if s.digest == same.get(s.tool_id)}

    def _keyed(self, entries: Sequence[IndexEntry]) -> list[dict[bytes, str]]:
        """Of each entry: key to text, in the order of its texts."""
        return [{self._key(t): t for t in dense_texts(e)} for e in entries]

    def _key(self, text: str) -> bytes:
        head = f"{self._embedder.name}\0{self._embedder.dimension}\0"
        return hashlib.sha256((head + text).encode("utf-8", "surrogatepass")).digest()

    def _whole(self, entry: IndexEntry) -> bytes:
        return hashlib.sha256(b"".join(self._key(t) for t in dense_texts(entry))).digest()
