"""The authorizer: the one place that decides who may see and call what.

`decide` is pure. List, search, describe, load, call, watch and statistics all go through it. The order is that
of DESIGN §3: identity, tool active, no deny, a binding grants, the token carries the scope; the first *no* wins
and names itself. Whatever is missing or unknown ends in a *no*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from toolcrib.identity import NOT_BEFORE_LEEWAY, Identity, ScopesPolicy
from toolcrib.names import ToolPattern, is_reserved_scope
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedTool

SubjectKey = tuple[str, str, str]


class Action(StrEnum):
    """What the caller wants to do with the tool."""

    LIST = "list"
    SEARCH = "search"
    DESCRIBE = "describe"
    LOAD = "load"
    CALL = "call"
    WATCH = "watch"
    STATS = "stats"


class Reason(StrEnum):
    """Why a decision went as it did."""

    GRANTED = "granted"
    ANONYMOUS_LIST = "anonymous_list"
    NO_IDENTITY = "no_identity"
    IDENTITY_EXPIRED = "identity_expired"
    ACCOUNT_GONE = "account_gone"
    UNKNOWN_TOOL = "unknown_tool"
    TOOL_DISABLED = "tool_disabled"
    DENIED = "denied"
    NO_BINDING = "no_binding"
    NOT_VALID_NOW = "not_valid_now"
    NOT_ALLOWED_BY_NAME = "not_allowed_by_name"
    SCOPE_NOT_GRANTED = "scope_not_granted"
    TOKEN_LACKS_SCOPE = "token_lacks_scope"


MEANINGS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.GRANTED: "A binding (or, where the issuer's policy says so, the token alone) grants it.",
        Reason.ANONYMOUS_LIST: "discovery.anonymous is `list`: definitions may be listed without a token.",
        Reason.NO_IDENTITY: "No token, or one that proves nothing.",
        Reason.IDENTITY_EXPIRED: "The token is not valid at this moment.",
        Reason.ACCOUNT_GONE: "The token's ServiceAccount was deleted, or made anew since the token was issued.",
        Reason.UNKNOWN_TOOL: "There is no such tool.",
        Reason.TOOL_DISABLED: "The tool's state is Disabled.",
        Reason.DENIED: "A binding of this identity denies the tool within its reach, by a pattern (`deny`) or a scope (`denyScopes`).",
        Reason.NO_BINDING: "No binding of this identity reaches the tool.",
        Reason.NOT_VALID_NOW: "A binding would grant it, but not at this moment (notBefore, expiresAt).",
        Reason.NOT_ALLOWED_BY_NAME: "A binding reaches the tool, but its allow list leaves it out.",
        Reason.SCOPE_NOT_GRANTED: "Bindings reach the tool, but grant none (or not all) of its scopes.",
        Reason.TOKEN_LACKS_SCOPE: "The token does not carry the scope that the issuer's policy asks of it.",
    }
)


STEPS: Mapping[Reason, int] = MappingProxyType(
    {
        Reason.NO_IDENTITY: 1,
        Reason.IDENTITY_EXPIRED: 1,
        Reason.ACCOUNT_GONE: 1,
        Reason.UNKNOWN_TOOL: 2,
        Reason.TOOL_DISABLED: 2,
        Reason.DENIED: 3,
        Reason.NO_BINDING: 4,
        Reason.SCOPE_NOT_GRANTED: 4,
        Reason.NOT_ALLOWED_BY_NAME: 4,
        Reason.NOT_VALID_NOW: 4,
        Reason.TOKEN_LACKS_SCOPE: 5,
    }
)
"""At which step of the order (DESIGN §3) each *no* is found; what allows has passed all of them."""


class Denial(NamedTuple):
    """The entry of a binding that denies a tool: `field` is `deny` (a pattern) or `denyScopes` (a scope)."""

    field: str
    entry: str

    def __str__(self) -> str:
        return f"tools.{self.field}: {self.entry}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Allow or deny, why, and which binding (object and generation) decided, where one did.

    `denial` is the entry of that binding that denies; of other decisions None.
    """

    allowed: bool
    reason: Reason
    binding: PublishedBinding | None = None
    denial: Denial | None = None

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A binding with its patterns parsed."""

    source: PublishedBinding
    namespaces: frozenset[str] | None
    scopes: frozenset[str]
    servers: frozenset[tuple[str | None, str]] | None
    allow: tuple[ToolPattern, ...] | None
    deny: tuple[ToolPattern, ...]
    deny_scopes: frozenset[str]

    @classmethod
    def of(cls, b: PublishedBinding) -> _Compiled:
        servers: frozenset[tuple[str | None, str]] | None = None
        if b.servers is not None:
            pairs = (s.split("/", 1) for s in b.servers)
            servers = frozenset((p[0], p[1].lower()) if len(p) == 2 else (None, p[0].lower()) for p in pairs)
        return cls(
            source=b,
            namespaces=None if b.namespaces is None else frozenset(b.namespaces),
            scopes=frozenset(b.scopes),
            servers=servers,
            allow=None if b.allow is None else tuple(map(ToolPattern.parse, b.allow)),
            deny=tuple(map(ToolPattern.parse, b.deny)),
            deny_scopes=frozenset(b.deny_scopes),
        )

    def in_namespaces(self, tool: PublishedTool) -> bool:
        return self.namespaces is None or tool.namespace in self.namespaces

    def in_servers(self, tool: PublishedTool) -> bool:
        if self.servers is None:
            return True
        if tool.server is None:
            return False
        server = tool.server.lower()
        return (None, server) in self.servers or (tool.namespace, server) in self.servers

    def valid(self, now: float) -> bool:
        b = self.source
        return (b.not_before is None or b.not_before <= now) and (b.expires_at is None or now < b.expires_at)

    def allows(self, tool: PublishedTool) -> bool:
        return self.allow is None or _any_matches(self.allow, tool)

    def denies(self, tool: PublishedTool) -> bool:
        """Whatever its dates, and not narrowed by `servers`."""
        if not (self.deny or self.deny_scopes) or not self.in_namespaces(tool):
            return False
        return not self.deny_scopes.isdisjoint(tool.scopes) or _any_matches(self.deny, tool)

    def denial(self, tool: PublishedTool) -> Denial | None:
        """The first entry that denies the tool; patterns before scopes."""
        return next(self.denials(tool), None)

    def denials(self, tool: PublishedTool) -> Iterator[Denial]:
        """Every entry that denies the tool; patterns before scopes."""
        if not self.in_namespaces(tool):
            return
        for text, pattern in zip(self.source.deny, self.deny, strict=True):
            if _any_matches((pattern,), tool):
                yield Denial("deny", text)
        for scope in self.source.deny_scopes:
            if scope in tool.scopes:
                yield Denial("denyScopes", scope)

    def order(self) -> tuple[bool, str, str]:
        return (self.source.namespace is not None, self.source.namespace or "", self.source.name)


def _any_matches(patterns: Iterable[ToolPattern], tool: PublishedTool) -> bool:
    return any(p.matches(namespace=tool.namespace, server=tool.server, name=tool.name) for p in patterns)


def subject_keys(identity: Identity) -> tuple[SubjectKey, ...]:
    """Every key under which a binding may name this identity: always issuer (or cluster) and claim together."""
    keys: list[SubjectKey] = []
    account = identity.service_account
    if account is not None:
        keys.append(("sa", *account))
    if identity.client:
        keys.append(("client", identity.issuer, identity.client))
    if identity.user and not identity.cluster:
        keys.append(("user", identity.issuer, identity.user))
    keys.extend(("group", identity.issuer, g) for g in sorted(identity.groups))
    return tuple(keys)


def _binding_keys(binding: PublishedBinding) -> Iterable[SubjectKey]:
    for s in binding.subjects:
        match s.kind:
            case SubjectKind.SERVICE_ACCOUNT | SubjectKind.AGENT if s.namespace and s.name:
                yield ("sa", s.namespace, s.name)
            case SubjectKind.OAUTH_CLIENT if s.issuer and s.client_id:
                yield ("client", s.issuer, s.client_id)
            case SubjectKind.USER if s.issuer and s.name:
                yield ("user", s.issuer, s.name)
            case SubjectKind.GROUP if s.issuer and s.name:
                yield ("group", s.issuer, s.name)
            case _:
                continue


@dataclass(frozen=True)
class Policy:
    """All bindings, compiled and indexed by subject. Immutable: a change makes a new one."""

    by_subject: Mapping[SubjectKey, tuple[_Compiled, ...]] = field(default_factory=dict)
    anonymous_list: bool = False
    accounts: Mapping[tuple[str, str], str] | None = None
    """UIDs of bound ServiceAccounts by (namespace, name); None: not known here, none is checked."""
    _last: list[tuple[Identity, tuple[_Compiled, ...]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """The latest answer of `of`: a view asks it for one identity thousands of times."""

    @classmethod
    def compile(
        cls,
        bindings: Iterable[PublishedBinding],
        *,
        anonymous_list: bool = False,
        accounts: Mapping[tuple[str, str], str] | None = None,
    ) -> Policy:
        """Index `bindings`; the cost is paid once a revision."""
        table: dict[SubjectKey, list[_Compiled]] = {}
        for b in bindings:
            compiled = _Compiled.of(b)
            for key in set(_binding_keys(b)):
                table.setdefault(key, []).append(compiled)
        ordered = {k: tuple(sorted(v, key=_Compiled.order)) for k, v in table.items()}
        return cls(by_subject=MappingProxyType(ordered), anonymous_list=anonymous_list, accounts=accounts)

    def of(self, identity: Identity) -> tuple[_Compiled, ...]:
        """The bindings of this identity, cluster before namespaced, then by namespace and name.

        None of a ServiceAccount that is gone: neither what it was granted nor what it was denied says anything.
        """
        for last, answer in self._last:
            if last is identity:
                return answer
        found: dict[str, _Compiled] = {}
        for key in subject_keys(identity):
            for compiled in self.by_subject.get(key, ()):
                found[compiled.source.uid] = compiled
        answer = tuple(sorted(found.values(), key=_Compiled.order))
        if answer and not self._present(identity):
            answer = ()
        self._last[:] = [(identity, answer)]
        return answer

    def is_gone(self, identity: Identity) -> bool:
        """Whether it is a bound ServiceAccount that was deleted, or made anew since its token was issued."""
        if self._present(identity):
            return False
        return any(key in self.by_subject for key in subject_keys(identity))

    def _present(self, identity: Identity) -> bool:
        account = identity.service_account
        if account is None or self.accounts is None:
            return True
        return identity.account_uid is not None and self.accounts.get(account) == identity.account_uid

    def bindings_of(self, identity: Identity) -> tuple[PublishedBinding, ...]:
        """The same as published objects."""
        return tuple(c.source for c in self.of(identity))


_DENY_NO_IDENTITY = Decision(False, Reason.NO_IDENTITY)
_DENY_UNKNOWN = Decision(False, Reason.UNKNOWN_TOOL)
_DENY_DISABLED = Decision(False, Reason.TOOL_DISABLED)


def decide(
    identity: Identity | None, tool: PublishedTool | None, action: Action, policy: Policy, now: float
) -> Decision:
    """Whether `identity` may do `action` with `tool` at `now` (seconds since the epoch). Fails closed."""
    if identity is None:
        if policy.anonymous_list and action is Action.LIST and tool is not None and tool.active:
            return Decision(True, Reason.ANONYMOUS_LIST)
        return _DENY_NO_IDENTITY
    denied = standing(identity, tool, policy, now)
    if tool is None or denied is not None:
        return _DENY_UNKNOWN if denied is None else denied
    return reach(identity, tool, policy, now)


def standing(identity: Identity, tool: PublishedTool | None, policy: Policy, now: float) -> Decision | None:
    """Steps 1 and 2: why not, before any binding is asked; None: that is for `reach` to say."""
    if not is_valid(identity, now):
        return Decision(False, Reason.IDENTITY_EXPIRED)
    if policy.is_gone(identity):
        return Decision(False, Reason.ACCOUNT_GONE)
    if tool is None:
        return _DENY_UNKNOWN
    return None if tool.active else _DENY_DISABLED


def is_valid(identity: Identity, now: float) -> bool:
    """Step 1 for a token that was verified earlier: its own dates against the clock."""
    if now >= identity.expires_at:
        return False
    # the same leeway as at verification: an issuer's clock may run ahead
    return identity.not_before is None or identity.not_before <= now + NOT_BEFORE_LEEWAY


def next_validity(identity: Identity, now: float) -> float:
    """When an identity that is not valid at `now` becomes so: its start, or never."""
    start = (identity.not_before or 0.0) - NOT_BEFORE_LEEWAY
    return start if now < start < identity.expires_at else math.inf


def reach(identity: Identity, tool: PublishedTool, policy: Policy, now: float) -> Decision:
    """Steps 3 to 5: the decision for a valid identity, whatever the tool's state."""
    mine = policy.of(identity)
    for b in mine:
        if b.denies(tool):
            return Decision(False, Reason.DENIED, b.source, b.denial(tool))
    wanted = frozenset(tool.scopes)
    if not wanted or any(map(is_reserved_scope, wanted)):
        return Decision(False, Reason.SCOPE_NOT_GRANTED)
    if identity.policy is ScopesPolicy.BINDINGS:
        return _granted(mine, tool, wanted, None, now)
    carried = wanted & (identity.scopes or frozenset())
    if identity.policy is ScopesPolicy.TOKEN:
        enough = carried == wanted if tool.scope_match is ScopeMatch.ALL else bool(carried)
        return Decision(enough, Reason.GRANTED if enough else Reason.TOKEN_LACKS_SCOPE)
    return _granted(mine, tool, wanted, carried, now)


