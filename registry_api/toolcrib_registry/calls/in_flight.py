"""Calls whose answer is not there yet.

Each is decided again whenever what it rests on changes, and cut if the answer is *no* now.

One task looks at all of them, once a revision and at the moments that bindings name; calls of one identity to one
tool are decided together, and not at all where neither the bindings nor the tool have changed. A token's own expiry
cuts nothing: it was good when the call began. What ends the grant does: a binding that is deleted, edited or over, a
new deny, an Agent that is suspended, a tool that is disabled, deleted or gated otherwise, a ServiceAccount that is gone. Where the binding that a
call was charged to does not grant it any more, another takes its place only if it has no limits: whether one that has
them would have had room is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from toolcrib.authorizer import Action, Decision, Policy, Reason, alternatives, decide, next_change
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.policy.state import PolicyState

AT_A_TIME = 256
"""Decisions between two looks at other work."""


class Revoked(Exception):
    """The call is not granted any more. `decision` says why, and names the grant that ended or the deny."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason.value)
        self.decision = decision


@dataclass(slots=True, eq=False)
class _Group:
    """The calls of one identity to one tool, and the latest decision about them with what it rests on."""

    identity: Identity
    tool_id: str
    decision: Decision
    holds: set[Hold] = field(default_factory=set)
    until: float = -math.inf
    version: int = 0
    """Grows with each decision that is made again."""
    _needed: list[frozenset[str]] | None = None
    _snapshot: Snapshot | None = None
    _tool: PublishedTool | None = None
    _policy: Policy | None = None

    def begin(self, tool: PublishedTool, snapshot: Snapshot, until: float) -> None:
        """The decision is about `tool` by `snapshot`, and holds until then or longer: it is not made a second time."""
        if tool is snapshot.governed(self.tool_id):  # not a candidate of it
            self._snapshot, self._tool, self._policy = snapshot, tool, snapshot.policy
            self.until = until

    def look(self, snapshot: Snapshot, now: float) -> Decision:
        """The decision of this moment: made again where something that it rests on has changed."""
        timely = now < self.until
        if timely and snapshot is self._snapshot:
            return self.decision
        tool, policy = snapshot.governed(self.tool_id), snapshot.policy
        same = timely and tool is self._tool and policy is self._policy
        self._snapshot, self._tool, self._policy = snapshot, tool, policy
        if not same:
            found = decide(self.identity, tool, Action.CALL, policy, now)
            self.decision, self.until = _blamed(found, self.decision), next_change(self.identity, policy, now)
            self.version += 1
            self._needed = None
        return self.decision

    def look_at(self, held: Hold, snapshot: Snapshot, now: float) -> Decision:
        """The decision about one of the calls: *no*, too, where others grant it than it was charged to."""
        decision = self.look(snapshot, now)
        if not decision.allowed or not held.charged or held.version == self.version:
            return decision
        if all(held.charged & one_of for one_of in self._of_which(now)):
            held.version = self.version
            return decision
        return Decision(False, Reason.NO_BINDING, held.decision.binding)

    def follows(self, policy: Policy) -> bool:
        """Whether the latest decision was made by `policy`."""
        return policy is self._policy

    def _of_which(self, now: float) -> list[frozenset[str]]:
        """The bindings with limits of which a call needs one, a set for each group of alternatives."""
        if self._needed is None:
            assert self._tool is not None
            assert self._policy is not None
            groups = alternatives(self.identity, self._tool, self._policy, now)
            limited = [group for group in groups if all(b.limits is not None for b in group)]
            self._needed = [frozenset(b.uid for b in group) for group in limited]
        return self._needed


@lru_cache(maxsize=1_024)
def _lasting(identity: Identity) -> Identity:
    return replace(identity, expires_at=math.inf, not_before=None)


def _blamed(found: Decision, before: Decision) -> Decision:
    """A *no* names what denies or suspends, or the grant that it had before: others that never granted it have ended nothing."""
    grant, named = before.binding, found.binding
    if found.allowed or found.reason in (Reason.DENIED, Reason.AGENT_SUSPENDED) or grant is None:
        return found
    return found if named is not None and named.uid == grant.uid else found._replace(binding=grant)


