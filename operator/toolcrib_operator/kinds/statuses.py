"""What `/status` should say, and how it differs from what it says.

A status holds what an edit changes. What a replica or the index confirmed once for a generation stays confirmed,
so that a restart of either writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.resources import conditions
from toolcrib.resources.conditions import MAX_MESSAGE, MEANINGS, Condition, ConditionReason
from toolcrib.resources.tools import ToolState
from toolcrib.text import truncate
from toolcrib_operator.kinds.binding import wants_tools
from toolcrib_operator.kinds.questions import NONE, Question, summary
from toolcrib_operator.kinds.quotas import as_written
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause, ToolVerdict
from toolcrib_operator.world import Entry

Status = Mapping[str, Any]

WEAKENED = "DenyWeakened"
POLICIES_SEEN = "policiesSeen"
"""Field of a binding that waits: which admission policies were read last when it began to; empty: none."""
BAD = frozenset({"Expired", "MatchesNothing", "Questionable", "Drifted", WEAKENED})
"""Conditions of which True is the bad news."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an object's present definition has come.

    `indexed` is None while nobody knows what the index holds. `replicas` counts the known replicas.
    """

    published: bool = False
    propagated: bool = False
    replicas: int = 0
    indexed: bool | None = None
    index_problem: Cause | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """The status to be, and whether it waits for something that mostly comes soon."""

    status: Status
    provisional: bool = False


def tool_status(entry: Entry, verdict: ToolVerdict, progress: Progress, now: float) -> Desired:
    """Status of a Tool: Ready, Accepted, Indexed, Questionable."""
    tool = verdict.published
    if tool is None:
        refusal = verdict.refusal or Cause(ConditionReason.INVALID)
        if refusal.reason is ConditionReason.QUOTA_EXCEEDED:
            refusal = as_written(refusal, told_quota(entry))
        rows = [("Ready", False, Cause(ConditionReason.NOT_ACCEPTED, refusal.message)), ("Accepted", False, refusal),
                ("Indexed", False, Cause(ConditionReason.NOT_ACCEPTED)),
                ("Questionable", False, Cause(ConditionReason.NOT_ACCEPTED))]  # fmt: skip
        return Desired(_status(entry, rows, now, name=None, toolId=None, digest=None, routeDigest=None))
    same = entry.status.get("digest") == tool.digest
    indexed = progress.indexed
    if indexed is None:
        indexed = same and holds(entry.status, "Indexed")
    index = (
        Cause(ConditionReason.INDEXED)
        if indexed
        else progress.index_problem or Cause(ConditionReason.NOT_INDEXED)
    )
    published = progress.published or holds(entry.status, "Ready", generation=entry.generation)
    waiting = (published, indexed) != (True, True) and progress.index_problem is None
    if tool.state is ToolState.DISABLED:
        ready = Cause(ConditionReason.DISABLED, tool.message or "")
    elif (lacking := verdict.service or verdict.credential) is not None:
        ready = lacking
    elif not published:
        none = progress.replicas == 0
        ready = Cause(ConditionReason.NO_REPLICAS if none else ConditionReason.NOT_PUBLISHED)
    elif not indexed:
        ready = index
    else:
        ready = Cause(ConditionReason.READY)
    odd, question = summary(verdict.weaknesses)
    rows = [("Ready", ready.reason is ConditionReason.READY, ready), ("Accepted", True, Cause(ConditionReason.ACCEPTED)),
            ("Indexed", indexed, index), ("Questionable", odd, question)]  # fmt: skip
    fields = {
        "name": tool.name,
        "toolId": tool.tool_id,
        "digest": tool.digest,
        "routeDigest": tool.route_digest,
    }
    return Desired(_status(entry, rows, now, **fields), provisional=waiting)


@dataclass(frozen=True, slots=True)
class DenialHistory:
    """What a binding's denials have matched since its last edit, and what they no longer match.

    `fired` are the entries that have matched a tool, as the status names them; `stopped` those of them that match none
    now; `escaped` the ids of tools that were denied and are not any more.
    """

    fired: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()

    @property
    def problem(self) -> Cause:
        """What the condition says."""
        if not self.stopped and not self.escaped:
            return Cause(ConditionReason.DENY_HOLDS)
        lines = [f"{tool_id} was denied and is not any more" for tool_id in self.escaped]
        lines += [f"tools.{entry} matched a tool and matches none now" for entry in self.stopped]
        return Cause(ConditionReason.DENY_STOPPED_MATCHING, "; ".join(lines))


@dataclass(frozen=True, slots=True)
class BindingReach:
    """What there is for a binding to reach: how many tools, what is odd about it; `held` where it denies."""

    matched: int
    questions: tuple[Question, ...] = ()
    held: DenialHistory | None = None


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
        return Desired(_status(entry, rows, now, **unknown, **{POLICIES_SEEN: verdict.policies_seen}))
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
    for_tools = wants_tools(verdict.published)
    nothing = for_tools and matched == 0
    if nothing and ready.reason is ConditionReason.READY:
        ready = Cause(ConditionReason.READY, "In force, but no tool is within reach: see MatchesNothing.")
    match = (
        ConditionReason.MATCHES_NOTHING
        if nothing
        else ConditionReason.MATCHES
        if for_tools
        else ConditionReason.POWERS_ALONE
    )
    rows = [
        ("Ready", ready.reason is ConditionReason.READY, ready),
        ("Accepted", True, Cause(ConditionReason.ACCEPTED)),
        ("Propagated", propagated, spread),
        ("Expired", dates is ConditionReason.EXPIRED, Cause(dates)),
        ("MatchesNothing", nothing, Cause(match)),
        ("Questionable", odd, question),
    ]
    fields: dict[str, Any] = {"matchedTools": matched, POLICIES_SEEN: None}
    if reach is None:
        fields |= {name: entry.status.get(name) for name in ("firedDenials", "escapedTools")}
        if (kept := _kept(entry.status, WEAKENED)) is not None:
            rows.append((WEAKENED, *kept))
    else:
        held = reach.held or DenialHistory()
        fields |= {"firedDenials": list(held.fired) or None, "escapedTools": list(held.escaped) or None}
        if reach.held is not None:
            rows.append(
                (WEAKENED, held.problem.reason is ConditionReason.DENY_STOPPED_MATCHING, held.problem)
            )
    return Desired(_status(entry, rows, now, **fields), provisional=not propagated)


def reached(status: Status) -> tuple[Any, ...]:
    """What a status says of a binding's reach: to tell whether it has changed. Its first item is None if it says nothing."""
    found = condition(status, "Questionable")
    if status.get("matchedTools") is None or found is None:
        return (None,)
    said = [status["matchedTools"], found.get("status"), found.get("reason"), found.get("message")]
    weak = condition(status, WEAKENED)
    said += [None, None] if weak is None else [weak.get("reason"), weak.get("message")]
    return (*said, *(tuple(status.get(name) or ()) for name in ("firedDenials", "escapedTools")))


