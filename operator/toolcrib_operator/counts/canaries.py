"""What the metrics tell about trials of definitions (ToolCanary), within a budget of series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from toolcrib_operator.counts.grants import Labels
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.trials import CANARY, canary_of

MOST = 100
"""Canaries with series of their own: the first by name."""
SIDES = ("candidate", "stable")
WAITING, RUNNING = "Waiting", "Running"
"""States of a trial without a result: whether its candidate is served."""


@dataclass
class CanaryRows:
    """Label values → value, by metric; `folded` is the number of canaries that were left out."""

    info: dict[Labels, float] = field(default_factory=dict)
    share: dict[Labels, float] = field(default_factory=dict)
    calls: dict[Labels, float] = field(default_factory=dict)
    failures: dict[Labels, float] = field(default_factory=dict)
    folded: int = 0

    @property
    def left_out(self) -> Mapping[str, int]:
        """By metric, for `toolcrib_operator_series_folded`."""
        return {
            "toolcrib_canary_info": self.folded,
            "toolcrib_canary_share_ratio": self.folded,
            "toolcrib_canary_calls_total": self.folded * len(SIDES),
            "toolcrib_canary_failures_total": self.folded * len(SIDES),
        }


def rows(facts: Facts) -> CanaryRows:
    """The trials that the operator follows."""
    found = CanaryRows()
    known = sorted((record.ref for record in facts.records.of(CANARY)), key=lambda ref: ref.key)
    for ref in islice(known, MOST):
        entry = facts.objects.get(ref)
        if entry is None or (canary := canary_of(entry)) is None:
            continue
        trial, key = facts.trials.of(entry), ref.key
        serving = trial.serving and not trial.over
        state = trial.result.value if trial.result is not None else RUNNING if serving else WAITING
        found.info[key, f"{canary.namespace}/{canary.spec.tool}", state] = 1.0
        found.share[key,] = canary.spec.share / 100 if serving else 0.0
        for side in SIDES:
            totals = getattr(trial.totals, side)
            found.calls[key, side] = totals.called
            found.failures[key, side] = totals.failed
    found.folded = max(0, len(known) - MOST)
    return found
