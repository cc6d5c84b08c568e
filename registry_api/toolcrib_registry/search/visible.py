"""The tools that a caller may see, with what many searches of the same view share."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib_registry.search.entry import IndexEntry


class Visible(dict[str, IndexEntry]):
    """A view: tool id to entry. Not to be changed once it was searched."""

    _ids: frozenset[str] | None = None

    @property
    def ids(self) -> frozenset[str]:
        """The tool ids, the same object every time: stores know by it what they prepared for the view."""
        if self._ids is None:
            self._ids = frozenset(self)
        return self._ids


def ids_of(view: Mapping[str, IndexEntry]) -> frozenset[str]:
    """The tool ids of `view`."""
    return view.ids if isinstance(view, Visible) else frozenset(view)
