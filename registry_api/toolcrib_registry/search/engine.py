"""Search for a caller: the view's entries, the cheap superset to push down, and the searcher."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from toolcrib.authorizer import granted_scopes
from toolcrib.identity import ScopesPolicy
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.policy.state import CallerView, PolicyState
from toolcrib_registry.policy.view_cache import Content
from toolcrib_registry.search.answer_cache import AnswerCache
from toolcrib_registry.search.entries import EntryCache
from toolcrib_registry.search.entry import IndexEntry, Pushdown, Vector
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Answer, Searcher
from toolcrib_registry.search.visible import AT_ONCE, Visible

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two looks for vectors that the store did not have. A search looks at once."""
_WHOLE_SECONDS = 60.0
"""After which a new snapshot is taken in whole. Until then only what has changed is: a search of an older view may
have put back what it ranks, and the ranker holds that until somebody searches the newer one."""
_FEW = 32
"""Scopes or namespaces worth pushing down; a longer list costs more than it saves."""


class SearchEngine:
    """Searches within one caller's view."""

    def __init__(self, searcher: Searcher, entries: EntryCache, clock: Clock) -> None:
        self._searcher = searcher
        self._entries = entries
        self._clock = clock
        self._answers = AnswerCache()
        self._views: WeakKeyDictionary[Content, Visible] = WeakKeyDictionary()
        self._making = asyncio.Lock()

    async def search(self, caller_view: CallerView, wanted: Wanted) -> Answer:
        """The best tools of `caller_view` for what is wanted; nothing outside it has any effect. Never fails for an outage.

        Raises:
            ModeUnavailable: the mode needs vectors and no embedder is configured.
        """
        view = await self.entries_of(caller_view)
        searcher = self._searcher
        return await self._answers.answer(
            view,
            wanted,
            lambda: searcher.state,
            lambda: searcher.search(view, wanted, self._pushdown(caller_view)),
        )

    async def entries_of(self, caller_view: CallerView) -> Visible:
        """The visible tools as the index sees them; those of a large view are made in a thread, one view at a time."""
        content = caller_view.content
        known = self._views.get(content)
        if known is not None:
            return known
        tools = content.view.tools

        def made() -> Visible:
            return Visible((tool.index_id, self._entries.of(tool)) for tool in tools.values())

        self._entries.keep(caller_view.snapshot.indexed)
        if len(tools) <= AT_ONCE:
            return self._views.setdefault(content, made())
        async with self._making:
            known = self._views.get(content)
            return known or self._views.setdefault(content, await asyncio.to_thread(made))

    def _pushdown(self, caller_view: CallerView) -> Pushdown:
        identity = caller_view.identity
        if identity is None:
            return Pushdown()
        scopes = frozenset(granted_scopes(identity, caller_view.snapshot.policy, self._clock.now()))
        namespaces: frozenset[str] | None = frozenset()
        if identity.policy is ScopesPolicy.TOKEN:
            namespaces = None
        else:
            for binding in caller_view.snapshot.policy.bindings_of(identity):
                if binding.namespaces is None or namespaces is None:
                    namespaces = None
                else:
                    namespaces |= frozenset(binding.namespaces)
        return Pushdown(
            scopes=scopes if len(scopes) <= _FEW else None,
            namespaces=namespaces if namespaces is not None and len(namespaces) <= _FEW else None,
            states=frozenset({"Active", "Deprecated"}),
        )

    async def follow(self, state: PolicyState) -> None:
        """Take in the words and vectors of every new snapshot ahead of searches; ends when the service stops."""
        before: Mapping[str, PublishedTool] | None = None
        whole_at = -math.inf
        while not state.closing:
            changed, snapshot = state.changed, state.snapshot
            try:
                self._entries.keep(snapshot.indexed)
                now = self._clock.elapsed()
                recent = now - whole_at < _WHOLE_SECONDS
                if before is None or not recent or not await self._step(before, snapshot):
                    await self._searcher.replace(await asyncio.to_thread(self._all, snapshot))
                    whole_at = now
                before = snapshot.indexed
                if await self._searcher.complete():
                    await self._complete(changed)
            except Exception:
                # searches take in what they lack; whatever it is, it must not end this for all later snapshots
                log.exception("the search index could not prepare a snapshot ahead of searches")
                before = None
            await changed.wait()

    async def _step(self, before: Mapping[str, PublishedTool], snapshot: Snapshot) -> bool:
        """Take in what differs from `before`; False: more than that is other than it should be."""
        entries, gone = await asyncio.to_thread(self._differing, before, snapshot.indexed)
        count = snapshot.active_tools + sum(tool.active for tool in snapshot.trials.values())
        return await self._searcher.update(entries, gone, count=count) == count

    async def _complete(self, changed: asyncio.Event) -> None:
        """Fetch vectors as the store gets them, until all are here or there is another snapshot."""
        pause, lacking = _FIRST_PAUSE, True
        while lacking and not changed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)
            lacking = await self._searcher.complete()

    async def learn(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """The vectors of `entries` were put into the store by this replica."""
        await self._searcher.learn(entries, vectors)

    def _all(self, snapshot: Snapshot) -> list[IndexEntry]:
        return [self._entries.of(tool) for tool in snapshot.indexed.values() if tool.active]

    def _differing(
        self, before: Mapping[str, PublishedTool], after: Mapping[str, PublishedTool]
    ) -> tuple[list[IndexEntry], list[str]]:
        """The entries of tools that are other objects than before, and the ids of those that are searched no more."""
        other = [tool for i, tool in after.items() if before.get(i) is not tool]
        gone = [tool.index_id for tool in other if not tool.active]
        if len(before) + sum(tool.index_id not in before for tool in other) != len(after):
            gone += before.keys() - after.keys()
        return [self._entries.of(tool) for tool in other if tool.active], gone

    def close(self) -> None:
        """Stop the searcher's threads."""
        self._searcher.close()
