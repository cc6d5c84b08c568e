"""Whom a question is about: a subject as people write it, and the identity that a token of theirs would prove.

`ServiceAccount/ns/name` (also `ns/name` and `system:serviceaccount:ns:name`), `Agent/ns/name`, `OAuthClient/id`,
`User/name` and `Group/name`; the last three belong to an issuer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from toolcrib import names
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedSubject

SYNTAX = "NAMESPACE/NAME or ServiceAccount/NAMESPACE/NAME, Agent/NAMESPACE/NAME, OAuthClient/ID, User/NAME or Group/NAME"
IN_CLUSTER = frozenset({SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT})
ACCOUNTS = "system:serviceaccounts"
_LENGTH = 512


class SubjectError(ValueError):
    """A subject that cannot be understood; the message says how it is written."""


@dataclass(frozen=True, slots=True)
class Who:
    """A subject. `name` is the client id of an OAuthClient; `namespace` goes with those of the cluster alone."""

    kind: SubjectKind
    name: str
    namespace: str | None = None
    issuer: str | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind.value, self.namespace, self.name) if part)

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for those that the same bindings name: an Agent is the service account that its pods run as."""
        if self.kind in IN_CLUSTER:
            return ("ServiceAccount", self.namespace or "", self.name)
        return (self.kind.value, self.issuer or "", self.name)

    @classmethod
    def of(cls, subject: PublishedSubject) -> Who | None:
        """A published subject; None for one that names nobody."""
        name = subject.client_id if subject.kind is SubjectKind.OAUTH_CLIENT else subject.name
        place = subject.namespace if subject.kind in IN_CLUSTER else subject.issuer
        if not name or not place:
            return None
        inside = subject.kind in IN_CLUSTER
        return cls(subject.kind, name, place if inside else None, None if inside else place)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is taken to be known of tokens.

    Args:
        cluster_issuer: the issuer of the cluster's service accounts.
        policies: where scopes come from, by issuer; an issuer that is not there has its kind's default.
        closed: `policies` holds every issuer that is trusted; another's tokens prove nobody.
        scopes: what a token carries; None: none at all where bindings decide, and everything that bindings ask for
            where both count.
        groups: further groups; of tokens that are not of a service account.
        client: the OAuth client of a user's token.
    """

    cluster_issuer: str = ""
    policies: Mapping[str, ScopesPolicy] = field(default_factory=dict)
    scopes: frozenset[str] | None = None
    groups: frozenset[str] = frozenset()
    client: str | None = None
    closed: bool = False

    def trusts(self, issuer: str) -> bool:
        """Whether tokens of this issuer may be accepted."""
        return not self.closed or issuer in self.policies


def parse(text: str, issuer: str | None = None) -> Who:
    """A subject as people write it; `issuer` of those that need one may come later (`settled`).

    Raises:
        SubjectError: it is none.
    """
    if not text or len(text) > _LENGTH:
        raise SubjectError(f"not a subject: {text[:64]!r}; write {SYNTAX}")
    if text.startswith("system:serviceaccount:"):
        return _account(SubjectKind.SERVICE_ACCOUNT, text.split(":")[2:], text)
    first, slash, rest = text.partition("/")
    if first in (SubjectKind.SERVICE_ACCOUNT.value, SubjectKind.AGENT.value):
        return _account(SubjectKind(first), rest.split("/"), text)
    if slash and first in frozenset(SubjectKind):
        if not rest:
            raise SubjectError(f"{text!r} names nobody; write {first}/NAME")
        return Who(SubjectKind(first), rest, issuer=issuer)
    close = next((k for k in SubjectKind if k.value.lower() == first.lower()), None)
    if close is not None and text.count("/") != 1:
        raise SubjectError(f"not a subject: {text!r}; write the kind as {close.value}")
    return _account(SubjectKind.SERVICE_ACCOUNT, text.split("/"), text)


def settled(who: Who, snapshot: Snapshot, tokens: Tokens) -> Who:
    """The same subject with its issuer: where only one names it in the bindings, or only one is known, that one.

    Raises:
        SubjectError: several issuers, or none, could be meant.
    """
    if who.kind in IN_CLUSTER or who.issuer:
        return who
    if who.kind is SubjectKind.GROUP and is_accounts_group(who.name) and tokens.cluster_issuer:
        return replace(who, issuer=tokens.cluster_issuer)
    word = {SubjectKind.OAUTH_CLIENT: "client", SubjectKind.USER: "user"}.get(who.kind, "group")
    named = sorted({i for kind, i, name in snapshot.policy.by_subject if kind == word and name == who.name})
    found = named or [i for i in tokens.policies if i != tokens.cluster_issuer]
    if len(found) == 1:
        return replace(who, issuer=found[0])
    several = f"bindings name it with {', '.join(named)}" if named else "no binding names it"
    raise SubjectError(f"several issuers may have {who} ({several}). Specify its issuer")


def identity_of(who: Who, snapshot: Snapshot, tokens: Tokens) -> Identity | None:
    """What a valid token of this subject proves; None: no token is accepted that would.

    A service account has the UID under which the snapshot knows it, so that one that exists is taken to be it.
    """
    if not tokens.trusts(_issuer_of(who, tokens)):
        return None
    if who.kind in IN_CLUSTER:
        return _of_account(who, snapshot, tokens)
    issuer = who.issuer or ""
    if who.kind is SubjectKind.GROUP and is_accounts_group(who.name):
        if issuer != tokens.cluster_issuer:
            return None
        return _identity(issuer, "", tokens, groups=frozenset({ACCOUNTS, who.name}), cluster=True)
    if who.name.startswith("system:") or (
        issuer and issuer == tokens.cluster_issuer and _policy(tokens, issuer, True) is not ScopesPolicy.LOCAL
    ):
        return None  # `system:` belongs to the cluster's issuer, and that one has service accounts alone
    groups = frozenset(g for g in tokens.groups if not g.startswith("system:"))
    if who.kind is SubjectKind.GROUP:
        groups |= {who.name}
    client = who.name if who.kind is SubjectKind.OAUTH_CLIENT else tokens.client
    user = who.name if who.kind is SubjectKind.USER else None
    made = _identity(issuer, who.name, tokens, groups=groups, client=client, user=user)
    if made.policy is ScopesPolicy.INTERSECTION and tokens.scopes is None:
        asked = (b.scopes for b in snapshot.policy.bindings_of(made))
        made = replace(made, scopes=frozenset(scope for scopes in asked for scope in scopes))
    return made


def why_nobody(who: Who, tokens: Tokens) -> str:
    """Why `identity_of` finds no identity of this subject."""
    issuer = _issuer_of(who, tokens)
    if tokens.trusts(issuer):
        return "this registry accepts no token for such a subject"
    return (
        f"this registry does not trust the issuer {issuer}"
        if issuer
        else "this registry trusts no cluster issuer"
    )


def accounts_issuers(snapshot: Snapshot) -> set[str]:
    """The issuers whose groups of service accounts bindings name; in truth only the cluster's has such groups."""
    return {i for kind, i, name in snapshot.policy.by_subject if kind == "group" and is_accounts_group(name)}


