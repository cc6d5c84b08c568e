"""Bindings of both kinds: whose tools they reach, their dates, and what their status tells of what is there."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from toolcrib import authorizer, publishing
from toolcrib.authorizer import Denial
from toolcrib.resources import durations
from toolcrib.resources.admission import FINALIZER
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding, LabelSelector
from toolcrib.resources.conditions import MAX_MESSAGE, ConditionReason, said
from toolcrib.text import truncate
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.admission import denials_of
from toolcrib_operator.kinds.facts import BINDINGS as SLOT
from toolcrib_operator.kinds.facts import Batch, Facts
from toolcrib_operator.kinds.kind import Governed, Situation, Told
from toolcrib_operator.kinds.namespace import ANY, NAMESPACE
from toolcrib_operator.kinds.questions import NONE, fired, questions, summary
from toolcrib_operator.kinds.reach import (
    MOST_ESCAPED,
    BindingReach,
    DenialHistory,
    match,
    matched_tools,
    matches_parts,
    near_scopes,
)
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import (
    POLICIES_SEEN,
    WEAKENED,
    Desired,
    Progress,
    Status,
    condition,
    holds,
    kept,
    status,
)
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause, Published, invalid
from toolcrib_operator.objects import Entry, Ref

_HELD = ". Its earlier denials stay in effect until you fix or delete it."


def assess_binding(
    entry: Entry, *, namespaces: Mapping[str, Mapping[str, str]], trusted: Iterable[str]
) -> BindingVerdict:
    """Whether a binding is used, and what is published of it.

    Args:
        entry: the object.
        namespaces: every namespace with its labels.
        trusted: label keys that a namespaceSelector may use. Anyone who may label a namespace could otherwise pull
            its tools into somebody's grant.
    """
    binding = entry.resource
    if isinstance(binding, AgentScopeBinding):
        return BindingVerdict(publishing.binding(binding))
    if not isinstance(binding, ClusterAgentScopeBinding):
        return BindingVerdict(None, invalid(entry.findings))
    selector = binding.spec.namespace_selector
    if selector is None:
        return BindingVerdict(publishing.binding(binding, namespaces=binding.spec.namespaces))
    known = frozenset(trusted)
    if untrusted := sorted(selector.keys - known):
        allowed = ", ".join(sorted(known)) or "none"
        message = (
            f"spec.namespaceSelector: the operator does not trust the label {untrusted[0]!r} (trusted: {allowed})."
            " Use a trusted label, or have an administrator trust this one"
        )
        # it grants nothing, but what it denies stays denied: in doubt everywhere (a deny holds while its object exists)
        denied = denials_of(publishing.binding(binding, namespaces=None))
        return BindingVerdict(denied, Cause(ConditionReason.UNTRUSTED_LABEL, message))
    return BindingVerdict(publishing.binding(binding, namespaces=territory(selector, namespaces)))


def territory(selector: LabelSelector, namespaces: Mapping[str, Mapping[str, str]]) -> tuple[str, ...] | None:
    """The namespaces that a selector means; None (every one) for the empty selector."""
    if not selector.keys:
        return None
    return tuple(sorted(name for name, labels in namespaces.items() if selector.matches(dict(labels))))


def binding_status(
    entry: Entry, verdict: BindingVerdict, progress: Progress, reach: BindingReach | None, now: float
) -> Desired:
    """Status of a binding: Ready, Accepted, Propagated, Expired, MatchesNothing, Questionable.

    `reach` None keeps what the written status says of it.
    """
    if verdict.refusal is not None or verdict.published is None:
        refusal = verdict.refusal or Cause(ConditionReason.INVALID)
        not_used = Cause(ConditionReason.NOT_ACCEPTED)
        rows = [("Ready", False, Cause(ConditionReason.NOT_ACCEPTED, refusal.message)), ("Accepted", False, refusal),
                ("Propagated", False, not_used), ("Expired", False, not_used), ("MatchesNothing", False, not_used),
                ("Questionable", False, not_used)]  # fmt: skip
        unknown = dict.fromkeys(("matchedTools", "firedDenials", "escapedTools"))
        return Desired(status(entry, rows, now, **unknown, **{POLICIES_SEEN: verdict.policies_seen}))
    dates = verdict.dates(now)
    propagated = progress.propagated or holds(entry.status, "Propagated", generation=entry.generation)
    spread = Cause(ConditionReason.PROPAGATED)
    if not propagated:
        spread = Cause(
            ConditionReason.NO_REPLICAS if progress.replicas == 0 else ConditionReason.NOT_PROPAGATED
        )
    if dates is not ConditionReason.IN_FORCE:
        ready = Cause(dates)
    elif not propagated:
        ready = spread
    else:
        ready = Cause(ConditionReason.READY)
    matched = (entry.status.get("matchedTools") or 0) if reach is None else reach.matched
    odd, question = questioned(entry.status) if reach is None else summary(reach.questions)
    found = _match(entry, verdict.published, matched) if reach is None else reach.match
    nothing = found.reason is ConditionReason.MATCHES_NOTHING
    if nothing and ready.reason is ConditionReason.READY:
        ready = Cause(ConditionReason.READY, "In effect, but no tool is within reach: see MatchesNothing.")
    rows = [
        ("Ready", ready.reason is ConditionReason.READY, ready),
        ("Accepted", True, Cause(ConditionReason.ACCEPTED)),
        ("Propagated", propagated, spread),
        ("Expired", dates is ConditionReason.EXPIRED, Cause(dates)),
        ("MatchesNothing", nothing, found),
        ("Questionable", odd, question),
    ]
    fields: dict[str, Any] = {"matchedTools": matched, POLICIES_SEEN: None}
    if reach is None:
        fields |= {name: entry.status.get(name) for name in ("firedDenials", "escapedTools")}
        if (weak := kept(entry.status, WEAKENED)) is not None:
            rows.append((WEAKENED, *weak))
    else:
        held = reach.held or DenialHistory()
        fields |= {"firedDenials": list(held.fired) or None, "escapedTools": list(held.escaped) or None}
        if reach.held is not None:
            rows.append(
                (WEAKENED, held.problem.reason is ConditionReason.DENY_STOPPED_MATCHING, held.problem)
            )
    return Desired(status(entry, rows, now, **fields), provisional=not propagated)


def _match(entry: Entry, binding: PublishedBinding, matched: int) -> Cause:
    """What is written of it, where that still holds."""
    found, written = match(binding, matched), kept(entry.status, "MatchesNothing")
    return written[1] if written is not None and written[1].reason is found.reason else found


def reached(status: Status) -> tuple[Any, ...]:
    """What a status says of a binding's reach: to tell whether it has changed. Its first item is None if it says nothing."""
    found = condition(status, "Questionable")
    if status.get("matchedTools") is None or found is None:
        return (None,)
    said = [status["matchedTools"], found.get("status"), found.get("reason"), found.get("message")]
    for kind in ("MatchesNothing", WEAKENED):
        row = condition(status, kind)
        said += [None, None] if row is None else [row.get("reason"), row.get("message")]
    return (*said, *(tuple(status.get(name) or ()) for name in ("firedDenials", "escapedTools")))


