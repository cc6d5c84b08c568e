"""What `/status` should say, and how it differs from what it says.

A status holds what an edit changes. What a replica or the index confirmed once for a generation stays confirmed,
so that a restart of either writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.resources import conditions
from toolcrib.resources.conditions import Condition, ConditionReason
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry

Status = Mapping[str, Any]

WEAKENED = "DenyWeakened"
POLICIES_SEEN = "policiesSeen"
"""Field of a binding that waits: which admission policies were read last when it began to; empty: none."""
SUSPENDED = "Suspended"
ROLLED_BACK = "RolledBack"
BAD = frozenset({"Expired", "MatchesNothing", "Questionable", "Drifted", WEAKENED, SUSPENDED, ROLLED_BACK})
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
    """The status to be, whether it waits for something that mostly comes soon, and when to look again in any case."""

    status: Status
    provisional: bool = False
    again: float | None = None


def kept(status: Status, kind: str) -> tuple[bool, Cause] | None:
    """A condition as it is written; None where there is none, or one that this version does not know."""
    found = condition(status, kind)
    try:
        return holds(status, kind), Cause(ConditionReason(found["reason"]), found["message"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


def announced(old: Status, new: Status, *, questions: bool = True) -> list[dict[str, Any]]:
    """Transitions that people are told of by an event.

    Of Ready, and of Questionable, Drifted, Suspended and DenyWeakened when they begin, change or end.

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
        or (c["type"] == SUSPENDED and (c["status"] == "True" or holds(old, SUSPENDED)))
        or (c["type"] == WEAKENED and "True" in (c["status"], before.get("status")))
        or (c["type"] == "Drifted" and (c["status"] == "True" or holds(old, "Drifted")))
        or (questions and c["type"] == "Questionable" and (was_odd or c["status"] == "True"))
    ]


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


def status(
    entry: Entry, rows: Iterable[tuple[str, bool | None, Cause]], now: float, **fields: Any
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
