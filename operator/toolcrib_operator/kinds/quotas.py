"""How many tools a namespace may publish, and how large they may be together: older tools keep their place.

Of the tools of a namespace, oldest first, as many are accepted as fit; from the first that does not fit on, none is. So a
new tool never takes an older one's place, and a deletion never costs another tool its place. In memory, without I/O: a
change costs the search for its place and what it moves, however many tools there are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.quantities import Quota
from toolcrib_operator.kinds.records import Age, Records
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry, Ref

MIB = 1 << 20
TOOL = "Tool"
_CUT = "; "
"""Before it stand the numbers of the moment, after it what is allowed."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a namespace holds: its tools and their JSON bytes, those without a place included; `refused` are those."""

    namespace: str
    tools: int
    size: int
    refused: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Tools that have a place again, and tools that have none from now on."""

    regained: frozenset[Ref] = frozenset()
    lost: frozenset[Ref] = frozenset()


def age(entry: Entry) -> Age:
    """The order of places: of equally old tools the lower uid, as for names."""
    return (entry.created, entry.uid, entry.ref.key)


@dataclass(slots=True)
class _Space:
    """The tools of one namespace, oldest first; the first `held` of them, `used` bytes, have a place."""

    order: list[Age] = field(default_factory=list)
    sizes: dict[Age, int] = field(default_factory=dict)
    total: int = 0
    held: int = 0
    used: int = 0
    fresh: set[Age] = field(default_factory=set)


class Quotas:
    """Who has a place. `put` and `drop` record; `settle` decides."""

    def __init__(self, quota: Quota, records: Records | None = None) -> None:
        self._quota = quota
        self._records = Records() if records is None else records
        self._spaces: dict[str, _Space] = {}
        self._touched: set[str] = set()

    def put(self, entry: Entry, size: int) -> None:
        """Record a tool that is fit to be published, with the JSON bytes of what would be."""
        if self._quota.off:
            return
        ref, when, record = entry.ref, age(entry), self._records[entry.ref]
        space = self._spaces.setdefault(ref.namespace or "", _Space())
        if record.age == when and space.sizes[when] == size:
            return
        crowded = record.crowded
        self.drop(ref)
        record.crowded = crowded  # until `settle` says otherwise, nothing has changed
        space = self._spaces.setdefault(ref.namespace or "", _Space())
        at = bisect_left(space.order, when)
        space.order.insert(at, when)
        space.sizes[when] = size
        space.total += size
        if at < space.held:
            space.held += 1
            space.used += size
        space.fresh.add(when)
        record.age = when
        self._touched.add(ref.namespace or "")

    def drop(self, ref: Ref) -> None:
        """Forget a tool: it is gone, or not fit to be published."""
        record = self._records.get(ref)
        if record is None:
            return
        when, record.age, record.crowded = record.age, None, None
        if when is None:
            return
        name = ref.namespace or ""
        space = self._spaces[name]
        at = bisect_left(space.order, when)
        del space.order[at]
        size = space.sizes.pop(when)
        space.total -= size
        if at < space.held:
            space.held -= 1
            space.used -= size
        space.fresh.discard(when)
        if space.order:
            self._touched.add(name)
        else:
            del self._spaces[name]
            self._touched.discard(name)

    def settle(self) -> Moved:
        """Decide what the changes since the last call have done."""
        regained: set[Ref] = set()
        lost: set[Ref] = set()
        for name in self._touched:
            space = self._spaces[name]
            for when in self._shift(space):
                record = self._records[Ref(TOOL, when[2])]
                if self._has_place(space, when):
                    if record.crowded is not None:
                        record.crowded = None
                        regained.add(record.ref)
                elif record.crowded is None:
                    record.crowded = self._problem(name, space)
                    lost.add(record.ref)
        self._touched.clear()
        return Moved(frozenset(regained), frozenset(lost))

    def refusal(self, ref: Ref) -> Cause | None:
        """Why a tool has no place; None if it has one."""
        record = self._records.get(ref)
        return None if record is None else record.crowded

    def room(self, namespace: str) -> int | None:
        """How many more tools a namespace may publish; None: as many as there are."""
        if not self._quota.tools:
            return None
        space = self._spaces.get(namespace)
        return max(0, self._quota.tools - (0 if space is None else len(space.order)))

    def uses(self) -> Iterator[Use]:
        """What each namespace holds."""
        for name, space in self._spaces.items():
            count = len(space.order)
            yield Use(name, count, space.total, count - space.held)

    def over(self) -> dict[str, tuple[Use, str]]:
        """The namespaces with tools that have no place: what they hold, and what the youngest of these tools is told."""
        found = {}
        for use in self.uses():
            if use.refused and (why := self.refusal(Ref(TOOL, self._spaces[use.namespace].order[-1][2]))):
                found[use.namespace] = (use, why.message)
        return found

    @property
    def fullest(self) -> float:
        """The share of its quota that the tools of the fullest namespace come to; over 1 where some have no place."""
        tools, size = self._quota.tools or math.inf, self._quota.size or math.inf
        return max((max(use.tools / tools, use.size / size) for use in self.uses()), default=0.0)

    def _shift(self, space: _Space) -> set[Age]:
        """Move the border between those with a place and those without; returns whom that may concern."""
        seen, space.fresh = space.fresh, set()
        while space.held and not self._fits(space.held, space.used):
            space.held -= 1
            space.used -= space.sizes[space.order[space.held]]
            seen.add(space.order[space.held])
        while space.held < len(space.order):
            following = space.order[space.held]
            if not self._fits(space.held + 1, space.used + space.sizes[following]):
                break
            space.held += 1
            space.used += space.sizes[following]
            seen.add(following)
        return seen

    def _fits(self, tools: int, size: int) -> bool:
        quota = self._quota
        return (not quota.tools or tools <= quota.tools) and (not quota.size or size <= quota.size)

    def _has_place(self, space: _Space, when: Age) -> bool:
        return space.held == len(space.order) or when < space.order[space.held]

    def _problem(self, name: str, space: _Space) -> Cause:
        quota = self._quota
        allowed = [f"{quota.tools:,} tools"] if quota.tools else []
        allowed += [f"{_mib(quota.size)} MiB"] if quota.size else []
        message = (
            f"namespace {name} has {len(space.order):,} tools of {_mib(space.total)} MiB{_CUT}"
            f"{' and '.join(allowed)} are allowed. Older tools keep their place: delete tools, or ask an administrator for"
            " a larger quota"
        )
        return Cause(ConditionReason.QUOTA_EXCEEDED, message)


def as_written(problem: Cause, written: Cause | None) -> Cause:
    """The refusal that a status already tells, if only the numbers of the moment differ: it is not written again for these."""
    if written is None or written.reason is not problem.reason:
        return problem
    same = written.message.partition(_CUT)[2] == problem.message.partition(_CUT)[2]
    return written if same else problem


def _mib(size: int) -> str:
    """Mebibytes with up to two decimals, rounded up: what is over a limit never looks equal to it."""
    hundredths = -(-size * 100 // MIB)
    return f"{hundredths / 100:,.2f}".rstrip("0").rstrip(".")
