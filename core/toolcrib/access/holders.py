"""Who holds a scope: which subjects, by which bindings, over which tools, and until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from toolcrib.access.answers import Holder, WhoHolds
from toolcrib.access.notes import meant
from toolcrib.access.review import AccessReview, order_of, shown
from toolcrib.access.rules import moment
from toolcrib.access.subjects import Who, why_nobody
from toolcrib.authorizer import Reason, granting
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.wire.publish import PublishedBinding

_State = Literal[
    "in_effect", "denied", "expired", "not_yet", "account_gone", "suspended", "not_trusted", "token_decides"
]


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
    found = sorted(_grants(review, scope, namespace), key=lambda grant: grant[0])
    chosen = [grant for grant in found if grant[0] > after]
    more = limit is not None and len(chosen) > limit
    chosen = chosen if limit is None else chosen[:limit]
    head = review.head(None, None, namespace)
    return WhoHolds(
        **{**head, "notes": (*head["notes"], *_unknown(review, scope))},
        scope=scope,
        tools=sum(scope in tool.scopes for tool in review.snapshot.tools.values()),
        holders=tuple(_holder(review, scope, who, identity, by) for _, who, identity, by in chosen),
        next_cursor=chosen[-1][0] if more else None,
    )


def _grants(
    review: AccessReview, scope: str, namespace: str | None
) -> Iterator[tuple[str, Who, Identity | None, PublishedBinding]]:
    """Each grant of the scope: its place in the order, the subject, its identity, the binding."""
    by_name = _by_name(review.snapshot.bindings.values())
    policy = review.snapshot.policy
    for who in review.subjects():
        identity = review.identity(who)
        # no token proves it, or its account is gone: the policy knows of no binding
        named = identity is None or policy.is_gone(identity)
        bindings = by_name[who.key] if named or identity is None else policy.bindings_of(identity)
        for binding in bindings:
            if scope in binding.scopes and _reaches(binding, namespace):
                yield f"{order_of(who)} {binding.ref}", who, identity, binding


def _by_name(bindings: Iterable[PublishedBinding]) -> Mapping[object, list[PublishedBinding]]:
    """The bindings that name each subject, by its key."""
    found: defaultdict[object, list[PublishedBinding]] = defaultdict(list)
    for binding in sorted(bindings, key=lambda b: b.ref):
        for key in {who.key for s in binding.subjects if (who := Who.of(s)) is not None}:
            found[key].append(binding)
    return found


def _reaches(binding: PublishedBinding, namespace: str | None) -> bool:
    return namespace is None or binding.namespaces is None or namespace in binding.namespaces


def _holder(
    review: AccessReview, scope: str, who: Who, identity: Identity | None, binding: PublishedBinding
) -> Holder:
    state, detail, against = _state(review, scope, who, identity, binding)
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
    review: AccessReview, scope: str, who: Who, identity: Identity | None, binding: PublishedBinding
) -> tuple[_State, str, tuple[PublishedBinding, ...]]:
    """What keeps the grant from its effect, in words, and the bindings that deny it."""
    if identity is None:
        return "not_trusted", why_nobody(who, review.tokens), ()
    if review.snapshot.policy.is_gone(identity):
        return "account_gone", f"the ServiceAccount {who.namespace}/{who.name} does not exist", ()
    if (stopped := review.snapshot.policy.suspension(identity)) is not None:
        return "suspended", f"{stopped.ref} is suspended", ()
    if identity.policy is ScopesPolicy.TOKEN:
        return (
            "token_decides",
            "this issuer's tokens decide by their scopes alone, whatever bindings grant",
            (),
        )
    if binding.expires_at is not None and binding.expires_at <= review.now:
        return "expired", f"expired at {moment(binding.expires_at)}", ()
    if binding.not_before is not None and binding.not_before > review.now:
        return "not_yet", f"begins at {moment(binding.not_before)}", ()
    against = _denying(review, scope, identity, binding)
    if against:
        denials = ", ".join(sorted(b.ref for b in against))
        return "denied", f"every tool with the scope in its reach is denied: {denials}", against
    return "in_effect", "", ()


def _denying(
    review: AccessReview, scope: str, identity: Identity, binding: PublishedBinding
) -> tuple[PublishedBinding, ...]:
    """The bindings that deny the tools that the grant reaches with this scope, if they deny all of them."""
    reach = None if binding.namespaces is None else frozenset(binding.namespaces)
    found: dict[str, PublishedBinding] = {}
    grants = granting(binding)
    for tool_id in review.snapshot.candidates((scope,), reach):
        tool = review.snapshot.tools[tool_id]
        if not tool.active or not grants(tool):
            continue
        decision = review.decide(identity, tool)
        if decision.reason is not Reason.DENIED or decision.binding is None:
            return ()
        found[decision.binding.uid] = decision.binding
    return tuple(found.values())


def _unknown(review: AccessReview, scope: str) -> Iterator[str]:
    """A note where nothing has this scope."""
    known = scopes(review)
    if scope not in known:
        yield f"no tool and no binding has the scope {scope}{meant(scope, known, cutoff=0.6)}"


def scopes(review: AccessReview) -> list[str]:
    """Every scope that a tool or a binding has, sorted."""
    held = (s for b in review.snapshot.bindings.values() for s in (*b.scopes, *b.deny_scopes))
    return sorted({*held, *(s for tool in review.snapshot.tools.values() for s in tool.scopes)})
