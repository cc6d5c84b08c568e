"""The chain: the checks that decide who may see and call what, in the order of DESIGN §3.

`decide` asks one check after the other, and the first that has an answer decides. Each reason stands once, in `Reason`,
with its step, its meaning and the check that finds it; explanations, metrics and the documentation read it there.

To add a check, write a function of a `Question` and one entry in `Reason`, at its place in the order. Checks are pure,
and whatever is missing or unknown ends in a *no*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, Self

from toolcrib.authorizer.bindings import CompiledBinding, Denial
from toolcrib.authorizer.policy import Policy
from toolcrib.identity import NOT_BEFORE_LEEWAY, Identity, ScopesPolicy
from toolcrib.names import is_reserved_scope
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.publish import PublishedBinding, PublishedTool

DECIDER_VERSION = 3
"""Grows whenever the same question may be decided otherwise, or the same view digested: a log names what decided it."""


class Action(StrEnum):
    """What the caller wants to do with the tool."""

    LIST = "list"
    SEARCH = "search"
    DESCRIBE = "describe"
    LOAD = "load"
    CALL = "call"
    WATCH = "watch"
    STATS = "stats"


class Order(IntEnum):
    """The steps of the order, each with what holds once it is passed.

    Checks of the identity look at the caller alone, and those of the tool at the tool alone: a view asks the former
    once, and anonymous callers are asked the latter too.
    """

    title: str

    IDENTITY = 1, "The identity is valid, not suspended"
    TOOL = 2, "The tool is active"
    DENY = 3, "Nothing denies it"
    GRANT = 4, "A binding grants it"
    TOKEN = 5, "The token carries the scope too"

    def __new__(cls, number: int, title: str) -> Self:
        step = int.__new__(cls, number)
        step._value_ = number
        step.title = title
        return step


@dataclass(slots=True, eq=False)
class Question:
    """May `identity` do `action` with `tool` at `now` (seconds since the epoch)? None: there is none.

    Nothing changes one; it is not frozen since a view makes one for each tool, and that would cost three times as much.
    """

    identity: Identity | None
    tool: PublishedTool | None
    action: Action
    policy: Policy
    now: float


class Decision(NamedTuple):
    """Allow or deny, why, and which binding (object and generation) decided, where one did.

    `denial` is the entry of that binding that denies; of other decisions None.
    """

    allowed: bool
    reason: Reason
    binding: PublishedBinding | None = None
    denial: Denial | None = None

    def __bool__(self) -> bool:
        return self.allowed


Check = Callable[[Question], Decision | None]
"""What it decides; None: the next check is asked."""


# Python 3.11 looks a member of an enum up by its name, at 0.1 µs; these are asked for each tool of a view
_BINDINGS, _TOKEN, _ALL = ScopesPolicy.BINDINGS, ScopesPolicy.TOKEN, ScopeMatch.ALL
_DISABLED = ToolState.DISABLED


# ---- the checks -------------------------------------------------------------------------------------------------------


def nobody(q: Question) -> Decision | None:
    """No identity: at most a list of definitions, of tools that nothing is wrong with."""
    if q.identity is not None:
        return None
    lists = q.policy.anonymous_list and q.action is Action.LIST and _first(_OF_TOOL, q) is None
    return Decision(True, Reason.ANONYMOUS_LIST) if lists else Decision(False, Reason.NO_IDENTITY)


def expired(q: Question) -> Decision | None:
    """A token that was verified earlier: its own dates against the clock."""
    if q.identity is not None and is_valid(q.identity, q.now):
        return None
    return Decision(False, Reason.IDENTITY_EXPIRED)


def account_gone(q: Question) -> Decision | None:
    """A ServiceAccount that is not there any more, or not the one of the token."""
    if q.identity is not None and not q.policy.is_gone(q.identity):
        return None
    return Decision(False, Reason.ACCOUNT_GONE)


def suspended(q: Question) -> Decision | None:
    """A suspended agent gets nothing: no grant of it counts, wherever its workload runs."""
    if q.identity is None:
        return Decision(False, Reason.AGENT_SUSPENDED)
    by = q.policy.suspension(q.identity)
    return None if by is None else Decision(False, Reason.AGENT_SUSPENDED, by)


def unknown(q: Question) -> Decision | None:
    """No such tool."""
    return Decision(False, Reason.UNKNOWN_TOOL) if q.tool is None else None


def disabled(q: Question) -> Decision | None:
    """A tool that is there, but not for agents."""
    if q.tool is not None and q.tool.state is not _DISABLED:
        return None
    return Decision(False, Reason.TOOL_DISABLED)


def quarantined(q: Question) -> Decision | None:
    """A tool that is not what somebody approved."""
    if q.tool is not None and not q.tool.quarantined:
        return None
    return Decision(False, Reason.TOOL_QUARANTINED)


def denied(q: Question) -> Decision | None:
    """A deny of any binding of the caller: it wins over every grant."""
    identity, tool = q.identity, q.tool
    if identity is None or tool is None:
        return Decision(False, Reason.DENIED)
    for b in q.policy.near(identity, tool.namespace).denying:
        if b.denies(tool):
            return Decision(False, Reason.DENIED, b.source, b.denial(tool))
    return None


def granted(q: Question) -> Decision:
    """What the bindings of the caller grant together, and what the token must carry; it always decides."""
    identity, tool, now = q.identity, q.tool, q.now
    if identity is None or tool is None:
        return Decision(False, Reason.NO_BINDING)
    wanted = frozenset(tool.scopes)
    if not wanted or any(map(is_reserved_scope, wanted)):
        return Decision(False, Reason.SCOPE_NOT_GRANTED)
    if identity.policy is _BINDINGS:
        return _granted(q.policy.near(identity, tool.namespace).every, tool, wanted, None, now)
    carried = wanted & (identity.scopes or frozenset())
    if identity.policy is _TOKEN:
        enough = carried == wanted if tool.scope_match is _ALL else bool(carried)
        return Decision(enough, Reason.GRANTED if enough else Reason.TOKEN_LACKS_SCOPE)
    return _granted(q.policy.near(identity, tool.namespace).every, tool, wanted, carried, now)


# ---- the order --------------------------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why a decision went as it did: its word for logs and metrics, the step and the check that find it, its meaning.

    Refusals stand in the order in which their checks are asked. Of those of one check, a later one says more: it was
    nearer to granting.
    """

    meaning: str
    step: Order | None
    """None: it allows, so every step was passed."""
    check: Check | None
    place: int
    """In the order, from 0."""

    GRANTED = "granted", "A binding grants it (or the token alone, if the issuer's policy says so)."
    ANONYMOUS_LIST = (
        "anonymous_list",
        "discovery.anonymous is `list`: definitions may be listed without a token.",
    )

    NO_IDENTITY = "no_identity", "No token, or an invalid one.", Order.IDENTITY, nobody
    IDENTITY_EXPIRED = (
        "identity_expired",
        "The token is not valid at this moment.",
        Order.IDENTITY,
        expired,
    )
    ACCOUNT_GONE = (
        "account_gone",
        "The token's ServiceAccount was deleted, or recreated since the token was issued.",
        Order.IDENTITY,
        account_gone,
    )
    AGENT_SUSPENDED = (
        "agent_suspended",
        "An Agent of this identity is suspended.",
        Order.IDENTITY,
        suspended,
    )

    UNKNOWN_TOOL = "unknown_tool", "There is no such tool.", Order.TOOL, unknown
    TOOL_DISABLED = "tool_disabled", "The tool's state is Disabled.", Order.TOOL, disabled
    TOOL_QUARANTINED = (
        "tool_quarantined",
        "The tool needs approval, and its definition or route is not the approved one.",
        Order.TOOL,
        quarantined,
    )

    DENIED = (
        "denied",
        "A binding of this identity denies the tool within its reach, by a pattern (`deny`) or a scope (`denyScopes`).",
        Order.DENY,
        denied,
    )

    NO_BINDING = "no_binding", "No binding of this identity reaches the tool.", Order.GRANT, granted
    SCOPE_NOT_GRANTED = (
        "scope_not_granted",
        "Bindings reach the tool, but do not grant its scope (or not all of them).",
        Order.GRANT,
        granted,
    )
    NOT_ALLOWED_BY_NAME = (
        "not_allowed_by_name",
        "A binding reaches the tool, but its allow list leaves it out.",
        Order.GRANT,
        granted,
    )
    NOT_VALID_NOW = (
        "not_valid_now",
        "A binding grants it, but not at this moment (notBefore, expiresAt).",
        Order.GRANT,
        granted,
    )

    TOKEN_LACKS_SCOPE = (
        "token_lacks_scope",
        "The token does not carry the scope that the issuer's policy requires.",
        Order.TOKEN,
        granted,
    )

    def __new__(cls, word: str, meaning: str, step: Order | None = None, check: Check | None = None) -> Self:
        if (step is None) != (check is None):
            raise TypeError(f"{word}: what refuses has a step and a check, what allows has neither")
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.meaning, reason.step, reason.check = meaning, step, check
        reason.place = len(cls.__members__)
        return reason


