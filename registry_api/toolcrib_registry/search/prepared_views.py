"""The views that were asked about lately, prepared for the next question about them.

Which rows of an index a view's ids are, and what of BM25 is the same for every query, costs more than a ranking. A
view is known by the frozen set of its ids: the very object, which is made once a view (`visible.ids_of`). Nothing is
kept of a view that nobody holds any more. Not thread-safe: the owner holds a lock.
"""

from __future__ import annotations

import weakref

from toolcrib_registry.search.lexical import LexicalScope

BYTES = 64 << 20
"""Of all of them together; the latest is kept even if it alone is larger."""


class PreparedViews:
    """Frozen sets of ids to what was prepared for them, the latest last."""

    def __init__(self, bytes_: int = BYTES) -> None:
        self._bytes = bytes_
        self._known: dict[int, tuple[weakref.ref[frozenset[str]], LexicalScope]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, ids: object) -> LexicalScope | None:
        """What was prepared for this object; None for anything but a frozen set."""
        if not isinstance(ids, frozenset):
            return None
        found = self._known.pop(id(ids), None)
        if found is None or found[0]() is not ids:
            return None
        self._known[id(ids)] = found
        return found[1]

    def put(self, ids: object, scope: LexicalScope) -> None:
        """Remember `scope` for `ids` if they are a frozen set, and forget what there is no room for."""
        if not isinstance(ids, frozenset):
            return
        self._known = {i: known for i, known in self._known.items() if known[0]() is not None}
        self._known[id(ids)] = weakref.ref(ids), scope
        room = self._bytes - sum(known[1].weight for known in self._known.values())
        for oldest in list(self._known)[:-1]:
            if room >= 0:
                break
            room += self._known.pop(oldest)[1].weight

    def clear(self) -> None:
        """Forget all: the index has changed."""
        self._known.clear()
