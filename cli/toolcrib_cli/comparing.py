"""Two agents compared by a decision log: what each selected, called and failed, for an A/B of two tool sets. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolcrib.canary.outcomes import FAILED, INVALID, OK
from toolcrib_cli.decision_records import Record, agent_of, tools_of

_SELECTS = ("describe", "load")


@dataclass(slots=True)
class Side:
    """One agent."""

    agent: str
    selected: int = 0
    called: int = 0
    failed: int = 0
    corrected: int = 0
    tools: set[str] = field(default_factory=set)
    """Those that it called."""
    invalid: set[str] = field(default_factory=set, repr=False)
    """Those whose arguments were invalid at its last call."""


def compared(records: Iterable[Record], first: str, second: str) -> tuple[Side, Side]:
    """What both did, in the order of the records; agents as `namespace/name` or `issuer:subject`."""
    sides = Side(first), Side(second)
    of = {side.agent: side for side in sides}
    for record in records:
        side = of.get(agent_of(record))
        if side is None or record.get("allowed") is not True or record.get("phase") == "begin":
            continue
        if record["action"] in _SELECTS:
            side.selected += len(tools_of(record))
        elif record["action"] == "call":
            _called(side, str(record.get("tool") or ""), str(record.get("outcome") or ""))
    return sides


def _called(side: Side, tool: str, outcome: str) -> None:
    if outcome != OK and outcome not in FAILED:
        return
    side.tools.add(tool)
    side.called += 1
    side.failed += outcome != OK
    side.corrected += outcome == OK and tool in side.invalid
    side.invalid.discard(tool)
    if outcome == INVALID:
        side.invalid.add(tool)