def _granted(
    mine: tuple[_Compiled, ...],
    tool: PublishedTool,
    wanted: frozenset[str],
    carried: frozenset[str] | None,
    now: float,
) -> Decision:
    """Step 4, and step 5 where the token must carry the scope too (`carried` is not None)."""
    reason, blamed = Reason.NO_BINDING, None
    together: set[str] = set()
    first: PublishedBinding | None = None
    for b in mine:
        given = b.scopes & wanted
        why = _shortfall(b, tool, given, now)
        if why is not None:
            if _RANK[why] > _RANK[reason]:
                reason, blamed = why, b.source
            continue
        if tool.scope_match is ScopeMatch.ALL:
            together |= given
            first = first or b.source
        elif carried is None or given & carried:
            return Decision(True, Reason.GRANTED, b.source)
        else:
            first = first or b.source
    if tool.scope_match is ScopeMatch.ALL and first is not None:
        if together != wanted:
            return Decision(False, Reason.SCOPE_NOT_GRANTED, first)
        if carried is None or carried == wanted:
            return Decision(True, Reason.GRANTED, first)
    if first is not None:
        return Decision(False, Reason.TOKEN_LACKS_SCOPE, first)
    return Decision(False, reason, blamed)


def alternatives(
    identity: Identity, tool: PublishedTool, policy: Policy, now: float
) -> tuple[tuple[PublishedBinding, ...], ...]:
    """Which bindings a granted call may be charged to: one of each group, in the groups' order.

    One group for `scopeMatch: Any`; one for each scope (sorted) for `All`, where each scope may come from another
    binding. Empty where no binding grants: the token alone decided, or nothing is granted.
    """
    if identity.policy is ScopesPolicy.TOKEN or not reach(identity, tool, policy, now):
        return ()
    wanted = frozenset(tool.scopes)
    if identity.policy is ScopesPolicy.INTERSECTION:
        wanted &= identity.scopes or frozenset()
    granting = [
        (b, given)
        for b in policy.of(identity)
        if (given := b.scopes & wanted) and _shortfall(b, tool, given, now) is None
    ]
    if tool.scope_match is ScopeMatch.ANY:
        return (tuple(b.source for b, _ in granting),)
    return tuple(tuple(b.source for b, given in granting if scope in given) for scope in sorted(wanted))