def told(reach: BindingReach) -> tuple[Any, ...]:
    """The same of a status that says what `reach` does."""
    odd, why = summary(reach.questions)
    held = reach.held or DenialHistory()
    weak = (None, None) if reach.held is None else (held.problem.reason.value, _text(held.problem))
    nothing = (reach.match.reason.value, _text(reach.match))
    return (reach.matched, str(odd), why.reason.value, _text(why), *nothing, *weak, held.fired, held.escaped)


def _text(problem: Cause) -> str:
    return truncate(problem.message or said(problem.reason), MAX_MESSAGE)


def questioned(status: Status) -> tuple[bool, Cause]:
    """The written Questionable condition; that nothing is odd, where there is none."""
    return kept(status, "Questionable") or (False, NONE)


class BindingKind(Governed):
    """What both kinds of bindings have in common."""

    slot = SLOT
    finalizer = FINALIZER
    surveys = True

    def guarded(self, entry: Entry, record: Record) -> bool:
        """A grant, or an end of a deny, takes rights of its author."""
        return entry.deleting is None

    def assess(self, entry: Entry, record: Record, facts: Facts) -> BindingVerdict:
        """`assess_binding`, unless the admission policies have still to be looked at."""
        if entry.resource is None:
            verdict = _denying(invalid(entry.findings), entry, record)
        else:
            verdict = assess_binding(
                entry,
                namespaces=facts.labels(NAMESPACE) if self.keys(entry) else {},
                trusted=facts.settings.trusted_namespace_labels,
            )
        return facts.admitted.judge(record, entry, verdict)

    def refused(self, cause: Cause) -> BindingVerdict:
        """A binding's verdict."""
        return BindingVerdict(None, cause)

    def failed(self, cause: Cause, entry: Entry, record: Record, facts: Facts) -> BindingVerdict:
        """It keeps its denials. A refusal for want of the admission policies stands, or is still to come."""
        return facts.admitted.judge(record, entry, _denying(cause, entry, record))

    def forget(self, record: Record, facts: Facts) -> None:
        """Nothing of it waits any more."""
        facts.admitted.forget(record)

    def changed(
        self, ref: Ref, old: Published | None, new: Published | None, facts: Facts, batch: Batch
    ) -> None:
        """Other ServiceAccounts may be bound."""
        facts.accounts.bind(ref, _binding(old), _binding(new))

    def reaches(self, published: Published, namespaces: frozenset[str]) -> bool:
        """Whether its territory includes one of them."""
        territory = published.namespaces if isinstance(published, PublishedBinding) else ()
        return territory is None or not namespaces.isdisjoint(territory)

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """See `binding_status`. What it reaches is counted again some time after tools have changed, and not too often."""
        verdict = record.verdict
        assert isinstance(verdict, BindingVerdict)
        reach, look = _reach(entry, record, verdict, situation, now)
        desired = binding_status(entry, verdict, situation.progress(record), reach, now)
        times = (look, verdict.next_change(now))
        return Desired(
            desired.status, desired.provisional, min((t for t in times if t is not None), default=None)
        )

    def told(self, entry: Entry, record: Record, situation: Situation, now: float) -> Told:
        """Its status with what it reaches now, and its questions."""
        verdict = record.verdict
        assert isinstance(verdict, BindingVerdict)
        used = verdict.published if verdict.refusal is None else None
        reach = None if used is None else _look(entry, record, used, situation, now)
        desired = binding_status(entry, verdict, situation.progress(record), reach, now)
        return Told(desired.status, () if reach is None else reach.questions)

    def wrote(self, record: Record, before: Status, after: Status, now: float) -> None:
        """Where a binding's reach went into it, the next such rewrite has to wait."""
        said = reached(before)
        if said[0] is not None and said != reached(after):
            record.recounted = now