_GRANTED, _NO_BINDING, _SCOPE_NOT_GRANTED = Reason.GRANTED, Reason.NO_BINDING, Reason.SCOPE_NOT_GRANTED

CHECKS: tuple[Check, ...] = tuple(dict.fromkeys(r.check for r in Reason if r.check is not None))
"""Every check once, in the order in which they are asked."""


def _at(*steps: Order) -> tuple[Check, ...]:
    return tuple(dict.fromkeys(r.check for r in Reason if r.check is not None and r.step in steps))


_OF_IDENTITY, _OF_TOOL, _OF_BINDINGS = (
    _at(Order.IDENTITY),
    _at(Order.TOOL),
    _at(Order.DENY, Order.GRANT, Order.TOKEN),
)


def _in_order() -> bool:
    steps = [r.step for r in Reason if r.step is not None]
    return steps == sorted(steps) and CHECKS == _OF_IDENTITY + _OF_TOOL + _OF_BINDINGS


if not _in_order() or CHECKS[-1] is not granted:
    raise TypeError("Reason: entries stand by step, and none after those of `granted`, which always decides")


_NOT_DECIDED = Decision(False, _NO_BINDING)
"""Never the answer, since `granted` always decides."""


def _first(checks: Sequence[Check], q: Question) -> Decision | None:
    for check in checks:
        if (answer := check(q)) is not None:
            return answer
    return None