def assumes_scopes(identity: Identity | None, tokens: Tokens) -> bool:
    """Whether the token is taken to carry whatever scope its bindings ask for."""
    return tokens.scopes is None and identity is not None and identity.policy is ScopesPolicy.INTERSECTION


def _issuer_of(who: Who, tokens: Tokens) -> str:
    return tokens.cluster_issuer if who.kind in IN_CLUSTER else who.issuer or ""


def _of_account(who: Who, snapshot: Snapshot, tokens: Tokens) -> Identity:
    known = (snapshot.accounts or {}).get(f"{who.namespace}/{who.name}")
    return replace(
        _identity(
            tokens.cluster_issuer,
            f"system:serviceaccount:{who.namespace}:{who.name}",
            tokens,
            groups=frozenset({ACCOUNTS, f"{ACCOUNTS}:{who.namespace}"}),
            cluster=True,
        ),
        cluster=True,
        account_uid=None if known is None else known.uid,
    )


def _identity(
    issuer: str,
    subject: str,
    tokens: Tokens,
    *,
    groups: frozenset[str],
    client: str | None = None,
    user: str | None = None,
    cluster: bool = False,
) -> Identity:
    policy = _policy(tokens, issuer, cluster)
    if policy is ScopesPolicy.LOCAL:
        policy = ScopesPolicy.BINDINGS if tokens.scopes is None else ScopesPolicy.TOKEN
    return Identity(
        issuer=issuer,
        subject=subject,
        expires_at=math.inf,
        client=client,
        user=user,
        groups=groups,
        scopes=None if policy is ScopesPolicy.BINDINGS else tokens.scopes or frozenset(),
        policy=policy,
    )


def _policy(tokens: Tokens, issuer: str, cluster: bool) -> ScopesPolicy:
    return tokens.policies.get(issuer, ScopesPolicy.BINDINGS if cluster else ScopesPolicy.INTERSECTION)


def is_accounts_group(group: str) -> bool:
    """Whether it is one of the groups that the cluster's issuer implies."""
    return group == ACCOUNTS or group.startswith(f"{ACCOUNTS}:")


def _account(kind: SubjectKind, parts: list[str], text: str) -> Who:
    if len(parts) != 2 or not all(parts):
        raise SubjectError(f"not a subject: {text!r}; write {SYNTAX}")
    namespace, name = parts
    if re.fullmatch(names.DNS_LABEL[1:-1], namespace) is None or not re.fullmatch(
        names.DNS_SUBDOMAIN[1:-1], name
    ):
        raise SubjectError(f"not a namespace and a name: {text!r}; write {kind.value}/NAMESPACE/NAME")
    return Who(kind, name, namespace)
