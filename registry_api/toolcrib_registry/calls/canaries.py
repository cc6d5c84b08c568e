"""What this replica counts of the trials of tools (ToolCanary), for the operator: two sides each, and nothing of callers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from toolcrib.canary.outcomes import FAILED, INVALID, OK
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.wire.canaries import CanaryCounts, SideCounts
from toolcrib.wire.publish import PublishedTool

MOST_WAITING = 4_096
"""Callers of which it is remembered that their last arguments were invalid."""


@dataclass(slots=True)
class _Side:
    selected: int = 0
    called: int = 0
    failed: int = 0
    corrected: int = 0

    def told(self) -> SideCounts:
        return SideCounts(
            selected=self.selected, called=self.called, failed=self.failed, corrected=self.corrected
        )


@dataclass(slots=True)
class _Sides:
    stable: _Side = field(default_factory=_Side)
    candidate: _Side = field(default_factory=_Side)


class CanaryCounter:
    """Counts by trial and side. Used from one event loop only."""

    def __init__(self) -> None:
        self._trials: dict[str, _Sides] = {}
        self._waiting: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def selected(self, identity: Identity | None, tool: PublishedTool) -> None:
        """A caller asked for the definition by its name."""
        if identity is not None and (found := self._side(identity, tool)) is not None:
            found[1].selected += 1

    def called(self, identity: Identity, tool: PublishedTool, outcome: str) -> None:
        """A call ended."""
        if outcome != OK and outcome not in FAILED:
            return
        if (found := self._side(identity, tool)) is None:
            return
        trial, side = found
        side.called += 1
        side.failed += outcome != OK
        key = (trial, identity.issuer, identity.subject)
        corrected = key in self._waiting
        self._waiting.pop(key, None)
        if outcome == INVALID:
            self._waiting[key] = None
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
        elif outcome == OK:
            side.corrected += corrected

    def counts(self, snapshot: Snapshot) -> tuple[CanaryCounts, ...]:
        """Those of the trials in `snapshot`; of others nothing is kept."""
        there = {tool.trial for tool in snapshot.trials.values()}
        self._trials = {uid: sides for uid, sides in self._trials.items() if uid in there}
        return tuple(
            CanaryCounts(canary=uid, stable=sides.stable.told(), candidate=sides.candidate.told())
            for uid, sides in sorted(self._trials.items())
        )

    def _side(self, identity: Identity, tool: PublishedTool) -> tuple[str, _Side] | None:
        """The trial and its side; None: the call is of none.

        One who is chosen and may not use what the candidate is made of is on neither side.
        """
        if tool.trial is not None:
            return tool.trial, self._of(tool.trial).candidate
        trial = tool.candidate
        if trial is None or trial.chooses(identity.issuer, identity.subject):
            return None
        return trial.canary, self._of(trial.canary).stable

    def _of(self, uid: str) -> _Sides:
        return self._trials.setdefault(uid, _Sides())
