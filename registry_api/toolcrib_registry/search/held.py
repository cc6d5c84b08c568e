"""Whether a store holds all of a view: until then a search completes its answer with what the store lacks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.visible import ids_of

_VIEWS = 1024


class Held:
    """Remembers by the view what a store said, until the store changes."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._known: dict[int, tuple[weakref.ref[frozenset[str]], int, bool]] = {}

    async def whole(self, view: Mapping[str, IndexEntry]) -> bool:
        """Whether a search of the store can find every tool of `view` in its version; about 3 ms for 10,000, once.

        Raises:
            StoreError: the store cannot answer.
        """
        ids, state = ids_of(view), self._store.state
        known = self._known.get(id(ids))
        if known is not None and known[0]() is ids and known[1] == state:
            return known[2]
        held = await self._store.confirm(ids)
        whole = all(held.get(tool_id) == entry.digest for tool_id, entry in view.items())
        if state is not None:
            if len(self._known) >= _VIEWS:
                self._known = {}
            self._known[id(ids)] = weakref.ref(ids), state, whole
        return whole
