"""Whether an author was asked for his rights: the admission policies are in place, or were when the object was written.

Of bindings, and of the end of an Agent's suspension.

Nobody can ask afterwards who wrote a spec. So a grant that is first seen while the policies are missing or altered is
refused, and stays so until its spec is written again; one that was in effect before stays in effect. What the policies are
like is known from looks at them that began after the grant was seen: until one has an answer the grant waits, and gives
nothing that was not in effect before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar

from toolcrib.resources.agents import Agent
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import PublishedBinding
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.records import Admission, Record
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause
from toolcrib_operator.objects import Entry, Ref

AGENT = "Agent"
UNKNOWN = "the admission policies have not been read yet"
RESTORE = (
    "Restore the policies (kubectl apply -f crds/, or helm upgrade), and wait 10 s until they are in effect."
)


class Admitted:
    """Which bindings were written under the eyes of the policies. `problem` says what is wrong with these now.

    With `external` something else checks who may write grants, and every binding counts as checked. Otherwise looks at
    the policies are counted: `begun` so far, and `answered` the last of them that told what `problem` says. `seen` names
    the policies as the last one found them, but those that were just put back only once they are in effect; None: they
    were not read yet.
    """

    def __init__(self, *, external: bool = True) -> None:
        self.external = external
        self.problem: str | None = None if external else UNKNOWN
        self.begun = self.answered = 0
        self.seen: str | None = None
        self._waiting: set[Record] = set()

    def decided(self, record: Record, entry: Entry) -> bool:
        """Whether what the policies are like now makes no difference to this generation of a binding."""
        if self.external or ((known := _known(record, entry)) is not None and known.begun is None):
            return True
        return (
            statuses.holds(entry.status, "Accepted", generation=entry.generation)
            or _refusal(entry) is not None
        )

    def notice(self, record: Record, entry: Entry) -> Admission:
        """A binding that is not decided is there: only a look that begins from now on can decide it."""
        waiting = _known(record, entry)
        if waiting is None:
            waiting = record.admission = Admission(entry.uid, entry.generation, self.begun, self.seen)
        self._waiting.add(record)
        return waiting

    def ripe(self) -> set[Ref]:
        """Objects that waited for the admission policies and can be decided now."""
        return {
            r.ref
            for r in self._waiting
            if r.admission is not None and self.answered > (r.admission.begun or 0)
        }

    def judge(self, record: Record, entry: Entry, verdict: BindingVerdict) -> BindingVerdict:
        """The verdict, or the refusal of a grant that nobody checked, or not yet: what it denies stays denied.

        Args:
            record: has it as it is in effect; an edit that waits removes at once what it removes.
            entry: the binding.
            verdict: what is to become of it if its author was asked for his rights.
        """
        problem = self.refuses(record, entry)
        if problem is None:
            return verdict
        published = verdict.published
        if published is not None:
            unread = problem.reason is ConditionReason.ADMISSION_POLICY_UNREAD
            before = record.published
            if unread and isinstance(before, PublishedBinding) and before.uid == published.uid:
                published = _meanwhile(before, published)
            else:
                published = denials_of(published)
        return BindingVerdict(published, problem, self.awaited(record))

    def awaited(self, record: Record) -> str | None:
        """For `BindingVerdict.policies_seen`."""
        waiting = record.admission if record in self._waiting else None
        return None if waiting is None else waiting.seen or ""

    def forget(self, record: Record) -> None:
        """The object is gone."""
        record.admission = None
        self._waiting.discard(record)

    def refuses(self, record: Record, entry: Entry) -> Cause | None:
        """Why this generation gives nothing that was not there before; None: its author was asked for his rights."""
        if self.external:
            return None
        known = _known(record, entry)
        if known is not None and known.begun is None:
            return known.refusal
        problem = None
        if not statuses.holds(entry.status, "Accepted", generation=entry.generation):
            problem = _refusal(entry) or self._waits(record, entry)
            if problem is not None and problem.reason is ConditionReason.ADMISSION_POLICY_UNREAD:
                return problem
            if problem is None and self.problem is not None:
                problem = Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(entry, self.problem))
        self.forget(record)
        record.admission = Admission(entry.uid, entry.generation, refusal=problem)
        return problem

    def _waits(self, record: Record, entry: Entry) -> Cause | None:
        """That it waits for a look; or that the policies were others when it began to wait, maybe under another leader."""
        seen = _seen(entry)
        if seen is not None and seen != self.seen:
            if self.seen is None:
                record.admission = Admission(entry.uid, entry.generation, self.begun, seen)
                self._waiting.add(record)
                return _waiting()
            changed = "the admission policies could not be read, and had changed by the time they could"
            return Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(entry, changed))
        waiting = self.notice(record, entry)
        if self.answered <= (waiting.begun or 0):
            return _waiting()
        if self.problem is None and waiting.seen is not None and waiting.seen != self.seen:
            early = "the admission policies had been restored or changed a moment before and were not in effect yet"
            return Cause(ConditionReason.ADMISSION_POLICY_MISSING, _message(entry, early))
        return None


def _known(record: Record, entry: Entry) -> Admission | None:
    """What is known of this generation."""
    known = record.admission
    return (
        known
        if known is not None and (known.uid, known.generation) == (entry.uid, entry.generation)
        else None
    )


def denials_of(item: PublishedBinding) -> PublishedBinding | None:
    """What it denies, and no grant."""
    return item.model_copy(update={"scopes": (), "allow": None}) if item.denies else None


def _meanwhile(before: PublishedBinding, after: PublishedBinding) -> PublishedBinding | None:
    """What holds of an edit that waits: what it takes away, and all denials of before and of now, for whom either is.

    Its scopes are those that both grant where nothing but scopes and denials differs; else none.
    """
    old = {
        "generation": before.generation,
        "scopes": before.scopes,
        "deny": before.deny,
        "deny_scopes": before.deny_scopes,
    }
    same = after.model_copy(update=old) == before
    both = {
        "subjects": _union(before.subjects, after.subjects),
        "namespaces": None
        if before.namespaces is None or after.namespaces is None
        else _union(before.namespaces, after.namespaces),
        "scopes": tuple(scope for scope in after.scopes if same and scope in before.scopes),
        "deny": _union(before.deny, after.deny),
        "deny_scopes": _union(before.deny_scopes, after.deny_scopes),
    }
    held = after.model_copy(update=both)
    return held if held.scopes else denials_of(held)


_T = TypeVar("_T")


def _union(one: Iterable[_T], other: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _refusal(entry: Entry) -> Cause | None:
    """That this generation was refused for want of the policies, by its status."""
    found = statuses.condition(entry.status, "Accepted") or {}
    refused = (found.get("status"), found.get("reason"), found.get("observedGeneration"))
    if refused != ("False", ConditionReason.ADMISSION_POLICY_MISSING.value, entry.generation):
        return None
    return Cause(ConditionReason.ADMISSION_POLICY_MISSING, found.get("message") or "")


def _waiting() -> Cause:
    return Cause(
        ConditionReason.ADMISSION_POLICY_UNREAD,
        "Pending: admission policies could not be read since this change. It takes effect, or is rejected, once they can be."
        " Nothing needs to be done unless this lasts.",
    )


def _seen(entry: Entry) -> str | None:
    """The policies that were read last when this generation began to wait, by its status; None: it does not wait.

    A status without the field counts as having seen none: it is of a version that did not write it, or the definition
    in the cluster does not know it.
    """
    found = statuses.condition(entry.status, "Accepted") or {}
    waits = (found.get("status"), found.get("reason"), found.get("observedGeneration"))
    if waits != ("False", ConditionReason.ADMISSION_POLICY_UNREAD.value, entry.generation):
        return None
    return str(entry.status.get(statuses.POLICIES_SEEN) or "")


def run_again(entry: Entry) -> str:
    """The command that has the run of an Agent judged again, by an edit that the policies see."""
    agent = entry.resource
    run = agent.spec.run if isinstance(agent, Agent) else None
    attempt = 1 if run is None or run.attempt is None else run.attempt
    patch = json.dumps({"spec": {"run": {"attempt": attempt + 1}}}, separators=(",", ":"))
    return f"kubectl patch agents.toolcrib.dev {entry.ref.name} -n {entry.ref.namespace} --type=merge -p '{patch}'"


def _message(entry: Entry, problem: str) -> str:
    if entry.ref.kind == AGENT:
        agent = entry.resource
        runs = isinstance(agent, Agent) and agent.spec.run is not None
        more = f" To have its run judged again: {run_again(entry)}" if runs else ""
        return (
            f"No policy checked whether its author may resume or run this agent. When it was written: {problem}. If it was"
            f" suspended, it still is, and a new run is not run. {RESTORE} If it was suspended, suspend and resume it again.{more}"
        )
    return (
        f"No policy checked whether its author may grant this. When it was written: {problem}."
        " Restore the policies (kubectl apply -f crds/, or helm upgrade), then write the binding again:"
        " change its spec, or delete and apply it."
    )