def decide(
    identity: Identity | None, tool: PublishedTool | None, action: Action, policy: Policy, now: float
) -> Decision:
    """Whether `identity` may do `action` with `tool` at `now` (seconds since the epoch). Fails closed."""
    q = Question(identity, tool, action, policy, now)
    for check in CHECKS:
        if (answer := check(q)) is not None:
            return answer
    return _NOT_DECIDED


def caller_refused(identity: Identity, policy: Policy, now: float) -> Decision | None:
    """Step 1: what is wrong with the caller, whatever the tool; None: nothing."""
    return _first(_OF_IDENTITY, Question(identity, None, Action.LIST, policy, now))


def tool_refused(q: Question) -> Decision | None:
    """Step 2: what is wrong with the tool, for any caller; None: nothing."""
    return _first(_OF_TOOL, q)


def reach(q: Question) -> Decision:
    """Steps 3 to 5: the decision for a valid identity, whatever the tool's state."""
    for check in _OF_BINDINGS:
        if (answer := check(q)) is not None:
            return answer
    return _NOT_DECIDED


def is_valid(identity: Identity, now: float) -> bool:
    """Whether a token that was verified earlier is valid at `now`, by its own dates."""
    if now >= identity.expires_at:
        return False
    # the same leeway as at verification: an issuer's clock may run ahead
    return identity.not_before is None or identity.not_before <= now + NOT_BEFORE_LEEWAY


# ---- what the bindings grant ------------------------------------------------------------------------------------------


def _granted(
    mine: tuple[CompiledBinding, ...],
    tool: PublishedTool,
    wanted: frozenset[str],
    carried: frozenset[str] | None,
    now: float,
) -> Decision:
    """Step 4, and step 5 where the token must carry the scope too (`carried` is not None)."""
    reason, blamed = _NO_BINDING, None
    together: set[str] = set()
    first: PublishedBinding | None = None
    for b in mine:
        given = b.scopes & wanted
        why = shortfall(b, tool, given, now)
        if why is not None:
            if why.place > reason.place:
                reason, blamed = why, b.source
            continue
        if tool.scope_match is _ALL:
            together |= given
            first = first or b.source
        elif carried is None or given & carried:
            return Decision(True, _GRANTED, b.source)
        else:
            first = first or b.source
    if tool.scope_match is _ALL and first is not None:
        if together != wanted:
            return Decision(False, _SCOPE_NOT_GRANTED, first)
        if carried is None or carried == wanted:
            return Decision(True, _GRANTED, first)
    if first is not None:
        return Decision(False, Reason.TOKEN_LACKS_SCOPE, first)
    return Decision(False, reason, blamed)


def shortfall(b: CompiledBinding, tool: PublishedTool, given: frozenset[str], now: float) -> Reason | None:
    """Why a binding does not grant `given` of the tool's scopes now; NO_BINDING: it does not reach the tool."""
    if not b.scopes or not b.in_namespaces(tool) or not b.in_servers(tool):
        return _NO_BINDING
    if not given:
        return _SCOPE_NOT_GRANTED
    if not b.allows(tool):
        return Reason.NOT_ALLOWED_BY_NAME
    if not b.valid(now):
        return Reason.NOT_VALID_NOW
    return None
