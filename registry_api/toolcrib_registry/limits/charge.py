"""Charges one call to the bindings that grant it, or says why it must wait; frees its slots however it ends.

What limits let through counts, whatever becomes of it afterwards (wrong arguments, a backend that is away): the
registry worked for it, and nobody learns for nothing what a schema refuses. What they refuse does not count.

With the store of counters away, a call that only bindings with limits grant goes through uncounted where its tool is
read-only, and is refused else: what changes something must not run unbounded, what reads need not stop. A store that
is well, but has more to count than it can, lets nothing through uncounted: else a burst would switch limits off.

A call that no `maxConcurrent` bounds takes one of the places that every agent has on a replica (`agent_limit`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from toolcrib.authorizer import Policy, alternatives
from toolcrib.identity import Identity
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.failures import Failure
from toolcrib_registry.limits.agent_limit import DefaultLimit
from toolcrib_registry.limits.counters import (
    Charge,
    Counters,
    CountersBusy,
    CountersUnavailable,
    Limit,
    Shortage,
    account_of,
)
from toolcrib_registry.limits.selection import Choice, Groups, choose
from toolcrib_registry.metrics.recorder import Metrics

LONGEST_CALL = 300.0
"""Seconds: no call's deadline is later (`calls.bounds`)."""
ROOM_SECONDS = 5.0
"""How long a call that was charged waits for room at its backend (`calls.bulkheads`)."""
GRACE = 2.0
"""Seconds by which a lease outlives its call's deadline: a slot is never free while its call may be under way."""
AWAY_SECONDS = 2
"""`Retry-After` while the store of counters is away."""
BUSY_SECONDS = 1
"""`Retry-After` while it has more to count than it can."""


@dataclass(frozen=True, slots=True)
class Charged:
    """What a call was let in by: the binding that decides with its limits considered, and the UIDs of all.

    None and empty where the token alone decided.
    """

    binding: PublishedBinding | None
    uids: frozenset[str]