_RANK = {
    Reason.NO_BINDING: 0,
    Reason.SCOPE_NOT_GRANTED: 1,
    Reason.NOT_ALLOWED_BY_NAME: 2,
    Reason.NOT_VALID_NOW: 3,
}
"""Which reason says most where several bindings fall short: the one that was nearest to granting."""


def _shortfall(b: _Compiled, tool: PublishedTool, given: frozenset[str], now: float) -> Reason | None:
    """Why a binding does not grant `given` of the tool's scopes now; NO_BINDING: it does not reach the tool."""
    if not b.scopes or not b.in_namespaces(tool) or not b.in_servers(tool):
        return Reason.NO_BINDING
    if not given:
        return Reason.SCOPE_NOT_GRANTED
    if not b.allows(tool):
        return Reason.NOT_ALLOWED_BY_NAME
    if not b.valid(now):
        return Reason.NOT_VALID_NOW
    return None


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
        why, beyond = _shortfall(b, tool, given, now), None
        if why is Reason.NO_BINDING and b.scopes:
            beyond = "servers" if b.in_namespaces(tool) else "namespaces"
        found.append(Considered(b.source, b.denial(tool), given if why is None else frozenset(), why, beyond))
    return tuple(found)


def concerned(tool: PublishedTool, policy: Policy) -> tuple[PublishedBinding, ...]:
    """Every binding, whoever its subjects are, that denies the tool or may grant one of its scopes at some time."""
    found: dict[str, PublishedBinding] = {}
    passed: set[str] = set()
    wanted = frozenset(tool.scopes)
    for several in policy.by_subject.values():
        for b in several:
            if b.source.uid in passed:
                continue
            passed.add(b.source.uid)
            if b.denies(tool) or (wanted & b.scopes and b.in_namespaces(tool) and b.in_servers(tool)):
                found[b.source.uid] = b.source
    return tuple(found.values())


