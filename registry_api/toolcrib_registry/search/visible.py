"""The tools that a caller may see, with what many searches of the same view share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib_registry.search.entry import IndexEntry, has_tags, is_of_server

AT_ONCE = 500
"""Tools that are looked through on the event loop: a millisecond."""
_NARROWED = 8
"""Filters whose outcome is remembered for a view."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a caller narrows a view down to; each empty: to nothing less."""

    tags: tuple[str, ...] = ()
    """The tool carries all of them, ignoring case."""
    servers: tuple[str, ...] = ()
    """The tool is of one of them (`name` or `namespace/name`), ignoring case."""
    namespaces: tuple[str, ...] = ()
    """The tool is of one of them, ignoring case."""
    states: tuple[str, ...] = ()
    """The tool is in one of them."""

    def __bool__(self) -> bool:
        return bool(self.tags or self.servers or self.namespaces or self.states)

    def of(self, view: Mapping[str, IndexEntry]) -> Visible:
        """Those of `view` that pass."""
        places = {n.casefold() for n in self.namespaces}
        return Visible(
            (i, e)
            for i, e in view.items()
            if has_tags(e, self.tags)
            and is_of_server(e, self.servers)
            and (not places or e.namespace.casefold() in places)
            and (not self.states or e.state in self.states)
        )


class Visible(dict[str, IndexEntry]):
    """A view: tool id to entry. Not to be changed once it was searched."""

    _ids: frozenset[str] | None = None
    _narrowed: dict[Filter, Visible] | None = None

    @property
    def ids(self) -> frozenset[str]:
        """The tool ids, made once: searches of the same view ask for them again and again."""
        if self._ids is None:
            self._ids = frozenset(self)
        return self._ids


async def narrowed(view: Mapping[str, IndexEntry], filter_: Filter) -> Mapping[str, IndexEntry]:
    """Those of `view` that pass `filter_`; a large view is looked through in a thread, and once for the same filter."""
    if not filter_:
        return view
    known = view._narrowed if isinstance(view, Visible) else None
    if known is not None and filter_ in known:
        return known[filter_]
    made = filter_.of(view) if len(view) <= AT_ONCE else await asyncio.to_thread(filter_.of, view)
    if isinstance(view, Visible):
        if view._narrowed is None or len(view._narrowed) >= _NARROWED:
            view._narrowed = {}
        view._narrowed[filter_] = made
    return made


def ids_of(view: Mapping[str, IndexEntry]) -> frozenset[str]:
    """The tool ids of `view`."""
    return view.ids if isinstance(view, Visible) else frozenset(view)