class NamespacedBindingKind(BindingKind):
    """AgentScopeBindings."""

    name = "AgentScopeBinding"
    plural = "agentscopebindings"


class ClusterBindingKind(BindingKind):
    """ClusterAgentScopeBindings."""

    name = "ClusterAgentScopeBinding"
    plural = "clusteragentscopebindings"
    namespaced = False

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """All namespaces, if a change of one may change what is published."""
        binding = entry.resource
        selects = (
            isinstance(binding, ClusterAgentScopeBinding) and binding.spec.namespace_selector is not None
        )
        return (ANY,) if selects else ()


BINDING = NamespacedBindingKind()
CLUSTER_BINDING = ClusterBindingKind()
BINDINGS = (BINDING.name, CLUSTER_BINDING.name)


def _reach(
    entry: Entry, record: Record, verdict: BindingVerdict, situation: Situation, now: float
) -> tuple[BindingReach | None, float | None]:
    """What it reaches, if that may be written now, and when it may be otherwise."""
    if verdict.published is None or verdict.refusal is not None:
        return None, None
    settings, said = situation.facts.settings, reached(entry.status)
    fresh = entry.status.get("observedGeneration") != entry.generation or said[0] is None
    if not fresh:
        if record.stale is None:
            return None, None
        due = record.stale + settings.hold_back
        if record.recounted is not None:
            due = max(due, record.recounted + settings.rewrite_every)
        if now < due:
            return None, due
    reach = _look(entry, record, verdict.published, situation, now)
    if not fresh:
        # until it is really written
        record.stale = None if told(reach) == said else now - settings.hold_back
    return reach, None


