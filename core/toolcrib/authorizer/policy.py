"""All bindings of a revision, compiled and found by whom they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.identity import Identity
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedSubject, PublishedTool

SubjectKey = tuple[str, str, str]


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


def subject_key(subject: PublishedSubject) -> SubjectKey | None:
    """The key under which a binding names this subject; None: nobody."""
    match subject.kind:
        case SubjectKind.SERVICE_ACCOUNT | SubjectKind.AGENT if subject.namespace and subject.name:
            return "sa", subject.namespace, subject.name
        case SubjectKind.OAUTH_CLIENT if subject.issuer and subject.client_id:
            return "client", subject.issuer, subject.client_id
        case SubjectKind.USER if subject.issuer and subject.name:
            return "user", subject.issuer, subject.name
        case SubjectKind.GROUP if subject.issuer and subject.name:
            return "group", subject.issuer, subject.name
        case _:
            return None


class Near(NamedTuple):
    """The bindings of an identity that can say anything of the tools of one namespace, in the order of `Policy.of`."""

    every: tuple[CompiledBinding, ...] = ()
    denying: tuple[CompiledBinding, ...] = ()
    """Those of them that deny anything."""


_NOTHING = Near()


class _Mine:
    """What was found for one identity so far."""

    __slots__ = ("every", "identity", "near", "suspension")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.every: tuple[CompiledBinding, ...] | None = None
        self.suspension: PublishedBinding | None = None
        self.near: dict[str, Near] = {}


_REMEMBERED = 256
"""Identities whose bindings are remembered, and namespaces of each."""


@dataclass(frozen=True)
class Policy:
    """All bindings, compiled and indexed by subject, and by subject and the namespace in which they stand.

    Immutable: a change makes a new one.

    A namespaced binding says nothing of another namespace's tools, so a decision does not look at it: bindings that
    others write in their namespaces cost them nothing but there.
    """

    by_subject: Mapping[SubjectKey, tuple[CompiledBinding, ...]] = field(default_factory=dict)
    by_place: Mapping[tuple[SubjectKey, str | None], tuple[CompiledBinding, ...]] = field(
        default_factory=dict, repr=False
    )
    """Of one subject, those that reach one namespace, their own; None: all others."""
    anonymous_list: bool = False
    accounts: Mapping[tuple[str, str], str] | None = None
    """UIDs of bound ServiceAccounts by (namespace, name); None: not known here, none is checked."""
    _known: dict[int, _Mine] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By `id` of the identity, which is kept: a view asks for one identity thousands of times."""

    @classmethod
    def compile(
        cls,
        bindings: Iterable[PublishedBinding],
        *,
        anonymous_list: bool = False,
        accounts: Mapping[tuple[str, str], str] | None = None,
    ) -> Policy:
        """Index `bindings`; the cost is paid once a revision."""
        table: dict[SubjectKey, list[CompiledBinding]] = {}
        for b in bindings:
            compiled = CompiledBinding.of(b)
            for key in {key for s in b.subjects if (key := subject_key(s)) is not None}:
                table.setdefault(key, []).append(compiled)
        ordered = {k: tuple(sorted(v, key=CompiledBinding.order)) for k, v in table.items()}
        places: dict[tuple[SubjectKey, str | None], list[CompiledBinding]] = {}
        for key, several in ordered.items():
            for compiled in several:
                own = compiled.source.namespace
                alone = own if own is not None and compiled.namespaces == frozenset((own,)) else None
                places.setdefault((key, alone), []).append(compiled)
        return cls(
            by_subject=MappingProxyType(ordered),
            by_place=MappingProxyType({place: tuple(v) for place, v in places.items()}),
            anonymous_list=anonymous_list,
            accounts=accounts,
        )

    def of(self, identity: Identity) -> tuple[CompiledBinding, ...]:
        """The bindings of this identity, cluster before namespaced, then by namespace and name.

        None of a ServiceAccount that is gone: neither what it was granted nor what it was denied says anything.
        """
        mine = self._mine(identity)
        if mine.every is None:
            found = [self.by_subject.get(key, ()) for key in subject_keys(identity)]
            mine.every = _merged(found) if self._present(identity) else ()
            mine.suspension = next((b.source for b in mine.every if b.source.suspends), None)
        return mine.every

    def near(self, identity: Identity, namespace: str) -> Near:
        """Those of `of` that can say anything of the tools of `namespace`: cluster bindings, and those in it."""
        mine = self._mine(identity)
        known = mine.near.get(namespace)
        if known is None:
            every: tuple[CompiledBinding, ...] = ()
            if self._present(identity):
                keys = subject_keys(identity)
                places: tuple[str | None, ...] = (None, namespace)
                every = _merged([self.by_place.get((key, place), ()) for place in places for key in keys])
                every = tuple(b for b in every if b.namespaces is None or namespace in b.namespaces)
            known = Near(every, tuple(b for b in every if b.source.denies)) if every else _NOTHING
            if len(mine.near) >= _REMEMBERED:
                mine.near.clear()
            mine.near[namespace] = known
        return known

    def suspension(self, identity: Identity) -> PublishedBinding | None:
        """The Agent of this identity that is suspended, the first if there are several; None: it is not suspended."""
        self.of(identity)
        return self._mine(identity).suspension

    def _mine(self, identity: Identity) -> _Mine:
        known = self._known.get(id(identity))
        if known is None or known.identity is not identity:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[id(identity)] = _Mine(identity)
        return known

    def is_gone(self, identity: Identity) -> bool:
        """Whether it is a bound ServiceAccount that was deleted, or recreated since its token was issued."""
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


def _merged(several: Iterable[tuple[CompiledBinding, ...]]) -> tuple[CompiledBinding, ...]:
    """All of them once, in order."""
    parts = [part for part in several if part]
    if len(parts) == 1:
        return parts[0]
    found = {b.source.uid: b for part in parts for b in part}
    return tuple(sorted(found.values(), key=CompiledBinding.order))


def concerned(tool: PublishedTool, policy: Policy) -> tuple[PublishedBinding, ...]:
    """Every binding, for any subjects, that denies the tool or may grant one of its scopes at some time."""
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


def deniers(policy: Policy) -> Callable[[PublishedTool], dict[str, PublishedBinding]]:
    """Every binding that denies a tool, for any subjects, by UID."""
    compiled = {b.source.uid: b for several in policy.by_subject.values() for b in several if b.source.denies}
    return lambda tool: {uid: b.source for uid, b in compiled.items() if b.denies(tool)}