def has_power(identity: Identity | None, scope: str, policy: Policy, now: float) -> bool:
    """Whether the identity holds one of the registry's own powers (`registry:write`, `registry:admin`).

    Only cluster bindings and, where the issuer's policy says so, the token can give one; names, servers and
    territory do not narrow a power.
    """
    if identity is None or not is_reserved_scope(scope) or not is_valid(identity, now):
        return False
    if policy.is_gone(identity):
        return False
    carries = scope in (identity.scopes or frozenset())
    if identity.policy is ScopesPolicy.TOKEN:
        return carries
    if identity.policy is ScopesPolicy.INTERSECTION and not carries:
        return False
    return any(b.source.namespace is None and scope in b.scopes and b.valid(now) for b in policy.of(identity))


def granted_scopes(identity: Identity | None, policy: Policy, now: float) -> tuple[str, ...]:
    """The scopes in force for this identity now, sorted: what discovery shows as `scopes`."""
    if identity is None or not is_valid(identity, now) or policy.is_gone(identity):
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
        return next_validity(identity, now)
    moments = [identity.expires_at]
    for b in policy.of(identity):
        moments.extend(t for t in (b.source.not_before, b.source.expires_at) if t is not None and t > now)
    return min(moments)


def matcher(binding: PublishedBinding) -> Callable[[PublishedTool], bool]:
    """Whether an active tool is within a binding's reach, whoever asks and whatever the dates.

    What `matchedTools` counts: tools the binding grants a scope of, or those it denies where it only denies.
    """
    b = _Compiled.of(binding)

    def reaches(tool: PublishedTool) -> bool:
        if not tool.active or not b.in_namespaces(tool):
            return False
        if not b.scopes:
            return b.denies(tool)
        if not b.in_servers(tool) or not b.scopes.intersection(tool.scopes) or not b.allows(tool):
            return False
        return not b.denies(tool)

    return reaches


def denials(binding: PublishedBinding) -> Callable[[PublishedTool], Iterator[Denial]]:
    """Every entry of the binding that denies a tool within its reach, whatever the tool's state."""
    return _Compiled.of(binding).denials


def deniers(policy: Policy) -> Callable[[PublishedTool], dict[str, PublishedBinding]]:
    """Every binding that denies a tool, whoever its subjects are, by UID."""
    compiled = {b.source.uid: b for several in policy.by_subject.values() for b in several if b.source.denies}
    return lambda tool: {uid: b.source for uid, b in compiled.items() if b.denies(tool)}
