"""Charges one call to the bindings that grant it, or says why it must wait; frees its slots however it ends.

What limits allow counts, whatever becomes of it afterwards (wrong arguments, a backend that is down): the
registry worked for it, and nobody learns for nothing what a schema refuses. What they refuse does not count.

With the store of counters away, a call that only bindings with limits grant goes through uncounted where its tool is
read-only, and is refused else: what changes something must not run unbounded, what reads need not stop. A store that
is well, but has more to count than it can, lets nothing through uncounted: else a burst would switch limits off.

A call of a canary's replacement is also charged to a binding that grants the replacement: it is what the backend does.

A call that no `maxConcurrent` bounds takes one of the places that every agent has on a replica (`agent_limit`).
"""

from __future__ import annotations

from collections.abc import Sequence
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
    Demand,
    Limit,
    Shortage,
    account_of,
)
from toolcrib_registry.limits.selection import first_by_order
from toolcrib_registry.metrics.recorder import Metrics

Groups = Sequence[Sequence[PublishedBinding]]
LONGEST_CALL = 300.0
"""Seconds: no call's deadline is later (`calls.bounds`)."""
ROOM_SECONDS = 5.0
"""How long a call that was charged waits for room at its backend (`calls.bulkheads`)."""
GRACE = 2.0
"""Seconds by which a lease outlives its call's deadline: a slot is never free while its call may be under way."""
AWAY_SECONDS = 2
"""`Retry-After` while the store of counters is down."""
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
        metrics: told of refusals and of a store that is down.
        clock: decides which bindings are valid.
        agent_calls: calls of one agent at one time that no binding's `maxConcurrent` bounds.
    """

    def __init__(self, counters: Counters, metrics: Metrics, clock: Clock, *, agent_calls: int = 256) -> None:
        self.counters = counters
        self._default = DefaultLimit(agent_calls)
        self._metrics = metrics
        self._clock = clock

    def charged(
        self,
        identity: Identity,
        tool: PublishedTool,
        policy: Policy,
        decided: PublishedBinding | None,
        replacement: PublishedTool | None = None,
    ) -> Turn:
        """A context in which the call that was just decided is charged.

        `decided` is the authorizer's; None where the token alone decided: then only the default limit counts.
        `replacement` is another tool that is called in its place. Slots are free again when the block has been left.
        Entering it raises `Failure`: limit_exceeded, limits_unavailable; not_permitted where the grant lapsed a moment ago.
        """
        return Turn(self, identity, tool, policy, decided, replacement)

    async def enter(self, turn: Turn) -> Charged:
        """Charge the call; `turn` keeps what is to be given back, also where this raises."""
        identity, tool, decided = turn.identity, turn.tool, turn.decided
        # taken before anything is counted: what this refuses must not count
        place = turn.place = self._default.take(identity)
        free = decided is None or (decided.limits is None and tool.scope_match is ScopeMatch.ANY)
        if place and free and (decided is None or turn.replacement is None):
            # nobody to charge: the first that grants has room
            return Charged(decided, frozenset() if decided is None else frozenset((decided.uid,)))
        if decided is None:
            raise self._no_place(decided)
        now = self._clock.now()
        each = [
            alternatives(identity, one, turn.policy, now)
            for one in (tool, turn.replacement)
            if one is not None
        ]
        groups: Groups = [group for of_one in each for group in of_one]
        if not all(each) or not all(groups):
            raise Failure("not_permitted", "This call is not permitted.")
        own = len(each[0])
        if not place:
            groups = _bounded(groups)
            if not any(_bounds(b) for group in groups for b in group):
                raise self._no_place(decided)
        charge = turn.charge = await self._charge(identity, tool, groups)
        chosen = [] if charge is None else [g[p] for g, p in zip(groups, charge.places, strict=True)]
        bounded = any(map(_bounds, chosen))
        if place and bounded:
            turn.place = False
            self._default.give(identity)
        elif not place and not bounded:
            raise self._no_place(decided)
        if charge is None:  # uncounted: nobody knows which of them has room
            every = [binding for group in groups for binding in group]
            return Charged(_first_counted(groups[:own]) or decided, frozenset(b.uid for b in every))
        return Charged(first_by_order(chosen[:own]), frozenset(b.uid for b in chosen))

    async def leave(self, turn: Turn) -> None:
        """Give back the place and the charge that `turn` holds."""
        if turn.place:
            self._default.give(turn.identity)
        if turn.charge is not None and turn.charge.accounts:
            await self.counters.release(turn.charge)

    def _no_place(self, binding: PublishedBinding | None) -> Failure:
        self._metrics.grants.limited(binding, Limit.DEFAULT.value)
        return Failure(
            "limit_exceeded",
            f"This agent has {_calls(self._default.most)} in progress on this replica, the default "
            "maximum. Wait for one to end, or set limits.maxConcurrent on a binding.",
            retry_after=BUSY_SECONDS,
            extra={"limit": Limit.DEFAULT.value},
        )

    async def _charge(self, identity: Identity, tool: PublishedTool, groups: Groups) -> Charge | None:
        """None: a read-only tool's call that goes through uncounted.

        Raises:
            Failure: limit_exceeded or limits_unavailable.
        """
        free = _free(groups)
        if free is not None and not any(free):
            return Charge(free)
        lease = min(tool.backend.timeout if tool.backend else 0.0, LONGEST_CALL) + ROOM_SECONDS + GRACE
        demands = [[Demand(account_of(b, identity), b.limits) for b in group] for group in groups]
        try:
            answer = await self.counters.charge(demands, lease=lease)
        except CountersUnavailable as error:
            busy = isinstance(error, CountersBusy)
            if not busy:
                self._metrics.counter_errors.inc()
            if free is not None:  # passed over for those that have room for certain
                return Charge(free)
            if busy:
                raise Failure(
                    "limits_unavailable",
                    "Too many calls are waiting for this grant's rate limit. Retry shortly.",
                    retry_after=BUSY_SECONDS,
                ) from None
            if tool.annotations.get("readOnlyHint") is True:
                return None
            raise Failure(
                "limits_unavailable",
                "This grant's limits cannot be checked now, and the tool is not read-only. Retry later.",
                retry_after=AWAY_SECONDS,
            ) from None
        if isinstance(answer, Charge):
            return answer
        binding = groups[answer.group][answer.place]
        assert binding.limits is not None
        self._metrics.grants.limited(binding, answer.limit.value)
        raise Failure(
            "limit_exceeded",
            _detail(binding.limits, answer),
            retry_after=answer.seconds,
            extra={"limit": answer.limit.value},
        )


class Turn:
    """One call, from being charged to its end."""

    __slots__ = ("_charging", "charge", "decided", "identity", "place", "policy", "replacement", "tool")

    def __init__(
        self,
        charging: Charging,
        identity: Identity,
        tool: PublishedTool,
        policy: Policy,
        decided: PublishedBinding | None,
        replacement: PublishedTool | None,
    ) -> None:
        self._charging = charging
        self.identity, self.tool, self.policy, self.decided = identity, tool, policy, decided
        self.replacement = replacement
        self.place = False
        """Whether one of the agent's own places is held."""
        self.charge: Charge | None = None

    async def __aenter__(self) -> Charged:
        try:
            return await self._charging.enter(self)
        except BaseException:
            await self._charging.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._charging.leave(self)


