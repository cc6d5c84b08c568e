"""Decision logs decided again: what is equal, what differs, and what another policy would have changed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolcrib.access.proposals import key_of, proposed
from toolcrib.access.subjects import Tokens
from toolcrib.audit.replay import Decided, Judged, Replay
from toolcrib.authorizer import Action, decide
from toolcrib.snapshot import Snapshot
from toolcrib_cli import decision_records
from toolcrib_cli.decision_records import Filter, Record

MOST_SHOWN = 20
"""Differences that are kept as examples."""
_SNAPSHOTS = 32


@dataclass(frozen=True, slots=True)
class Change:
    """Decisions that another policy makes otherwise: of one agent, tool and action.

    Attributes:
        gains: it would be allowed; else it would be refused.
        reason: of the refusal, by whichever policy refuses.
    """

    agent: str
    tool: str
    action: str
    gains: bool
    reason: str


@dataclass(slots=True)
class Seen:
    """How often, and when first and last; `example` is the last request's id, which logs and traces have too."""

    times: int = 0
    first: str = ""
    last: str = ""
    example: str = ""

    def add(self, ts: str, request_id: str) -> None:
        """Once more."""
        self.times += 1
        self.first = min(self.first or ts, ts)
        if ts >= self.last:
            self.last, self.example = ts, request_id


class Otherwise:
    """The policy of each moment with these bindings applied.

    Args:
        bindings: manifests; an applied one of the same name is replaced.
        prune: bindings that are not among them are gone.
    """

    def __init__(self, bindings: Sequence[Mapping[str, Any]], *, prune: bool = False) -> None:
        self._bindings, self._prune = bindings, prune
        self._made: dict[int, tuple[Snapshot, Snapshot]] = {}

    def allows(self, tool: str, action: Action, of: Decided) -> tuple[bool, str]:
        """Whether it would be allowed, and the reason.

        Raises:
            InvalidManifest: a binding is refused.
        """
        after = self._of(of.snapshot)
        decision = decide(of.identity, after.governed(tool), action, after.policy, of.now)
        return decision.allowed, decision.reason.value

    def _of(self, before: Snapshot) -> Snapshot:
        known = self._made.get(id(before))
        if known is not None and known[0] is before:
            return known[1]
        gone: list[str] = []
        if self._prune:
            kept = {_key(manifest) for manifest in self._bindings}
            # a suspension is an Agent's, so it is not among the manifests of bindings
            applied = (b for b in before.bindings.values() if not b.suspends)
            refs = ("/".join(filter(None, (b.kind, b.namespace, b.name))) for b in applied)
            gone = [ref for ref in refs if key_of(ref) not in kept]
        after, _ = proposed(before, self._bindings, gone, Tokens())
        if len(self._made) >= _SNAPSHOTS:
            del self._made[next(iter(self._made))]
        self._made[id(before)] = before, after
        return after


def _key(manifest: Mapping[str, Any]) -> tuple[str, str | None, str]:
    metadata = manifest.get("metadata") or {}
    return str(manifest.get("kind")), metadata.get("namespace"), str(metadata.get("name"))


@dataclass(slots=True)
class Replayed:
    """What came of the decisions of a log.

    Attributes:
        equal, different: decisions that were made again.
        skipped: those that were not, by the reason.
        differences: the first of those that differ.
        changes: what another policy would change, where one is given.
    """

    equal: int = 0
    different: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    differences: list[Judged] = field(default_factory=list)
    changes: dict[Change, Seen] = field(default_factory=dict)

    @property
    def replayed(self) -> int:
        """How many were made again."""
        return self.equal + self.different

    def add(self, judged: Judged) -> None:
        """Count one decision."""
        if judged.why is not None:
            self.skipped[judged.why.value] += 1
        elif judged.equal:
            self.equal += 1
        else:
            self.different += 1
            if len(self.differences) < MOST_SHOWN:
                self.differences.append(judged)

    def compare(self, judged: Judged, otherwise: Otherwise) -> None:
        """Decide it by another policy too. Lists and searches are not compared: they have no tool of their own."""
        if judged.of is None or judged.tool is None:
            return
        record = judged.record
        allowed, reason = otherwise.allows(judged.tool, Action(record["action"]), judged.of)
        before = bool(judged.recorded[0])
        if allowed == before:
            return
        why = str(judged.recorded[1]) if allowed else reason
        agent = decision_records.agent_of(dict(record))
        change = Change(agent, judged.tool, str(record["action"]), allowed, why)
        self.changes.setdefault(change, Seen()).add(str(record["ts"]), str(record.get("request_id", "")))


def replayed(records: Iterable[Record], wanted: Filter, otherwise: Otherwise | None = None) -> Replayed:
    """Decide all records again, in memory that does not grow with them.

    Args:
        records: of one replica or several, each one's in their order.
        wanted: which decisions count; the others are read for what they say of the policy.
        otherwise: another policy to compare with.

    Raises:
        InvalidManifest: a binding of the other policy is refused.
    """
    found = Replayed()
    replicas: dict[str, Replay] = {}
    for record in records:
        replica = str(record.get("replica", ""))
        replay = replicas.get(replica)
        if replay is None:
            replay = replicas[replica] = Replay()
        for judged in replay.take(record):
            if record.get("phase") == "begin" or not wanted(record):
                continue
            found.add(judged)
            if otherwise is not None:
                found.compare(judged, otherwise)
    return found