def told(reach: BindingReach) -> tuple[Any, ...]:
    """The same of a status that says what `reach` does."""
    odd, why = summary(reach.questions)
    held = reach.held or DenialHistory()
    weak = (None, None) if reach.held is None else (held.problem.reason.value, _text(held.problem))
    return (reach.matched, str(odd), why.reason.value, _text(why), *weak, held.fired, held.escaped)


def _text(problem: Cause) -> str:
    return truncate(problem.message or MEANINGS[problem.reason], MAX_MESSAGE)


def questioned(status: Status) -> tuple[bool, Cause]:
    """The written Questionable condition; that nothing is odd, where there is none."""
    return _kept(status, "Questionable") or (False, NONE)


def _kept(status: Status, kind: str) -> tuple[bool, Cause] | None:
    """A condition as it is written; None where there is none, or one that this version does not know."""
    found = condition(status, kind)
    try:
        return holds(status, kind), Cause(ConditionReason(found["reason"]), found["message"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


def announced(old: Status, new: Status, *, questions: bool = True) -> list[dict[str, Any]]:
    """Transitions that people are told of by an event: of Ready, and of Questionable and DenyWeakened when they begin,
    change or end.

    Ready repeats why an object is not accepted: another such reason is a transition too. Not of Questionable without
    `questions`: the weak descriptions of an imported catalog are no thousand events.
    """
    was_odd = holds(old, "Questionable")
    changed = transitions(old, new)
    kinds = {c["type"] for c in changed}
    if "Accepted" in kinds and (ready := condition(new, "Ready")) is not None and "Ready" not in kinds:
        changed.insert(0, dict(ready))
    # each further tool that leaves a deny is news
    weak, before = condition(new, WEAKENED), condition(old, WEAKENED) or {}
    if weak is not None and WEAKENED not in kinds and weak.get("message") != before.get("message"):
        changed.append(dict(weak))
    return [
        c
        for c in changed
        if c["type"] == "Ready"
        or (c["type"] == WEAKENED and "True" in (c["status"], before.get("status")))
        or (questions and c["type"] == "Questionable" and (was_odd or c["status"] == "True"))
    ]


def told_quota(entry: Entry) -> Cause | None:
    """The refusal for want of room that its status tells of; None if it tells of none."""
    found = condition(entry.status, "Accepted")
    if found is None or found.get("reason") != ConditionReason.QUOTA_EXCEEDED:
        return None
    return Cause(ConditionReason.QUOTA_EXCEEDED, str(found.get("message") or ""))


def condition(status: Status, kind: str) -> Mapping[str, Any] | None:
    """A condition as it is written; None where there is none."""
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), None)


def holds(status: Status, kind: str, *, generation: int | None = None) -> bool:
    """Whether a condition of the written status is True, and for this generation if one is given."""
    found = condition(status, kind)
    if found is None or found.get("status") != "True":
        return False
    return generation is None or found.get("observedGeneration") == generation


def difference(old: Status, new: Status) -> dict[str, Any]:
    """A merge patch from `old` to `new`, of the fields of `new` alone; empty if nothing is to be written."""
    return {k: v for k, v in new.items() if (old.get(k) if k in old else None) != v}


def transitions(old: Status, new: Status) -> list[dict[str, Any]]:
    """Conditions of `new` whose status or reason differs from that in `old`."""
    before = {c.get("type"): (c.get("status"), c.get("reason")) for c in old.get("conditions") or ()}
    changed = new.get("conditions") or ()
    return [c for c in changed if before.get(c["type"]) != (c["status"], c["reason"])]


def _status(
    entry: Entry, rows: Iterable[tuple[str, bool, Cause]], now: float, **fields: Any
) -> dict[str, Any]:
    generation = entry.generation
    new = [
        conditions.condition(kind, value, p.reason, p.message, generation=generation, now=now)
        for kind, value, p in rows
    ]
    merged = conditions.merge(_written(entry.status), new)
    listed = [c.model_dump(by_alias=True, exclude_none=True) for c in merged]
    return {"observedGeneration": generation, **fields, "conditions": listed}


def _written(status: Status) -> list[Condition]:
    """The conditions that stand in the status; what cannot be read counts as not there."""
    found = []
    for raw in status.get("conditions") or ():
        try:
            found.append(Condition.model_validate(raw))
        except ValueError:
            continue
    return found
