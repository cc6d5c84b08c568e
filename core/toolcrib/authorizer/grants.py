"""What the bindings give a caller, beyond one yes or no: which of them, which scopes and powers, and until when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from toolcrib.authorizer.bindings import CompiledBinding, Denial
from toolcrib.authorizer.chain import Action, Question, Reason, caller_refused, is_valid, reach, shortfall
from toolcrib.authorizer.policy import Policy
from toolcrib.identity import NOT_BEFORE_LEEWAY, Identity, ScopesPolicy
from toolcrib.names import is_reserved_scope
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedTool


class Given(NamedTuple):
    """What one binding grants of a tool's scopes to one caller."""

    binding: CompiledBinding
    scopes: frozenset[str]


def givers(
    identity: Identity, tool: PublishedTool, policy: Policy, now: float
) -> tuple[frozenset[str], tuple[Given, ...]]:
    """The scopes of the tool that count for this caller, and each binding that grants some of them now.

    Nothing, where the tool is not granted or the token alone decided.
    """
    if identity.policy is ScopesPolicy.TOKEN or not reach(Question(identity, tool, Action.CALL, policy, now)):
        return frozenset(), ()
    wanted = frozenset(tool.scopes)
    if identity.policy is ScopesPolicy.INTERSECTION:
        wanted &= identity.scopes or frozenset()
    found = (
        Given(b, given)
        for b in policy.near(identity, tool.namespace).every
        if (given := b.scopes & wanted) and shortfall(b, tool, given, now) is None
    )
    return wanted, tuple(found)


def alternatives(
    identity: Identity, tool: PublishedTool, policy: Policy, now: float
) -> tuple[tuple[PublishedBinding, ...], ...]:
    """Which bindings a granted call may be charged to: one of each group, in the groups' order.

    One group for `scopeMatch: Any`; one for each scope (sorted) for `All`, where each scope may come from another
    binding. Empty where no binding grants: the token alone decided, or nothing is granted.
    """
    wanted, granting = givers(identity, tool, policy, now)
    if not granting:
        return ()
    if tool.scope_match is ScopeMatch.ANY:
        return (tuple(given.binding.source for given in granting),)
    return tuple(
        tuple(given.binding.source for given in granting if scope in given.scopes) for scope in sorted(wanted)
    )


@dataclass(frozen=True, slots=True)
class Considered:
    """What one binding of an identity says of one tool: what steps 3 and 4 weigh.

    `denies` is the entry that denies it within the binding's reach. `grants` are the tool's scopes that it grants now;
    where there are none, `shortfall` says why, and `beyond` which field keeps the tool out of its reach
    (`namespaces` or `servers`; None: it grants no scopes at all).
    """

    binding: PublishedBinding
    denies: Denial | None
    grants: frozenset[str]
    shortfall: Reason | None
    beyond: str | None = None


def considered(identity: Identity, tool: PublishedTool, policy: Policy, now: float) -> tuple[Considered, ...]:
    """What each binding of this identity says of the tool, in the order in which they are asked. For explanations."""
    found = []
    wanted = frozenset(s for s in tool.scopes if not is_reserved_scope(s))
    for b in policy.of(identity):
        given = b.scopes & wanted
        why, beyond = shortfall(b, tool, given, now), None
        if why is Reason.NO_BINDING and b.scopes:
            beyond = "servers" if b.in_namespaces(tool) else "namespaces"
        found.append(Considered(b.source, b.denial(tool), given if why is None else frozenset(), why, beyond))
    return tuple(found)


def has_power(identity: Identity | None, scope: str, policy: Policy, now: float) -> bool:
    """Whether the identity holds one of the registry's own powers (`registry:write`, `registry:admin`).

    Only cluster bindings and, where the issuer's policy says so, the token can give one; names, servers and
    territory do not narrow a power.
    """
    if identity is None or not is_reserved_scope(scope) or caller_refused(identity, policy, now) is not None:
        return False
    carries = scope in (identity.scopes or frozenset())
    if identity.policy is ScopesPolicy.TOKEN:
        return carries
    if identity.policy is ScopesPolicy.INTERSECTION and not carries:
        return False
    return any(b.source.namespace is None and scope in b.scopes and b.valid(now) for b in policy.of(identity))


def granted_scopes(identity: Identity | None, policy: Policy, now: float) -> tuple[str, ...]:
    """The scopes in effect for this identity now, sorted: what discovery shows as `scopes`."""
    if identity is None or caller_refused(identity, policy, now) is not None:
        return ()
    if identity.policy is ScopesPolicy.TOKEN:
        return tuple(sorted(identity.scopes or ()))
    given: set[str] = set()
    for b in policy.of(identity):
        if b.valid(now):
            given |= (
                b.scopes if b.source.namespace is None else {s for s in b.scopes if not is_reserved_scope(s)}
            )
    if identity.policy is ScopesPolicy.INTERSECTION:
        given &= identity.scopes or frozenset()
    return tuple(sorted(given))


def next_change(identity: Identity, policy: Policy, now: float) -> float:
    """Until when a decision for this identity holds by itself: the earliest expiry or start after `now`."""
    if not is_valid(identity, now):
        return _next_validity(identity, now)
    moments = [identity.expires_at]
    for b in policy.of(identity):
        moments.extend(t for t in (b.source.not_before, b.source.expires_at) if t is not None and t > now)
    return min(moments)


def _next_validity(identity: Identity, now: float) -> float:
    """When an identity that is not valid at `now` becomes so: its start, or never."""
    start = (identity.not_before or 0.0) - NOT_BEFORE_LEEWAY
    return start if now < start < identity.expires_at else math.inf
