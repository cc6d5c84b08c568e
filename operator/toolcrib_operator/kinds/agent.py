"""Agents: whether one is suspended, and who may end that.

Suspending takes effect at once. A resumption, by an edit or by deleting the Agent, waits until its author was asked for
the verb `resume`, as a grant waits for its author's rights (`admission`): till then the agent stays suspended.
"""

from __future__ import annotations

from toolcrib import publishing
from toolcrib.resources.admission import FINALIZER
from toolcrib.resources.agents import Agent
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.admission import AGENT
from toolcrib_operator.kinds.facts import BINDINGS, Batch, Facts
from toolcrib_operator.kinds.kind import Governed, Situation
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import POLICIES_SEEN, SUSPENDED, Desired, status
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause, Published, invalid
from toolcrib_operator.objects import Entry, Ref


class AgentKind(Governed):
    """Agents. What is published of a suspended one is a binding that denies its identities everything."""

    name = AGENT
    plural = "agents"
    slot = BINDINGS
    finalizer = FINALIZER

    def guarded(self, entry: Entry, record: Record) -> bool:
        """The end of a suspension."""
        return _resumed(entry, record)

    def ends(self, entry: Entry, facts: Facts) -> bool:
        """A suspended one is there until somebody who may resume it has deleted it."""
        if entry.deleting is None:
            return False
        record = facts.records[entry.ref]
        return not _resumed(entry, record) or facts.admitted.refuses(record, entry) is None

    def assess(self, entry: Entry, record: Record, facts: Facts) -> BindingVerdict:
        """Whether it is suspended, or still is."""
        agent = entry.resource
        if not isinstance(agent, Agent):
            return _as_before(invalid(entry.findings), entry, record)
        if not _resumed(entry, record):
            return BindingVerdict(publishing.suspension(agent) if agent.spec.suspended else None)
        refusal = facts.admitted.refuses(record, entry)
        if refusal is None:
            return BindingVerdict(None)
        return BindingVerdict(publishing.suspension(agent), refusal, facts.admitted.awaited(record))

    def refused(self, cause: Cause) -> BindingVerdict:
        """As of bindings."""
        return BindingVerdict(None, cause)

    def failed(self, cause: Cause, entry: Entry, record: Record, facts: Facts) -> BindingVerdict:
        """What is suspended stays so."""
        return _as_before(cause, entry, record)

    def forget(self, record: Record, facts: Facts) -> None:
        """Nothing of it waits any more. That its deletion was admitted is not asked twice."""
        if record.admission is not None and record.admission.begun is not None:
            facts.admitted.forget(record)

    def changed(
        self, ref: Ref, old: Published | None, new: Published | None, facts: Facts, batch: Batch
    ) -> None:
        """Its ServiceAccount is named, or is not any more."""
        facts.accounts.bind(ref, _suspension(old), _suspension(new))

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """Ready, Accepted, Suspended, Propagated."""
        verdict, agent = record.verdict, entry.resource
        assert isinstance(verdict, BindingVerdict)
        progress, refusal = situation.progress(record), verdict.refusal
        confirmed = statuses.holds(entry.status, "Propagated", generation=entry.generation)
        propagated = progress.propagated or confirmed
        spread = Cause(ConditionReason.PROPAGATED)
        if not propagated:
            spread = Cause(
                ConditionReason.NO_REPLICAS if progress.replicas == 0 else ConditionReason.NOT_PROPAGATED
            )
        stopped = Cause(ConditionReason.NOT_SUSPENDED)
        if verdict.published is not None:
            stopped = Cause(ConditionReason.SUSPENDED, (isinstance(agent, Agent) and agent.spec.reason) or "")
        ready = Cause(ConditionReason.READY)
        if refusal is not None:
            # what replicas have is what was before: of the resumption that is not yet known
            ready, propagated = Cause(ConditionReason.NOT_ACCEPTED, refusal.message), False
            spread = Cause(ConditionReason.NOT_ACCEPTED)
        elif not propagated:
            ready = spread
        rows = [
            ("Ready", ready.reason is ConditionReason.READY, ready),
            ("Accepted", refusal is None, refusal or Cause(ConditionReason.ACCEPTED)),
            (SUSPENDED, verdict.published is not None, stopped),
            ("Propagated", propagated, spread),
        ]
        said = status(entry, rows, now, **{POLICIES_SEEN: verdict.policies_seen})
        return Desired(said, provisional=refusal is None and not propagated)


def _as_before(cause: Cause, entry: Entry, record: Record) -> BindingVerdict:
    """What is suspended stays so, as far as it is known whom that concerns."""
    held, agent = _suspension(record.published), entry.resource
    if held is None and isinstance(agent, Agent):
        stopped = agent.spec.suspended or statuses.holds(entry.status, SUSPENDED)
        held = publishing.suspension(agent) if stopped else None
    return BindingVerdict(held, cause)


def _resumed(entry: Entry, record: Record) -> bool:
    """Whether the object ends a suspension, or would: one that is in effect, or was before this process began."""
    agent = entry.resource
    asks = isinstance(agent, Agent) and agent.spec.suspended
    if asks and entry.deleting is None:
        return False
    return asks or record.published is not None or statuses.holds(entry.status, SUSPENDED)


def _suspension(published: Published | None) -> PublishedBinding | None:
    return published if isinstance(published, PublishedBinding) else None


AGENT_KIND = AgentKind()
