"""Who holds a scope: which subjects, by which bindings, over which tools, and until when."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Literal

from toolcrib.access.answers import Holder, WhoHolds
from toolcrib.access.review import AccessReview, order_of, shown
from toolcrib.access.rules import moment
from toolcrib.access.subjects import Who, why_nobody
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.wire.publish import PublishedBinding

_State = Literal["in_effect", "denied", "expired", "not_yet", "account_gone", "not_trusted", "token_decides"]


def who_holds(
    review: AccessReview,
    scope: str,
    *,
    namespace: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> WhoHolds:
    """The subjects that bindings grant `scope`, one line for each binding of a subject.

    Args:
        review: the snapshot and the moment.
        scope: one scope, as Tools and bindings write it.
        namespace: only bindings that reach tools of this one.
        after: only lines that come later (`next_cursor` of the page before).
        limit: at most so many.
    """
    lines = sorted(_lines(review, scope, namespace), key=lambda line: line[0])
    chosen = [line for line in lines if line[0] > after]
    more = limit is not None and len(chosen) > limit
    chosen = chosen if limit is None else chosen[:limit]
    head = review.head(None, None, namespace)
    return WhoHolds(
        **{**head, "notes": (*head["notes"], *_unknown(review, scope))},  # type: ignore[misc]
        scope=scope,
        tools=sum(scope in tool.scopes for tool in review.snapshot.tools.values()),
        holders=tuple(holder for _, holder in chosen),
        next_cursor=chosen[-1][0] if more else None,
    )


def _lines(review: AccessReview, scope: str, namespace: str | None) -> Iterator[tuple[str, Holder]]:
    for who in review.subjects():
        identity = review.identity(who)
        policy = review.snapshot.policy
        if identity is None or policy.is_gone(identity):
            bindings: Sequence[PublishedBinding] = _named(review, who)
        else:
            bindings = policy.bindings_of(identity)
        denying = [b for b in bindings if scope in b.deny_scopes]
        for binding in bindings:
            if scope in binding.scopes and _reaches(binding, namespace):
                yield (
                    f"{order_of(who)} {binding.ref}",
                    _holder(review, who, identity, binding, denying),
                )


def _named(review: AccessReview, who: Who) -> list[PublishedBinding]:
    """The bindings that name a subject who has none by the policy: no token proves it, or its account is gone."""
    every = sorted(review.snapshot.bindings.values(), key=lambda b: b.ref)
    return [b for b in every if any((w := Who.of(s)) is not None and w.key == who.key for s in b.subjects)]


def _reaches(binding: PublishedBinding, namespace: str | None) -> bool:
    return namespace is None or binding.namespaces is None or namespace in binding.namespaces


def _holder(
    review: AccessReview,
    who: Who,
    identity: Identity | None,
    binding: PublishedBinding,
    denying: list[PublishedBinding],
) -> Holder:
    against = [d for d in denying if _meet(d, binding)]
    state, detail = _state(review, who, identity, binding, against)
    return Holder(
        who=shown(who),
        binding=review.rules.binding(binding),
        holds=state == "in_effect",
        state=state,
        detail=detail,
        namespaces=binding.namespaces,
        servers=binding.servers,
        allow=binding.allow,
        denied_by=tuple(map(review.rules.binding, against)),
        token_needs_scope=identity is not None and identity.policy is ScopesPolicy.INTERSECTION,
        not_before=None if binding.not_before is None else moment(binding.not_before),
        until=None if binding.expires_at is None else moment(binding.expires_at),
        limits=binding.limits,
    )


def _state(
    review: AccessReview,
    who: Who,
    identity: Identity | None,
    binding: PublishedBinding,
    against: list[PublishedBinding],
) -> tuple[_State, str]:
    if identity is None:
        return "not_trusted", why_nobody(who, review.tokens)
    if review.snapshot.policy.is_gone(identity):
        return "account_gone", f"the ServiceAccount {who.namespace}/{who.name} does not exist"
    if identity.policy is ScopesPolicy.TOKEN:
        return "token_decides", "the scopes of this issuer's tokens decide alone, whatever bindings grant"
    if binding.expires_at is not None and binding.expires_at <= review.now:
        return "expired", f"expired at {moment(binding.expires_at)}"
    if binding.not_before is not None and binding.not_before > review.now:
        return "not_yet", f"begins at {moment(binding.not_before)}"
    for denial in against:
        if _covers(denial, binding):
            return "denied", f"{denial.ref} denies the scope"
    return "in_effect", ""


def _meet(denial: PublishedBinding, grant: PublishedBinding) -> bool:
    """Whether a denial reaches any tool that the grant reaches."""
    if denial.namespaces is None or grant.namespaces is None:
        return True
    return not set(denial.namespaces).isdisjoint(grant.namespaces)


def _covers(denial: PublishedBinding, grant: PublishedBinding) -> bool:
    """Whether a denial reaches every tool that the grant reaches."""
    if denial.namespaces is None:
        return True
    return grant.namespaces is not None and set(grant.namespaces) <= set(denial.namespaces)


def _unknown(review: AccessReview, scope: str) -> Iterator[str]:
    """A note where nothing has this scope."""
    known = scopes(review)
    if scope not in known:
        close = difflib.get_close_matches(scope, known, 2)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        yield f"no tool and no binding has the scope {scope}{meant}"


def scopes(review: AccessReview) -> list[str]:
    """Every scope that a tool or a binding has, sorted."""
    held = (s for b in review.snapshot.bindings.values() for s in (*b.scopes, *b.deny_scopes))
    return sorted({*held, *(s for tool in review.snapshot.tools.values() for s in tool.scopes)})
