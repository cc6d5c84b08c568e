"""How far the trial of a ToolCanary has come: what its replicas counted, its looks, and what they decided. Pure.

A replica's counts are cumulative and begin again when it restarts: what it had counted before stays in the totals. Each
look writes all of it into the status, from where another operator goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from toolcrib.canary.statistics import LOOKS, Outcome, outcome
from toolcrib.resources import durations
from toolcrib.resources.canaries import ToolCanary, ToolCanarySpec, ToolCanaryStatus
from toolcrib.resources.conditions import timestamp
from toolcrib.wire.canaries import CanaryCounts
from toolcrib_operator.objects import Entry

CANARY = "ToolCanary"
_NAMES = ("selected", "called", "failed", "corrected")


@dataclass(frozen=True, slots=True)
class Totals:
    """Of one side."""

    selected: int = 0
    called: int = 0
    failed: int = 0
    corrected: int = 0

    @classmethod
    def of(cls, counts: Any) -> Totals:
        """Of anything that has the four counts."""
        return cls(*(getattr(counts, name) for name in _NAMES))

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, n) + getattr(other, n) for n in _NAMES))

    def since(self, before: Totals) -> Totals:
        """What was added; all of it, where counting began again in between."""
        if any(getattr(self, n) < getattr(before, n) for n in _NAMES):
            return self
        return Totals(*(getattr(self, n) - getattr(before, n) for n in _NAMES))

    @property
    def rate(self) -> tuple[int, int]:
        """Failed calls and all calls."""
        return self.failed, self.called


@dataclass(frozen=True, slots=True)
class Sides:
    """Of both."""

    stable: Totals = Totals()
    candidate: Totals = Totals()

    @classmethod
    def of(cls, counts: Any) -> Sides:
        """Of anything that has both sides."""
        return cls(Totals.of(counts.stable), Totals.of(counts.candidate))


@dataclass(slots=True)
class Trial:
    """One trial, that of the ToolCanary of this uid."""

    uid: str
    started: float | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)
    """As the status has them."""
    result: Outcome | None = None
    totals: Sides = Sides()
    replicas: dict[str, Sides] = field(default_factory=dict)
    """What each replica said last."""
    kept: list[dict[str, Any]] = field(default_factory=list)
    """The same as of the last look, as the status has it."""
    serving: bool = False
    """Whether the candidate is published."""

    @classmethod
    def of(cls, entry: Entry) -> Trial:
        """As the status tells; one that cannot be read tells nothing."""
        try:
            said = ToolCanaryStatus.model_validate(dict(entry.status))
        except ValueError:
            said = ToolCanaryStatus()
        kept = dict(entry.status)
        return cls(
            uid=entry.uid,
            started=None if said.started is None else durations.instant(said.started),
            looks=list(kept.get("looks") or ()) if said.looks else [],
            result=None if said.result is None else Outcome(said.result),
            totals=Sides.of(said.looks[-1]) if said.looks else Sides(),
            replicas={one.replica: Sides.of(one) for one in said.replicas},
            kept=list(kept.get("replicas") or ()) if said.replicas else [],
        )

    @property
    def over(self) -> bool:
        """Whether everyone gets the tool's own definition again."""
        return self.result is not None

    def begin(self, now: float) -> bool:
        """The first callers get the candidate; False: they did before."""
        if self.started is None:
            self.started = float(int(now))
            return True
        return False

    def take(self, replica: str, counts: CanaryCounts) -> None:
        """What a replica has counted since it knows the trial."""
        now, before = Sides.of(counts), self.replicas.get(replica, Sides())
        self.replicas[replica] = now
        self.totals = Sides(
            self.totals.stable + now.stable.since(before.stable),
            self.totals.candidate + now.candidate.since(before.candidate),
        )

    def next_look(self, spec: ToolCanarySpec) -> float | None:
        """When the numbers are looked at next: at a fifth of the duration each, fixed when it began."""
        if self.over or self.started is None:
            return None
        return self.started + (len(self.looks) + 1) * durations.seconds(spec.duration) / LOOKS

    def look(self, spec: ToolCanarySpec, now: float) -> Outcome:
        """Look at the numbers: whether the candidate is worse ends the trial, and so does the last look."""
        found = outcome(self.totals.candidate.rate, self.totals.stable.rate, spec.guard / 100)
        self.looks.append({"at": timestamp(now), "outcome": found.value, **asdict(self.totals)})
        self.kept = [
            {"replica": name, **asdict(sides)} for name, sides in sorted(self.replicas.items())[-_MOST:]
        ]
        if found is Outcome.WORSE or len(self.looks) == LOOKS:
            self.result = found
        return found

    def fields(self) -> Mapping[str, Any]:
        """Those of the status."""
        return {
            "started": None if self.started is None else timestamp(self.started),
            "looks": self.looks or None,
            "replicas": self.kept or None,
            "result": None if self.result is None else self.result.value,
        }


_MOST = 256


class Trials:
    """The trial of each ToolCanary, read from its status when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Trial] = {}

    def of(self, entry: Entry) -> Trial:
        """That of this object; one that was made again has another."""
        found = self._known.get(entry.ref.key)
        if found is None or found.uid != entry.uid:
            found = self._known[entry.ref.key] = Trial.of(entry)
        return found

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._known.pop(key, None)


def canary_of(entry: Entry | None) -> ToolCanary | None:
    """The object, if it can be read."""
    found = None if entry is None else entry.resource
    return found if isinstance(found, ToolCanary) else None
