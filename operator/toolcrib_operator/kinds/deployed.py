"""What an Agent's status says of the workload that the operator runs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.resources.agents import RunOutcome
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.verdicts import Cause, Run
from toolcrib_operator.objects import Entry

DEPLOYED, DISCOVERING = "Deployed", "Discovering"
Row = tuple[str, bool | None, Cause]


@dataclass(frozen=True, slots=True)
class DeployedState:
    """What stands at the API server for one generation of an Agent.

    Attributes:
        seen: uid and generation of the Agent that it was compared with.
        problem: why it is not as it is to be; None: it is.
        wanted, ready: pods that are to run, and those that have discovered their tools; 0 of a task that is over.
        trouble: why pods are not made, as the API server says it.
        last: the last run of a task, as the status has it.
        tools: what the Agent's account sees.
    """

    seen: tuple[str, int]
    problem: Cause | None = None
    wanted: int = 0
    ready: int = 0
    trouble: str = ""
    last: Mapping[str, Any] | None = None
    tools: int | None = None


def rows(entry: Entry, run: Run | None, state: DeployedState | None) -> tuple[list[Row], bool]:
    """Deployed and Discovering, where the operator is to run something; and whether that is news that may still come."""
    if run is None:
        return [], False
    current = state if state is not None and state.seen == (entry.uid, entry.generation) else None
    if run.refusal is not None:
        return [(DEPLOYED, False, run.refusal), _discovering(entry, state)], False
    if current is None:
        if statuses.holds(entry.status, DEPLOYED, generation=entry.generation):
            return [(DEPLOYED, True, Cause(ConditionReason.DEPLOYED)), _discovering(entry, state)], True
        return [(DEPLOYED, False, Cause(ConditionReason.NOT_DEPLOYED)), _discovering(entry, state)], True
    done = current.problem or Cause(ConditionReason.DEPLOYED)
    # mostly a grant that was applied with it comes soon
    waits = done.reason is ConditionReason.WAITS_FOR_TOOLS
    return [(DEPLOYED, current.problem is None, done), _discovering(entry, current)], waits


def obstacle(found: list[Row]) -> Cause | None:
    """What keeps an Agent from being Ready."""
    for kind, value, cause in found:
        if value or cause.reason is ConditionReason.NOTHING_RUNS:
            continue
        if kind == DEPLOYED:
            return Cause(ConditionReason.NOT_DEPLOYED, cause.message)
        return cause
    return None


def fields(entry: Entry, run: Run | None, state: DeployedState | None) -> dict[str, Any]:
    """`run`, `tools` and `lastRun`."""
    if run is None:
        return {"run": None, "tools": None, "lastRun": None}
    last = entry.status.get("lastRun") if state is None else state.last
    judged = entry.status.get("run") if run.admitted is None else None
    return {
        "run": {"digest": run.digest, "admitted": run.admitted} if run.admitted is not None else judged,
        "tools": entry.status.get("tools") if state is None else state.tools,
        "lastRun": last,
    }


def is_over(last: Mapping[str, Any] | None) -> bool:
    """Whether a run has ended."""
    return last is not None and last.get("outcome") in (RunOutcome.SUCCEEDED, RunOutcome.FAILED)


def _discovering(entry: Entry, state: DeployedState | None) -> Row:
    if state is None:
        kept = statuses.kept(entry.status, DISCOVERING)
        return (
            (DISCOVERING, *kept)
            if kept is not None
            else (DISCOVERING, False, Cause(ConditionReason.NOTHING_RUNS))
        )
    if not state.wanted:
        return DISCOVERING, False, Cause(ConditionReason.NOTHING_RUNS)
    if state.ready >= state.wanted:
        return DISCOVERING, True, Cause(ConditionReason.DISCOVERING)
    message = f"{state.ready} of {state.wanted} pods have discovered their tools."
    if state.trouble:
        message = f"{message} {state.trouble}"
    else:
        message = (
            f"{message} If this lasts, look at them: kubectl get pods -l toolcrib.dev/agent={entry.ref.name}"
        )
    return DISCOVERING, False, Cause(ConditionReason.NOT_DISCOVERED, message)
