"""Which bindings a call is charged to: of each group of alternatives the first whose limits have room.

The order is the authorizer's: cluster before namespaced, then by namespace and name. A binding without limits always
has room. The script of `adapters.counters.redis` does the same on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from toolcrib.wire.publish import PublishedBinding
from toolcrib_registry.limits.counters import Demand, Groups, Shortage


def select(groups: Groups, short: Callable[[Demand], Shortage | None]) -> tuple[int, ...] | Shortage:
    """The places of the chosen; where a group has none, the shortage that ends first in the first such group.

    Args:
        short: what a demand with limits lacks; asked once for each account.
    """
    found: dict[str, Shortage | None] = {}
    places: list[int] = []
    for number, group in enumerate(groups):
        soonest: Shortage | None = None
        for place, demand in enumerate(group):
            if demand.limits is not None and demand.account not in found:
                found[demand.account] = short(demand)
            lacks = found.get(demand.account)
            if lacks is None:
                places.append(place)
                break
            if soonest is None or lacks.seconds < soonest.seconds:
                soonest = replace(lacks, group=number, place=place)
        else:
            assert soonest is not None, "no group is empty"
            return soonest
    return tuple(places)


def first_by_order(bindings: Sequence[PublishedBinding]) -> PublishedBinding:
    """The binding that is named where several are charged: cluster bindings first, then by namespace and name."""
    return min(bindings, key=lambda b: (b.namespace is not None, b.namespace or "", b.name))
