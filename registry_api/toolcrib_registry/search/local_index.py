"""The searcher's own index of the entries of the snapshot: words always, vectors where they were fetched.

It ranks what a store leaves short and answers while a store is away. It follows the views that it is asked about:
an entry that is new or changed is taken in at the next question. The work runs in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from toolcrib import process
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import IndexEntry, Part, Vector
from toolcrib_registry.search.ranking import DENSE_WEIGHT, Ranked, RankingIndex
from toolcrib_registry.search.visible import Visible, ids_of

_T = TypeVar("_T")
_VIEWS = 1024
_PART = 64
"""Entries taken in at a time: others may search in between."""
_TRIES = 3
"""How often a view is taken in while others may take in theirs; after that nobody comes in between."""


class LocalIndex:
    """A `RankingIndex` that follows the snapshot and never blocks the event loop."""

    def __init__(self, dimension: int) -> None:
        self._index = RankingIndex(dimension)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, "search-local")
        self._followed: dict[int, tuple[weakref.ref[Visible], int]] = {}
        """Views that were looked through, and the index's version at which it held all of each."""

    async def follow(self, entries: Collection[IndexEntry]) -> None:
        """Take in what is new or changed among `entries`; about 0.3 ms each."""
        await self._run(lambda: self._follow(entries))

    async def retain(self, ids: Collection[str]) -> None:
        """Forget everything but `ids`: to be called when tools were removed from the snapshot."""

        def work() -> None:
            keep = set(ids)
            with self._lock:
                for tool_id in [e.tool_id for e in self._index.entries() if e.tool_id not in keep]:
                    self._index.discard(tool_id)

        await self._run(work)

    async def rank(
        self,
        view: Mapping[str, IndexEntry],
        text: str,
        vector: Vector | None,
        limit: int,
        *,
        parts: Sequence[Part] = (),
        dense_weight: float = DENSE_WEIGHT,
        reach: float | None = None,
        absent: Collection[str] = (),
    ) -> list[Ranked]:
        """The exact ranking of `view`, with the vectors that are held: `RankingIndex.rank`."""

        def work() -> list[Ranked]:
            return self._index.rank(
                text,
                vector,
                ids_of(view),
                limit=limit,
                parts=parts,
                dense_weight=dense_weight,
                reach=reach,
                absent=absent,
            )

        return await self._run(lambda: self._of(view, work))

    async def fuse(
        self,
        view: Mapping[str, IndexEntry],
        text: str,
        cosines: Mapping[str, float],
        limit: int,
        *,
        parts: Sequence[Part] = (),
        part_cosines: Mapping[str, tuple[float, ...]] | None = None,
        dense_weight: float = DENSE_WEIGHT,
    ) -> list[Ranked]:
        """The ranking of `view` by its words and the cosines that a store told: `RankingIndex.fuse`."""

        def work() -> list[Ranked]:
            return self._index.fuse(
                text,
                cosines,
                ids_of(view),
                limit=limit,
                parts=parts,
                part_cosines=part_cosines,
                dense_weight=dense_weight,
            )

        return await self._run(lambda: self._of(view, work))

    async def without_vector(self, view: Mapping[str, IndexEntry]) -> list[str]:
        """Ids of `view` whose vectors are not held."""

        def work() -> list[str]:
            return self._index.without_vector(ids_of(view))

        return await self._run(lambda: self._of(view, work))

    async def learn(self, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Keep vectors: tool id to (digest, vector). Those of another digest than the entry's are ignored."""

        def work() -> None:
            with self._lock:
                for tool_id, (digest, vector) in vectors.items():
                    self._index.learn(tool_id, digest, vector)

        await self._run(work)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _of(self, view: Mapping[str, IndexEntry], answer: Callable[[], _T]) -> _T:
        """What `answer` gives while the entries of `view` are held, not those of another snapshot of the same tools."""
        for _ in range(_TRIES):
            complete = self._follow_view(view)
            with self._lock:
                if complete == self._index.version:
                    return answer()
        with self._lock:
            for entry in self._new(view.values()):
                self._index.put(document(entry))
            return answer()

    def _follow_view(self, view: Mapping[str, IndexEntry]) -> int | None:
        seen = self._followed.get(id(view))
        if seen is not None and seen[0]() is view and seen[1] == self._index.version:
            return seen[1]
        complete = self._follow(view.values())
        if complete is not None and isinstance(view, Visible):
            if len(self._followed) >= _VIEWS:
                self._followed = {}
            self._followed[id(view)] = weakref.ref(view), complete
        return complete

    def _new(self, entries: Iterable[IndexEntry]) -> list[IndexEntry]:
        held = self._index.get
        # identity first: a snapshot keeps the objects of what did not change
        return [e for e in entries if (own := held(e.tool_id)) is not e and own != e]

    def _follow(self, entries: Iterable[IndexEntry]) -> int | None:
        """Take in what is new; the index's version at which there was nothing new."""
        with self._lock:
            new = self._new(entries)
            if not new:
                return self._index.version
        for start in range(0, len(new), _PART):
            documents = [document(e) for e in new[start : start + _PART]]
            with self._lock:
                for doc in documents:
                    self._index.put(doc)
        process.heap.grown(len(new))
        return None

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
