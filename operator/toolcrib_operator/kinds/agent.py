"""Agents: whether one is suspended, and who may end that; and whether the operator runs it (`running`).

Suspending takes effect at once. A resumption, by an edit or by deleting the Agent, waits until its author was asked for
the verb `resume`, as a grant waits for its author's rights (`admission`): till then the agent stays suspended.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from toolcrib import publishing
from toolcrib.resources.admission import FINALIZER
from toolcrib.resources.agents import Agent
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.kinds import deployed, running, statuses
from toolcrib_operator.kinds.admission import AGENT
from toolcrib_operator.kinds.facts import BINDINGS, Batch, Facts
from toolcrib_operator.kinds.kind import Governed, Situation
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import POLICIES_SEEN, SUSPENDED, Desired, status
from toolcrib_operator.kinds.verdicts import AgentVerdict, Cause, Published, invalid
from toolcrib_operator.objects import Entry, Ref


class AgentKind(Governed):
    """Agents. What is published of a suspended one is a binding that denies its identities everything."""

    name = AGENT
    plural = "agents"
    slot = BINDINGS
    finalizer = FINALIZER

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """What a run rests on."""
        agent = entry.resource
        return running.needs(agent) if isinstance(agent, Agent) else ()

    def guarded(self, entry: Entry, record: Record) -> bool:
        """The end of a suspension, and a run that nobody has judged."""
        agent = entry.resource
        fresh = isinstance(agent, Agent) and entry.deleting is None and running.is_fresh(agent, entry, record)
        return fresh or _resumed(entry, record)

    def ends(self, entry: Entry, facts: Facts) -> bool:
        """A suspended one is there until somebody who may resume it has deleted it."""
        if entry.deleting is None:
            return False
        record = facts.records[entry.ref]
        return not _resumed(entry, record) or facts.admitted.refuses(record, entry) is None

    def assess(self, entry: Entry, record: Record, facts: Facts) -> AgentVerdict:
        """Whether it is suspended, or still is; and whether it is run."""
        agent = entry.resource
        if not isinstance(agent, Agent):
            return _as_before(invalid(entry.findings), entry, record)
        runs = facts.settings.agents is not None
        resumed, fresh = _resumed(entry, record), runs and running.is_fresh(agent, entry, record)
        late = running.unjudged(agent, entry, record, facts) if fresh else None
        refusal = facts.admitted.refuses(record, entry) if resumed or fresh else None
        seen = None if refusal is None else facts.admitted.awaited(record)
        run = running.judge(agent, entry, record, late or refusal, facts) if runs else None
        stopped = refusal is not None if resumed else agent.spec.suspended
        return AgentVerdict(publishing.suspension(agent) if stopped else None, refusal or late, seen, run)

    def refused(self, cause: Cause) -> AgentVerdict:
        """As of bindings."""
        return AgentVerdict(None, cause, known=False)

    def failed(self, cause: Cause, entry: Entry, record: Record, facts: Facts) -> AgentVerdict:
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
        """Ready, Accepted, Suspended, Propagated; Deployed and Discovering where the operator runs it."""
        verdict, agent = record.verdict, entry.resource
        assert isinstance(verdict, AgentVerdict)
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
        state = situation.deployed(entry.ref)
        workload, expected = deployed.rows(entry, verdict.run, state)
        ready = deployed.obstacle(workload) or Cause(ConditionReason.READY)
        if refusal is not None and not (
            verdict.published is not None and isinstance(agent, Agent) and agent.spec.suspended
        ):
            # what replicas have is what was before: of the resumption that is not yet known
            ready, propagated = Cause(ConditionReason.NOT_ACCEPTED, refusal.message), False
            spread = Cause(ConditionReason.NOT_ACCEPTED)
        elif refusal is not None:
            ready = Cause(ConditionReason.NOT_ACCEPTED, refusal.message)
        elif not propagated:
            ready = spread
        rows = [
            ("Ready", ready.reason is ConditionReason.READY, ready),
            ("Accepted", refusal is None, refusal or Cause(ConditionReason.ACCEPTED)),
            (SUSPENDED, verdict.published is not None, stopped),
            ("Propagated", propagated, spread),
            *workload,
        ]
        fields = deployed.fields(entry, verdict.run, state) if verdict.known else {}
        said = status(entry, rows, now, **{POLICIES_SEEN: verdict.policies_seen}, **fields)
        return Desired(said, provisional=refusal is None and (not propagated or expected))


def _as_before(cause: Cause, entry: Entry, record: Record) -> AgentVerdict:
    """What is suspended stays so, as far as it is known whom that concerns."""
    held, agent = _suspension(record.published), entry.resource
    if held is None and isinstance(agent, Agent):
        stopped = agent.spec.suspended or statuses.holds(entry.status, SUSPENDED)
        held = publishing.suspension(agent) if stopped else None
    return AgentVerdict(held, cause, known=False)


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