class Charging:
    """Charges calls.

    Args:
        counters: the store of counters.
        metrics: told of refusals and of a store that is away.
        clock: decides which bindings are valid.
        agent_calls: calls of one agent at one time that no binding's `maxConcurrent` bounds.
    """

    def __init__(self, counters: Counters, metrics: Metrics, clock: Clock, *, agent_calls: int = 256) -> None:
        self.counters = counters
        self._default = DefaultLimit(agent_calls)
        self._metrics = metrics
        self._clock = clock

    @asynccontextmanager
    async def charged(
        self, identity: Identity, tool: PublishedTool, policy: Policy, decided: PublishedBinding | None
    ) -> AsyncIterator[Charged]:
        """Charge the call that was just decided.

        `decided` is the authorizer's; None where the token alone decided: then only the default limit counts. Slots
        are free again when the block has been left.

        Raises:
            Failure: limit_exceeded, limits_unavailable; not_permitted where the grant lapsed a moment ago.
        """
        choice = Choice()
        # taken before anything is counted: what this refuses must not count
        place = self._default.take(identity)
        try:
            if place and (decided is None or (decided.limits is None and tool.scope_match is ScopeMatch.ANY)):
                # nobody to charge: the first that grants has room
                yield Charged(decided, frozenset() if decided is None else frozenset((decided.uid,)))
                return
            if decided is None:
                raise self._no_place(decided)
            groups: Groups = alternatives(identity, tool, policy, self._clock.now())
            if not groups or not all(groups):
                raise Failure("not_permitted", "This call is not permitted.")
            if not place:
                groups = _bounded(groups)
                if not any(_bounds(b) for group in groups for b in group):
                    raise self._no_place(decided)
            charged = await self._charge(identity, tool, groups, choice)
            bounded = choice.complete and any(map(_bounds, choice.chosen.values()))
            if place and bounded:
                place = False
                self._default.give(identity)
            elif not place and not bounded:
                raise self._no_place(decided)
            yield charged
        finally:
            if place:
                self._default.give(identity)
            if choice.charges:
                await self.counters.release(choice.charges)

    def _no_place(self, binding: PublishedBinding | None) -> Failure:
        self._metrics.limited(binding, Limit.DEFAULT.value)
        return Failure(
            "limit_exceeded",
            f"{_calls(self._default.most)} of this agent are in progress on this replica, the most without a limit of its own: "
            "wait for one to end. A binding's limits.maxConcurrent sets another limit.",
            retry_after=BUSY_SECONDS,
            extra={"limit": Limit.DEFAULT.value},
        )

    async def _charge(
        self, identity: Identity, tool: PublishedTool, groups: Groups, choice: Choice
    ) -> Charged:
        lease = min(tool.backend.timeout if tool.backend else 0.0, LONGEST_CALL) + ROOM_SECONDS + GRACE

        async def look(binding: PublishedBinding) -> Shortage | None:
            with self._noticed():
                return await self.counters.room(account_of(binding, identity), _limits(binding))

        async def charge(binding: PublishedBinding) -> Charge | Shortage:
            with self._noticed():
                return await self.counters.charge(
                    account_of(binding, identity), _limits(binding), lease=lease
                )

        if len(groups) > 1:
            # several are charged together: none of them, unless all seem to have room
            seen = await choose(groups, look, Choice())
            if not seen.complete:
                return self._uncounted(tool, seen, groups)
        await choose(groups, charge, choice)
        if choice.complete:
            return Charged(choice.deciding, frozenset(choice.chosen))
        return self._uncounted(tool, choice, groups)

    def _uncounted(self, tool: PublishedTool, choice: Choice, groups: Groups) -> Charged:
        # nobody knows which of them has room
        uids = frozenset(binding.uid for group in groups for binding in group)
        return Charged(self._without_room(tool, choice), uids)

    def _without_room(self, tool: PublishedTool, choice: Choice) -> PublishedBinding:
        """The binding of a read-only tool's call that goes through uncounted.

        Raises:
            Failure: limit_exceeded or limits_unavailable.
        """
        if choice.busy:
            raise Failure(
                "limits_unavailable",
                "More calls wait to be counted for the limits of this grant than can be: call again in a moment.",
                retry_after=BUSY_SECONDS,
            )
        if choice.unknown is not None:
            if tool.annotations.get("readOnlyHint") is True:
                return choice.unknown
            raise Failure(
                "limits_unavailable",
                "Whether the limits of this grant have room cannot be known now, and this tool is not read-only.",
                retry_after=AWAY_SECONDS,
            )
        assert choice.short is not None
        binding, shortage = choice.short
        self._metrics.limited(binding, shortage.limit.value)
        raise Failure(
            "limit_exceeded",
            _detail(_limits(binding), shortage),
            retry_after=shortage.seconds,
            extra={"limit": shortage.limit.value},
        )

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        try:
            yield
        except CountersBusy:
            raise  # the store is well
        except CountersUnavailable:
            self._metrics.counter_errors.inc()
            raise


def _detail(limits: PublishedLimits, shortage: Shortage) -> str:
    match shortage.limit:
        case Limit.CONCURRENT:
            return f"The limit of this grant, {_calls(limits.concurrent)} at one time, is reached: wait for one to end."
        case Limit.PER_MINUTE:
            used = f"{_calls(limits.per_minute)} in 60 seconds"
        case _:
            used = f"{_calls(limits.per_day)} in 24 hours"
    return f"The limit of this grant, {used}, is used up; there is room again in {shortage.seconds} s."


def _bounds(binding: PublishedBinding) -> bool:
    return binding.limits is not None and binding.limits.concurrent is not None


def _bounded(groups: Groups) -> Groups:
    """Of each group those that bound concurrency, where there are any."""
    return [[b for b in group if _bounds(b)] or group for group in groups]


def _calls(count: int | None) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _limits(binding: PublishedBinding) -> PublishedLimits:
    assert binding.limits is not None
    return binding.limits
