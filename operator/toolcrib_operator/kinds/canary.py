"""ToolCanaries: each tries another definition of one tool. What is published of it stands in that Tool."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from toolcrib.canary.statistics import Outcome
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator.kinds.facts import TOOLS, Facts
from toolcrib_operator.kinds.kind import Change, Governed, Situation
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import ROLLED_BACK, Desired, status
from toolcrib_operator.kinds.trials import CANARY, canary_of
from toolcrib_operator.kinds.verdicts import Cause, ToolVerdict, Tried, Verdict, invalid
from toolcrib_operator.objects import Entry, Ref

_GOOD = (ConditionReason.ACCEPTED, ConditionReason.READY, ConditionReason.APPROVED)


class CanaryKind(Governed):
    """ToolCanaries."""

    name = CANARY
    plural = "toolcanaries"
    slot = TOOLS

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """Its tool first; the tool that replaces it."""
        canary = canary_of(entry)
        if canary is None:
            return ()
        named = (canary.spec.tool, canary.spec.candidate.replacement)
        return tuple(Ref(TOOL, f"{canary.namespace}/{name}") for name in named if name is not None)

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """Itself, its tool, and the other canaries of that."""
        tools = [key for key in (*change.before[:1], *change.after[:1]) if isinstance(key, Ref)]
        return {
            change.ref,
            *tools,
            *(ref for tool in tools for ref in facts.links.of(tool) if ref.kind == CANARY),
        }

    def assess(self, entry: Entry, record: Record, facts: Facts) -> Verdict:
        """Whether it can be read; the rest is a matter of its tool (`candidates`)."""
        return Verdict(None, None if canary_of(entry) is not None else invalid(entry.findings))

    def refused(self, cause: Cause) -> Verdict:
        """A plain verdict."""
        return Verdict(None, cause)

    def forget(self, record: Record, facts: Facts) -> None:
        """Its trial ends with it."""
        facts.trials.forget(record.ref.key)

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """Ready, Accepted, Approved, RolledBack, and the numbers of its looks."""
        facts, trial = situation.facts, situation.facts.trials.of(entry)
        found, served = _tried(entry, facts)
        assert isinstance(record.verdict, Verdict)
        refusal = record.verdict.refusal
        if refusal is None:
            refusal = found if isinstance(found, Cause) else found.refusal
        approval = found.approval if isinstance(found, Tried) else None
        made = found.made if isinstance(found, Tried) else None
        if trial.over:
            worse = trial.result is Outcome.WORSE
            ready = Cause(ConditionReason.ROLLED_BACK if worse else ConditionReason.TRIAL_OVER)
        elif refusal is not None:
            ready = Cause(ConditionReason.NOT_ACCEPTED, refusal.message)
        elif approval is not None and approval.reason is not ConditionReason.APPROVED:
            ready = approval
        elif served is None or not situation.progress(served).published:
            ready = Cause(ConditionReason.NOT_PUBLISHED)
        else:
            ready = Cause(ConditionReason.READY)
        back = (
            ready if ready.reason is ConditionReason.ROLLED_BACK else Cause(ConditionReason.NOT_ROLLED_BACK)
        )
        rows = [
            ("Ready", ready.reason in _GOOD, ready),
            ("Accepted", refusal is None, refusal or Cause(ConditionReason.ACCEPTED)),
            (ROLLED_BACK, back is ready, back),
        ]
        if approval is not None:
            rows.append(("Approved", approval.reason in _GOOD, approval))
        fields = {
            "candidateDigest": None if made is None else made.tool.digest,
            "approvalDigest": None if made is None or approval is None else made.tool.approval_digest,
            **trial.fields(),
        }
        return Desired(
            status(entry, rows, now, **fields), provisional=ready.reason is ConditionReason.NOT_PUBLISHED
        )


def _tried(entry: Entry, facts: Facts) -> tuple[Tried | Cause, Record | None]:
    """What was found of its candidate, or why it is not looked at; and the record of its tool."""
    canary = canary_of(entry)
    if canary is None:
        return Cause(ConditionReason.INVALID), None
    record = facts.records.get(Ref(TOOL, f"{canary.namespace}/{canary.spec.tool}"))
    verdict = None if record is None else record.verdict
    if not isinstance(verdict, ToolVerdict) or verdict.published is None or verdict.tried is None:
        return Cause(ConditionReason.TOOL_MISSING), None
    if verdict.tried.canary != entry.ref:
        return Cause(
            ConditionReason.CANARY_CONFLICT, f"{verdict.tried.canary} is older and tries a definition of it"
        ), None
    return verdict.tried, record


CANARY_KIND = CanaryKind()
