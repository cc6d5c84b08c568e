"""What a name means to a caller: found among what it sees, decided, and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.authorizer import Action, Decision
from toolcrib.view import AmbiguousName
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_registry.audit.basis import Basis
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.audit.refusal_reasons import RefusalReasons
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.backends.port import ToolBackend
from toolcrib_registry.calls.bulkheads import Bulkheads
from toolcrib_registry.calls.canaries import CanaryCounter
from toolcrib_registry.calls.confirmations import Confirmations
from toolcrib_registry.calls.in_flight import InFlight
from toolcrib_registry.clock import Clock, whole_milliseconds
from toolcrib_registry.failures import Failure
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits.charge import Charging
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.policy.state import CallerView, PolicyState

_SELECTS = (Action.DESCRIBE, Action.LOAD)


class Parts(Protocol):
    """What a call needs of the registry (`deps.Deps` has it)."""

    @property
    def state(self) -> PolicyState: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def decisions(self) -> DecisionLog: ...

    @property
    def refusals(self) -> RefusalReasons: ...

    @property
    def limits(self) -> Charging: ...

    @property
    def bulkheads(self) -> Bulkheads: ...

    @property
    def in_flight(self) -> InFlight: ...

    @property
    def arguments(self) -> Arguments: ...

    @property
    def confirmations(self) -> Confirmations: ...

    @property
    def backend(self) -> ToolBackend: ...

    @property
    def canaries(self) -> CanaryCounter: ...


@dataclass(frozen=True, slots=True)
class Named:
    """What a name turned out to mean to a caller."""

    tool: PublishedTool
    listed: str
    caller_view: CallerView
    decision: Decision
    at: float | None
    """When it was decided; None: `decision` is a later one, of a snapshot that is not the view's."""
    by_limits: bool = False
    """The decision names another binding than the authorizer did: the first that has room in its limits."""
    charged: frozenset[str] = frozenset()
    """The UIDs of the bindings that a call was charged to."""
    asked: PublishedTool | None = None
    """The tool that the caller named, where this one was called in its place; None: this one."""

    @property
    def replacement(self) -> PublishedTool | None:
        """The other tool of which a canary made this one; None: nothing but its own texts is another."""
        snapshot = self.caller_view.snapshot
        of = None if self.tool.trial is None else snapshot.tools.get(self.tool.tool_id)
        trial = None if of is None else of.candidate
        return None if trial is None or trial.replacement is None else snapshot.tools.get(trial.replacement)

    @property
    def revision(self) -> str:
        """Of the snapshot that decided."""
        return str(self.caller_view.snapshot.revision or "")

    @property
    def fallback_for(self) -> str | None:
        """The id of the tool in whose place it was called, if it was."""
        return None if self.asked is None else self.asked.tool_id

    @property
    def basis(self) -> Basis | None:
        """What the decision rests on, for its record; None: it cannot be decided again."""
        return None if self.at is None else Basis(self.caller_view, self.at, self.by_limits)

    def charged_to(self, binding: PublishedBinding, uids: frozenset[str]) -> Named:
        """The same once its call has been charged: `binding` has let it in, `uids` are those of all."""
        decision = self.decision
        other = decision.binding is None or decision.binding.uid != binding.uid
        if other:
            decision = decision._replace(binding=binding)
        # every call comes here, and `replace` is slow
        return Named(self.tool, self.listed, self.caller_view, decision, self.at, other, uids, self.asked)


async def find(
    parts: Parts, asker: Asker, name: str, action: Action, at: float | None = None
) -> Named | None:
    """The visible tool that `name` means, decided and logged. None: unknown or not visible, which is the same.

    `at` is a moment of this request at which it is decided, now where it is None.
    Nothing here looks at what the caller does not see: no answer may take longer because of it.

    Raises:
        AmbiguousName: several visible tools share the bare name.
    """
    caller_view = await parts.state.caller_view(asker.identity, bad_token=asker.problem is not None)
    try:
        tool = caller_view.view.resolve(name)
    except AmbiguousName:
        parts.decisions.refused(action, "ambiguous_name", caller_view.identity, name)
        raise
    if tool is None:
        parts.refusals.add(action, caller_view, name)
        return None
    at = whole_milliseconds(parts.clock.now()) if at is None else at
    decision = caller_view.decide(tool, action, at)
    if not decision.allowed:  # the clock has moved on since the view was made
        parts.refusals.add(action, caller_view, name)
        return None
    parts.metrics.decided(action.value, decision, caller_view.identity)
    if action in _SELECTS:
        parts.canaries.selected(caller_view.identity, tool)
    return Named(tool, caller_view.view.listed_name(tool.tool_id), caller_view, decision, at)


def note(
    parts: Parts,
    action: Action,
    named: Named,
    outcome: str,
    *,
    arguments: dict[str, Any] | None = None,
    seconds: float | None = None,
    confirmation: Mapping[str, str] | None = None,
    at: float | None = None,
) -> None:
    """Write one record about one named tool, of `at` in whole milliseconds, now where that is None."""
    parts.decisions.decided(
        action,
        named.caller_view.identity,
        named.listed,
        named.tool,
        named.decision,
        named.revision,
        outcome=outcome,
        arguments=arguments,
        seconds=seconds,
        at=at,
        basis=named.basis,
        fallback_for=named.fallback_for,
        confirmation=confirmation,
    )


def ambiguous(error: AmbiguousName) -> Failure:
    """It says which ids are visible."""
    return Failure(
        "ambiguous_name",
        f"The name {error.name!r} matches several tools. Use one of tool_ids.",
        extra={"tool_ids": list(error.tool_ids)},
    )


def not_found(name: str) -> Failure:
    """The same for hidden and absent."""
    return Failure("tool_not_found", f"Tool '{name}' not found")