class InFlight:
    """All calls that wait for an answer. Used from one event loop only.

    Args:
        state: the snapshot, and its changes.
        clock: says which grants are over.
        on_cut: told of each call that is cut.
    """

    def __init__(
        self, state: PolicyState, clock: Clock, on_cut: Callable[[Decision], None] = lambda decision: None
    ) -> None:
        self._state, self._clock, self._on_cut = state, clock, on_cut
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._next = math.inf
        """When `follow` looks without a change: the earliest end of a group's decision."""
        self._sooner = asyncio.Event()

    def hold(
        self,
        identity: Identity,
        tool: PublishedTool,
        decision: Decision,
        charged: frozenset[str] = frozenset(),
        decided: tuple[Snapshot, float] | None = None,
    ) -> Hold:
        """A context for what a call waits for.

        Leaving it raises `Revoked`, at once, where the call is not granted any more. `decision` is the one that let it in;
        `charged` are the UIDs of the bindings that it was charged to, if that is over; `decided` by what it was decided,
        and until when it holds, where that is known.
        """
        return Hold(self, identity, tool, decision, charged, decided)

    def __len__(self) -> int:
        return sum(len(group.holds) for group in self._groups.values())

    async def follow(self) -> None:
        """Cut what is revoked, until the service stops."""
        while not self._state.closing:
            changed, self._sooner = self._state.changed, asyncio.Event()
            await self._look_at_all()
            await _first(changed, self._sooner, self._clock, self._next)

    async def _look_at_all(self) -> None:
        for number, group in enumerate(list(self._groups.values()), 1):
            snapshot, now = self._state.snapshot, self._clock.now()
            group.look(snapshot, now)
            for each in group.holds:
                decision = group.look_at(each, snapshot, now)
                if not decision.allowed:
                    each.cut(decision)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        self._next = min((group.until for group in self._groups.values()), default=math.inf)

    def enter(self, held: Hold) -> Decision:
        """Count a call in; the decision of this moment."""
        key = held.key
        group = self._groups.get(key)
        if group is None:
            # the token's own dates were looked at when the call began
            group = self._groups[key] = _Group(_lasting(held.identity), held.tool.tool_id, held.decision)
            if held.decided is not None:
                group.begin(held.tool, *held.decided)
        decision = group.look_at(held, self._state.snapshot, self._clock.now())
        group.holds.add(held)
        if not held.charged:
            held.version = group.version
        if group.until < self._next:
            self._sooner.set()
        return decision

    def leave(self, held: Hold) -> Decision:
        """Count a call out; the decision of this moment."""
        group = self._groups[held.key]
        group.holds.discard(held)
        if not group.holds:
            del self._groups[held.key]
        return group.look_at(held, self._state.snapshot, self._clock.now())

    def charged(self, held: Hold, policy: Policy) -> Decision:
        """A call that was counted in has been charged by `policy`; the decision of this moment."""
        group = self._groups[held.key]
        if not group.follows(policy):
            held.version = -1
        return group.look_at(held, self._state.snapshot, self._clock.now())

    def was_cut(self, decision: Decision) -> None:
        """A call ended with `Revoked`."""
        self._on_cut(decision)


class Hold:
    """One call's time in flight; made by `InFlight.hold`."""

    def __init__(
        self,
        calls: InFlight,
        identity: Identity,
        tool: PublishedTool,
        decision: Decision,
        charged: frozenset[str],
        decided: tuple[Snapshot, float] | None,
    ) -> None:
        self.identity, self.tool = identity, tool
        self.decision, self.charged, self.decided = decision, charged, decided
        self.version = -1
        """Of its group, when it was looked at whether the bindings it was charged to still grant it."""
        self.key = (identity.cache_key, tool.tool_id)
        self._calls = calls
        self._scope = asyncio.timeout(None)

    def cut(self, decision: Decision) -> None:
        """End what is awaited inside, because of `decision`."""
        if self.decision.allowed:
            self.decision = decision
            self._scope.reschedule(0.0)

    def rest_on(self, charged: frozenset[str], decision: Decision, policy: Policy) -> None:
        """The call goes on by `charged` from here on, as `decision` says, made by `policy`; cut if they are gone."""
        if not self.decision.allowed:
            return
        self.charged, self.decision = charged, decision
        latest = self._calls.charged(self, policy)
        if not latest.allowed:
            self.cut(latest)

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        decision = self._calls.enter(self)
        if not decision.allowed:
            self.cut(decision)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        latest = self._calls.leave(self)
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            pass  # the scope's own word for a cut
        else:
            if error is not None and not isinstance(error, Exception):
                return  # given up by somebody else
        decision = latest if self.decision.allowed else self.decision
        if not decision.allowed:
            self._calls.was_cut(decision)
            raise Revoked(decision) from None


async def _first(changed: asyncio.Event, sooner: asyncio.Event, clock: Clock, moment: float) -> None:
    """Return at a change, at an earlier moment to come, or when the clock says so."""
    waits: list[Any] = [changed.wait(), sooner.wait()]
    if moment < math.inf:
        waits.append(clock.sleep_until(moment))
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
