"""Namespaces: their labels, which selectors mean, and whether one is being deleted, which takes its tools with it."""

from __future__ import annotations

from collections.abc import Collection

from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.kind import Change, Kind
from toolcrib_operator.objects import Entry, Ref

NAMESPACE = "Namespace"
ANY = Ref(NAMESPACE, "*")
"""Key of what depends on the labels of every namespace."""


class NamespaceKind(Kind):
    """Namespaces."""

    name = NAMESPACE
    plural = "namespaces"
    namespaced = False

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """What names it or selects namespaces, and its own tools where its deletion has begun, or is over."""
        return facts.links.of(change.ref) | facts.links.of(ANY) | _ending(change.ref, change.entry, facts)


def _ending(ref: Ref, entry: Entry | None, facts: Facts) -> set[Ref]:
    """Note whether a namespace is being deleted; returns its tools where that has changed."""
    known = ref.name in facts.ending
    if not known and (entry is None or entry.deleting is None):
        return set()
    tools = {e.ref for e in facts.objects.all("Tool") if e.ref.namespace == ref.name}
    if entry is None:  # what is left of its tools goes with it, though that is not known here yet
        if not tools:
            facts.ending.discard(ref.name)
    elif entry.deleting is None:
        facts.ending.discard(ref.name)
    elif known:
        return set()
    else:
        facts.ending.add(ref.name)
    return tools


NAMESPACES = NamespaceKind()