def _free(groups: Groups) -> tuple[int, ...] | None:
    """Of each group the place of the first binding without limits; None where one has none."""
    places = [next((i for i, b in enumerate(group) if b.limits is None), None) for group in groups]
    return None if None in places else tuple(place for place in places if place is not None)


def _first_counted(groups: Groups) -> PublishedBinding | None:
    """The first whose room is not known, of a group that nobody without limits serves."""
    return next((group[0] for group in groups if all(b.limits is not None for b in group)), None)


def _detail(limits: PublishedLimits, shortage: Shortage) -> str:
    match shortage.limit:
        case Limit.CONCURRENT:
            return (
                f"This grant's limit of {_calls(limits.concurrent)} at one time is reached. Wait for one "
                "to end."
            )
        case Limit.PER_MINUTE:
            used = f"{_calls(limits.per_minute)} in 60 seconds"
        case _:
            used = f"{_calls(limits.per_day)} in 24 hours"
    return f"This grant's limit of {used} is used up. Retry in {shortage.seconds} s."


def _bounds(binding: PublishedBinding) -> bool:
    return binding.limits is not None and binding.limits.concurrent is not None


def _bounded(groups: Groups) -> Groups:
    """Of each group those that bound concurrency, where there are any."""
    return [[b for b in group if _bounds(b)] or group for group in groups]


def _calls(count: int | None) -> str:
    return "1 call" if count == 1 else f"{count} calls"
