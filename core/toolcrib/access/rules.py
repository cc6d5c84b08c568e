"""A decision in words and in data: which rule decided, which object in which generation, and what the token must carry.

Nothing is decided here: what stands in a `Rule` is what `decide` answered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcrib.access.answers import ConsideredBinding, ReviewedBinding
from toolcrib.authorizer import Considered, Decision, Policy, Reason, alternatives, considered
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedTool


def moment(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Rules:
    """Makes rules of decisions. `proposed` are the UIDs of bindings that are not applied, or not like this."""

    policy: Policy
    now: float
    proposed: Collection[str] = frozenset()

    def binding(self, binding: PublishedBinding) -> ReviewedBinding:
        """A binding as answers name it."""
        return ReviewedBinding(
            kind=binding.kind,
            namespace=binding.namespace,
            name=binding.name,
            uid=binding.uid,
            generation=binding.generation,
            proposed=binding.uid in self.proposed,
        )

    def fields(
        self,
        identity: Identity | None,
        tool: PublishedTool | None,
        decision: Decision,
        nobody: str = "this registry accepts no token for such a subject",
    ) -> dict[str, Any]:
        """The fields of a `Rule`; `nobody` says why there is no identity."""
        by = decision.binding
        found: dict[str, Any] = {
            "allowed": decision.allowed,
            "reason": decision.reason,
            "step": decision.reason.step,
            "binding": None if by is None else self.binding(by),
        }
        if identity is None or tool is None or not decision.allowed:
            refusal = (
                nobody if decision.reason is Reason.NO_IDENTITY else self._refusal(identity, tool, decision)
            )
            return found | {"rule": refusal}
        scopes, others = self._granted(identity, tool, by)
        found["scopes"] = scopes
        found["others"] = tuple(map(self.binding, others))
        if identity.policy is ScopesPolicy.INTERSECTION:
            found["token_scopes"] = scopes
        if by is None:
            return found | {"rule": f"the token alone decides, and it carries {_listed(scopes)}"}
        if by.expires_at is not None:
            found["until"] = moment(by.expires_at)
        found["limits"] = by.limits
        together = "".join(f", together with {_object(o)}" for o in others)
        needs = ", if the token carries it too" if identity.policy is ScopesPolicy.INTERSECTION else ""
        return found | {"rule": f"{_object(by)} grants {_listed(scopes)}{together}{needs}"}

    def considered(self, item: Considered) -> ConsideredBinding:
        """What one binding says, in words."""
        b = item.binding
        fields: dict[str, Any] = {"binding": self.binding(b), "reason": item.shortfall}
        if b.suspends:
            words = f"{_object(b)} is suspended"
            return ConsideredBinding(
                **{**fields, "reason": Reason.AGENT_SUSPENDED}, verdict="denies", rule=words
            )
        if item.denies is not None:
            what = "pattern" if item.denies.field == "deny" else "scope"
            words = f"{_object(b)} denies it by the {what} {item.denies.entry!r}"
            return ConsideredBinding(**{**fields, "reason": Reason.DENIED}, verdict="denies", rule=words)
        if item.shortfall is None:
            scopes = tuple(sorted(item.grants))
            words = f"{_object(b)} grants {_listed(scopes)}"
            return ConsideredBinding(**fields, verdict="grants", rule=words, scopes=scopes)
        return ConsideredBinding(**fields, verdict="passes", rule=self._shortfall(item))

    def _granted(
        self, identity: Identity, tool: PublishedTool, by: PublishedBinding | None
    ) -> tuple[tuple[str, ...], tuple[PublishedBinding, ...]]:
        """The scopes of the tool that count, and the bindings besides the deciding one that give some of them."""
        wanted = set(tool.scopes)
        if tool.scope_match is ScopeMatch.ALL:
            groups = alternatives(identity, tool, self.policy, self.now)
            firsts = {g[0].uid: g[0] for g in groups if by not in g}
            return tuple(sorted(wanted)), tuple(firsts.values())
        if by is not None:
            wanted &= set(by.scopes)
        if identity.policy is not ScopesPolicy.BINDINGS:
            wanted &= identity.scopes or frozenset()
        return tuple(sorted(wanted)), ()

    def _refusal(self, identity: Identity | None, tool: PublishedTool | None, decision: Decision) -> str:
        by, reason = decision.binding, decision.reason
        if by is not None and reason is Reason.AGENT_SUSPENDED:
            return f"{_object(by)} is suspended"
        if identity is not None and tool is not None and by is not None:
            item = next(
                (c for c in considered(identity, tool, self.policy, self.now) if c.binding is by), None
            )
            if item is not None and reason is Reason.DENIED:
                return self.considered(item).rule
            if item is not None and reason is item.shortfall:
                return self._shortfall(item, tool)
        scopes = _listed(() if tool is None else tool.scopes)
        everything = tool is not None and tool.scope_match is ScopeMatch.ALL
        words = {
            Reason.ACCOUNT_GONE: "the ServiceAccount was deleted, or recreated since the token was issued",
            Reason.NO_BINDING: "no binding of this subject reaches the tool",
            Reason.SCOPE_NOT_GRANTED: f"the bindings of this subject do not grant all of {scopes}"
            if everything
            else f"no binding of this subject grants one of {scopes}",
            Reason.TOKEN_LACKS_SCOPE: f"the token does not carry {'all' if everything else 'one'} of {scopes}",
        }
        return words.get(reason, _clause(reason.meaning))

    def _shortfall(self, item: Considered, tool: PublishedTool | None = None) -> str:
        b = item.binding
        match item.shortfall:
            case Reason.NO_BINDING if item.beyond is None:
                return f"{_object(b)} grants nothing: it only denies"
            case Reason.NO_BINDING if item.beyond == "servers":
                return f"{_object(b)} reaches only tools of the servers {_listed(b.servers or ())}"
            case Reason.NO_BINDING:
                return f"{_object(b)} reaches only tools of {_listed(b.namespaces or ('no namespace',))}"
            case Reason.SCOPE_NOT_GRANTED:
                of = "" if tool is None else f": {_listed(tool.scopes)}"
                return f"{_object(b)} grants {_listed(b.scopes)}, none of the tool's scopes{of}"
            case Reason.NOT_ALLOWED_BY_NAME:
                return f"{_object(b)} allows only {_listed(b.allow or ())}"
            case _:
                if b.expires_at is not None and b.expires_at <= self.now:
                    return f"{_object(b)} expired at {moment(b.expires_at)}"
                return f"{_object(b)} begins at {moment(b.not_before or 0.0)}"


def _object(binding: PublishedBinding) -> str:
    return f"{binding.ref} (generation {binding.generation})"


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].removesuffix(".")


def _listed(items: Collection[str], most: int = 6) -> str:
    shown = ", ".join(list(items)[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
