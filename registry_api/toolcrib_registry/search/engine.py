"""Search for a caller: the view's entries, the cheap superset to push down, and the searcher."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from toolcrib.authorizer import granted_scopes
from toolcrib.identity import ScopesPolicy
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.policy.state import PolicyState, Sight
from toolcrib_registry.policy.view_cache import Content
from toolcrib_registry.search.answer_cache import Answers
from toolcrib_registry.search.entries import EntryCache
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.searcher import AskedMode, SearchAnswer, Searcher
from toolcrib_registry.search.visible import Visible

log = logging.getLogger(__name__)

_FEW = 32
"""Scopes or namespaces worth pushing down; a longer list costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a caller asks of a search, whatever protocol it came by; `Searcher.search` says what each means."""

    query: str = ""
    tags: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    limit: int = 10
    min_score: float | None = None
    top_k_servers: int | None = None
    mode: AskedMode = "hybrid"


class Searching:
    """Searches within one caller's sight."""

    def __init__(self, searcher: Searcher, entries: EntryCache, clock: Clock) -> None:
        self._searcher = searcher
        self._entries = entries
        self._clock = clock
        self._answers = Answers()
        self._views: WeakKeyDictionary[Content, Visible] = WeakKeyDictionary()

    async def search(self, sight: Sight, wanted: Wanted) -> SearchAnswer:
        """The best tools of `sight` for what is wanted; nothing outside it has any effect. Never fails for an outage.

        Raises:
            ModeUnavailable: the mode needs vectors and no embedder is configured.
        """
        view = self.entries_of(sight)
        return await self._answers.answer(
            view, wanted, lambda: self._searcher.state, lambda: self._search(sight, view, wanted)
        )

    async def _search(self, sight: Sight, view: Visible, wanted: Wanted) -> SearchAnswer:
        return await self._searcher.search(
            view,
            wanted.query,
            tags=wanted.tags,
            servers=wanted.servers,
            namespaces=wanted.namespaces,
            states=wanted.states,
            limit=wanted.limit,
            min_score=wanted.min_score,
            top_k_servers=wanted.top_k_servers,
            mode=wanted.mode,
            pushdown=self._pushdown(sight),
        )

    def entries_of(self, sight: Sight) -> Visible:
        """The visible tools as the index sees them."""
        content = sight.content
        known = self._views.get(content)
        if known is None:
            self._entries.keep(sight.snapshot.tools)
            known = Visible((i, self._entries.of(tool)) for i, tool in content.view.tools.items())
            self._views[content] = known
        return known

    def _pushdown(self, sight: Sight) -> Pushdown:
        identity = sight.identity
        if identity is None:
            return Pushdown()
        scopes = frozenset(granted_scopes(identity, sight.snapshot.policy, self._clock.now()))
        namespaces: frozenset[str] | None = frozenset()
        if identity.policy is ScopesPolicy.TOKEN:
            namespaces = None
        else:
            for binding in sight.snapshot.policy.bindings_of(identity):
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
        """Take in the words of every new snapshot ahead of the first search; ends when the service stops."""
        while not state.closing:
            changed = state.changed
            tools = state.snapshot.tools
            try:
                self._entries.keep(tools)
                await self._searcher.prepare(await asyncio.to_thread(self._all, list(tools.values())))
            except Exception:
                # searches take in what they lack; whatever it is, it must not end this for all later snapshots
                log.exception("the words of a snapshot were not taken in ahead of searches")
            await changed.wait()

    def _all(self, tools: list[PublishedTool]) -> list[IndexEntry]:
        return [self._entries.of(tool) for tool in tools if tool.active]

    def close(self) -> None:
        """Stop the searcher's threads."""
        self._searcher.close()