def _look(
    entry: Entry, record: Record, binding: PublishedBinding, situation: Situation, now: float
) -> BindingReach:
    facts, snapshot = situation.facts, situation.snapshot
    tools = facts.territories.tools_of(binding, snapshot)
    found = questions(binding, tools, exists=facts.accounts.exists, applied=_applied(entry, record, now))
    held = _held(entry, binding, tools, situation) if binding.denies else None
    matched = matched_tools(binding, snapshot)
    within = matched or matches_parts(binding, snapshot)
    near = "" if within else near_scopes(binding, snapshot, facts.territories.scopes_of(binding, snapshot))
    return BindingReach(matched, match(binding, within, near), found, held)


def _held(
    entry: Entry, binding: PublishedBinding, tools: list[PublishedTool], situation: Situation
) -> DenialHistory:
    """What this generation has denied: what its status remembers, and what is seen now."""
    same = entry.status.get("observedGeneration") == entry.generation
    remembered = entry.status if same else {}
    now = fired(binding, tools)
    entries = [Denial("deny", text) for text in binding.deny]
    entries += [Denial("denyScopes", scope) for scope in binding.deny_scopes]
    known = frozenset(remembered.get("firedDenials") or ())
    found = [e for e in entries if e in now or "/".join(e) in known]
    denials, there = authorizer.denials(binding), situation.snapshot.tools
    left = {*(remembered.get("escapedTools") or ()), *situation.escaped(binding)}
    escaped = [i for i in sorted(left) if (t := there.get(i)) and not any(True for _ in denials(t))]
    return DenialHistory(
        fired=tuple("/".join(e) for e in found),
        stopped=tuple("/".join(e) for e in found if e not in now),
        escaped=tuple(escaped[:MOST_ESCAPED]),
    )


def _applied(entry: Entry, record: Record, now: float) -> float:
    """When this generation was applied, as far as that is known: the API server tells of the first one alone."""
    if entry.status.get("observedGeneration") != entry.generation:
        return now if record.first_seen is None else record.first_seen[2]
    odd, why = questioned(entry.status)
    if odd and why.reason is ConditionReason.EXPIRED_AT_APPLY:
        return math.inf  # said of this generation already, and true for good
    return durations.instant(entry.created) if entry.created and entry.generation == 1 else -math.inf


def _denying(cause: Cause, entry: Entry, record: Record) -> BindingVerdict:
    """What is published of this object keeps its denials, with their subjects and reach, and none of its grants."""
    before = _binding(record.published)
    held = None if before is None or before.uid != entry.uid else denials_of(before)
    if held is not None:
        message = truncate(cause.message or said(cause.reason), MAX_MESSAGE - len(_HELD))
        cause = Cause(cause.reason, message + _HELD)
    return BindingVerdict(held, cause)


def _binding(item: Published | None) -> PublishedBinding | None:
    return item if isinstance(item, PublishedBinding) else None
