"""What an access review notes besides the answer: names that nothing has, options without effect."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from toolcrib.access.subjects import IN_CLUSTER, Tokens, Who
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.snapshot import Snapshot

CONFIRMED_EACH_TIME = "a person confirms each call of this tool: `toolcrib calls confirm`"


def notes(
    snapshot: Snapshot,
    tokens: Tokens,
    who: Who | None,
    identity: Identity | None,
    namespace: str | None = None,
    applied: Snapshot | None = None,
) -> tuple[str, ...]:
    """In sentences; none where all is as asked.

    Args:
        identity: what a token of `who` proves; None: nothing, which the answer says itself.
        namespace: of which tools were asked for.
        applied: what is in effect, where `snapshot` only would be: a name that it knows is not misspelt.
    """
    found = [] if namespace is None else list(_of_namespace(snapshot, namespace, applied or snapshot))
    if who is not None and identity is not None:
        found += _of_subject(snapshot, who, identity, applied or snapshot)
        found += _of_token(tokens, who, identity)
    return tuple(found)


def no_account(who: Who) -> str:
    """The note for a service account that there is not."""
    return f"the ServiceAccount {who.namespace}/{who.name} does not exist"


def _of_namespace(snapshot: Snapshot, namespace: str, applied: Snapshot) -> Iterator[str]:
    having = {tool.namespace for tool in snapshot.tools.values()}
    if namespace in having:
        return
    if any(tool.namespace == namespace for tool in applied.tools.values()):
        yield f"the namespace {namespace} has no tools any more"
    else:
        yield f"the namespace {namespace} has no tools{meant(namespace, having)}"


def _of_subject(snapshot: Snapshot, who: Who, identity: Identity, applied: Snapshot) -> Iterator[str]:
    if snapshot.policy.is_gone(identity):
        yield no_account(who)
    elif identity.policy is not ScopesPolicy.TOKEN and not snapshot.policy.bindings_of(identity):
        if applied.policy.bindings_of(identity):
            yield f"no binding names {who} any more"
            return
        subjects = (Who.of(s) for b in snapshot.bindings.values() for s in b.subjects)
        # an Agent is named by its service account
        same = [w for w in subjects if w is not None and w.key[0] == who.key[0]]
        if issuers := {w.issuer for w in same if w.issuer and _place(w) == _place(who)}:
            known = ", ".join(sorted(issuers))
            yield f"no binding names {who} of the issuer {who.issuer}: bindings name it with the issuer {known}"
        else:
            yield f"no binding names {who}{meant(_place(who), set(map(_place, same)))}"


def _of_token(tokens: Tokens, who: Who, identity: Identity) -> Iterator[str]:
    if tokens.scopes is not None and identity.policy is ScopesPolicy.BINDINGS:
        yield (
            f"the given scopes have no effect: bindings alone decide about {who}, whatever its token carries"
        )
    if who.kind in IN_CLUSTER and (tokens.groups or tokens.client):
        yield f"the given groups and client have no effect: a token of {who} carries none"


def _place(who: Who) -> str:
    return f"{who.namespace}/{who.name}" if who.namespace else who.name


def meant(text: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    """Which of the known words may be meant, as the end of a note; empty: none."""
    close = difflib.get_close_matches(text, list(known), 2, cutoff)
    return f"; did you mean {' or '.join(close)}?" if close else ""
