"""The one ranker of a replica: the words of its snapshot always, the vectors as they are brought from the store.

It follows the views that it is asked about: an entry that is new or changed is taken in at the next question. The work
runs in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

from toolcrib import process
from toolcrib_registry.search.document import document
from toolcrib_registry.search.entry import IndexEntry, Stored, Vector
from toolcrib_registry.search.question import Question
from toolcrib_registry.search.ranking import Ranked, RankingIndex
from toolcrib_registry.search.vector_table import RESIDENT_BYTES
from toolcrib_registry.search.visible import Visible, ids_of

_T = TypeVar("_T")
_VIEWS = 1024
_GONE = 1024
_PART = 64
"""Entries taken in at a time: others may search in between."""
_TRIES = 3
"""How often a view is taken in while others may take in theirs; after that nobody comes in between."""


class Ranker:
    """A `RankingIndex` that follows the snapshot and never blocks the event loop."""

    def __init__(self, dimension: int, resident_bytes: int = RESIDENT_BYTES) -> None:
        """For vectors of `dimension` numbers, holding at most `resident_bytes` of them."""
        self._index = RankingIndex(dimension, resident_bytes)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, "ranking")
        self._followed: dict[int, tuple[weakref.ref[Visible], int]] = {}
        """Views that were looked through, and the index's version at which it held all of each."""
        self._gone: set[str] = set()
        """What left the snapshot: a search of an older view takes it in for as long as it ranks."""

    async def follow(self, entries: Collection[IndexEntry]) -> None:
        """Take in what is new or changed among `entries`, but nothing that `retain` forgot; about 0.3 ms each."""

        def work() -> None:
            self._follow(entries)
            with self._lock:
                self._let_go(e.tool_id for e in entries)

        await self._run(work)

    async def retain(self, ids: Collection[str], *, with_vectors: bool = True) -> None:
        """Forget everything but `ids`: to be called when tools were removed from the snapshot."""

        def work() -> None:
            keep = set(ids)
            with self._lock:
                gone = [e.tool_id for e in self._index.entries() if e.tool_id not in keep]
                self._forget(gone, keep, with_vectors)

        await self._run(work)

    async def update(
        self, entries: Collection[IndexEntry], gone: Collection[str], *, with_vectors: bool = True
    ) -> int:
        """`retain` and `follow` where nothing differs but `entries` and `gone`; how many entries are held then."""

        def work() -> int:
            with self._lock:
                self._forget(gone, {e.tool_id for e in entries}, with_vectors)
            self._follow(entries)
            return len(self._index)

        return await self._run(work)

    @property
    def version(self) -> int:
        """Another one after every change of what a ranking rests on."""
        return self._index.version

    @property
    def complete(self) -> bool:
        """Whether every entry has its vector here."""
        return self._index.complete

    @property
    def room(self) -> int:
        """How many vectors can be held."""
        return self._index.room

    async def rank(
        self,
        question: Question,
        told: Mapping[str, Vector] = MappingProxyType({}),
        reach: float | None = None,
    ) -> list[Ranked]:
        """The ranking of the question's view by its words and all vectors that are known: `RankingIndex.rank`."""
        return await self._run(lambda: self._of(question.view, lambda: self._ranked(question, told, reach)))

    async def rank_whole(self, question: Question) -> tuple[list[Ranked], list[str]]:
        """The ranking, if all vectors of the question's view are here; else the ids of those that lack one."""

        def work() -> tuple[list[Ranked], list[str]]:
            lacking = self._index.without_vector(ids_of(question.view))
            return ([] if lacking else self._ranked(question, {}, None)), lacking

        return await self._run(lambda: self._of(question.view, work))

    async def lacking(self) -> dict[str, str]:
        """Tool id to digest of all entries without a vector."""

        def work() -> dict[str, str]:
            with self._lock:
                held = {e.tool_id: e.digest for e in self._index.entries()}
                return {i: held[i] for i in self._index.without_vector(held)}

        return await self._run(work)

    async def learn(self, stored: Iterable[Stored]) -> None:
        """Keep vectors. Those of another digest than the entry's are ignored."""

        def work() -> None:
            with self._lock:
                for one in stored:
                    self._index.learn(one.tool_id, one.digest, one.vector)

        await self._run(work)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, gone: Collection[str], there: Set[str], with_vectors: bool) -> None:
        """`gone` left the snapshot, and `there` are in it."""
        for tool_id in gone:
            self._index.discard(tool_id)
        # no search is older than the snapshots in which more tools than there are were removed
        known = self._gone if len(self._gone) <= max(len(self._index), len(there)) + _GONE else ()
        self._gone = {*known, *gone} - there
        if not with_vectors:
            self._index.unlearn()

    def _ranked(self, question: Question, told: Mapping[str, Vector], reach: float | None) -> list[Ranked]:
        return self._index.rank(
            question.text,
            question.vector,
            ids_of(question.view),
            limit=question.depth,
            dense_weight=question.dense_weight,
            parts=question.parts,
            told=told,
            reach=reach,
        )

    def _of(self, view: Mapping[str, IndexEntry], answer: Callable[[], _T]) -> _T:
        """What `answer` gives while the entries of `view` are held, not those of another snapshot of the same tools."""
        for _ in range(_TRIES):
            complete = self._follow_view(view)
            with self._lock:
                if complete == self._index.version:
                    return self._once(view, answer)
        with self._lock:
            for entry in self._new(view.values()):
                self._index.put(document(entry))
            return self._once(view, answer)

    def _once(self, view: Mapping[str, IndexEntry], answer: Callable[[], _T]) -> _T:
        try:
            return answer()
        finally:
            if self._gone:
                self._let_go(ids_of(view))

    def _let_go(self, ids: Iterable[str]) -> None:
        for tool_id in self._gone.intersection(ids):
            self._index.discard(tool_id)

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
                    # another search may have taken it in meanwhile
                    if self._index.get(doc.entry.tool_id) != doc.entry:
                        self._index.put(doc)
        process.heap.grown(len(new))
        return None

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
