"""What is to be written about each object, and when: status, finalizer, and what may wait a little.

Plans only; `writer` carries them out. What a status says is for the object's kind to tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.resources import durations
from toolcrib.snapshot import Snapshot
from toolcrib.wire.probes import BackendProbe
from toolcrib.wire.publish import PublishedBinding, PublishedTool, Revision
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.deployed import DeployedState
from toolcrib_operator.kinds.imported import ImportState
from toolcrib_operator.kinds.kind import Governed, Told
from toolcrib_operator.kinds.records import Record, Removal
from toolcrib_operator.kinds.statuses import Desired, Progress, Status
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.status.escapes import Escapes
from toolcrib_operator.workloads.keeper import Keeper
from toolcrib_operator.world import World


@dataclass(frozen=True)
class Plan:
    """What to write now (None: nothing) and when to look again (seconds since the epoch; None: when told)."""

    finalizers: tuple[str, ...] | None = None
    status: Mapping[str, Any] | None = None
    again: float | None = None


class StatusPlanner:
    """Knows how far each object has come. `waiting` are those that progress of a replica may finish."""

    def __init__(
        self,
        world: World,
        assessor: Assessor,
        publisher: Publisher,
        index_sync: IndexSync,
        settings: LoopSettings,
        escapes: Escapes,
        probes: ProbeReports | None = None,
        imports: Imports | None = None,
        workloads: Keeper | None = None,
    ) -> None:
        self.facts = assessor.facts
        self.waiting: set[Ref] = set()
        self._world = world
        self._kinds, self._records = assessor.kinds, assessor.facts.records
        self._publisher = publisher
        self._index_sync = index_sync
        self._settings = settings
        self._escapes = escapes
        self._probes, self._imports = probes, imports
        self._workloads = workloads
        self._started: float | None = None

    def assessed(self, refs: Iterable[Ref], changed: set[Ref], revision: Revision, now: float) -> None:
        """These objects were assessed; the published form of those in `changed` is in `revision` first."""
        if self._started is None:
            self._started = now
        for ref in refs:
            entry, record, kind = self._world.get(ref), self._records.get(ref), self._kinds[ref.kind]
            if entry is None or record is None:
                self.waiting.discard(ref)
                continue
            record.assessed = record.judged
            seen = (entry.uid, entry.generation)
            if kind.surveys and (record.first_seen is None or record.first_seen[:2] != seen):
                record.first_seen = (*seen, now)
            if entry.deleting is not None and record.verdict is None and kind.finalizer is not None:
                if record.removal is None or record.removal.uid != entry.uid:
                    record.removal = Removal(entry.uid, revision, now)
                self.waiting.add(ref)
            elif ref in changed or record.step is None:
                record.step = revision.seq
                record.pending_since = None
                self.waiting.add(ref)
                if kind.surveys and record.stale is None:
                    record.stale = now

    def recount(self, refs: Iterable[Ref], now: float) -> float:
        """Tools within reach of these objects have changed; returns when to look."""
        for ref in refs:
            if (record := self._records.get(ref)) is not None and record.stale is None:
                record.stale = now
        return now + self._settings.hold_back

    def plan(self, ref: Ref, now: float) -> Plan:
        """What to write about an object now."""
        entry, record = self._world.get(ref), self._records.get(ref)
        if entry is None or record is None:
            self.waiting.discard(ref)
            return Plan()
        kind = self._kinds[ref.kind]
        if entry.deleting is not None and record.verdict is None:
            return self._plan_removal(kind, entry, record, now)
        if record.verdict is None:  # it goes with its namespace
            self.waiting.discard(ref)
            return Plan()
        if record.assessed != (entry.uid, entry.generation):
            # the verdict is of an earlier generation, or is not published: what replicas confirmed says nothing of it.
            # The turn that publishes it looks again
            return Plan()
        desired = kind.status(entry, record, self, now)
        finalizers, mark = None, kind.finalizer
        used = record.verdict.published is not None and entry.deleting is None
        if self._settings.finalizers and used and mark is not None and mark not in entry.finalizers:
            finalizers = (*entry.finalizers, mark)
        return self._plan_status(entry, record, desired, now, finalizers=finalizers)

    def told(self, ref: Ref, now: float) -> Told | None:
        """What the status of an object says, or is about to say; None where it has none."""
        entry, record = self._world.get(ref), self._records.get(ref)
        if entry is None or record is None or record.verdict is None:
            return None
        return self._kinds[ref.kind].told(entry, record, self, now)

    def wrote(self, ref: Ref, before: Status, after: Status, now: float) -> None:
        """A status was written."""
        if (record := self._records.get(ref)) is not None:
            self._kinds[ref.kind].wrote(record, before, after, now)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is published now."""
        return self._publisher.snapshot

    def progress(self, record: Record) -> Progress:
        """Who has confirmed the object as it is published, or that it is not."""
        publisher = self._publisher
        if record.verdict is None or record.step is None:
            return Progress()
        if record.assessed is None:
            return Progress()
        revision = Revision(epoch=publisher.epoch, seq=record.step)
        links = len(publisher.links)
        published = publisher.confirmed_by_any(revision)
        return Progress(published, links > 0 and publisher.confirmed_by_all(revision), links)

    def indexed(self, tool: PublishedTool) -> tuple[bool | None, Cause | None]:
        """Whether it is in the search index (None: nobody knows), and what keeps it out."""
        return self._index_sync.state(tool.tool_id, tool.digest)

    @property
    def probing(self) -> bool:
        """Whether a replica is asked to probe backends."""
        return self._probes is not None

    def probe(self, tool: PublishedTool) -> BackendProbe | None:
        """What it said of the tool's backend; None: nothing."""
        return None if self._probes is None else self._probes.of(tool)

    def imported(self, server: Ref) -> ImportState | None:
        """What is known of a ToolServer's server and of its import; None: nothing."""
        return None if self._imports is None else self._imports.of(server)

    def deployed(self, agent: Ref) -> DeployedState | None:
        """What stands at the API server for an Agent; None: it was not looked yet, or nothing is run."""
        return None if self._workloads is None else self._workloads.of(agent)

    def escaped(self, binding: PublishedBinding) -> Collection[str]:
        """The ids of tools that left what the binding denies."""
        return self._escapes.of(binding)

    def _plan_status(
        self, entry: Entry, record: Record, desired: Desired, now: float, *, finalizers: tuple[str, ...] | None
    ) -> Plan:  # fmt: skip
        again = desired.again
        if not desired.provisional:
            self.waiting.discard(entry.ref)
            record.pending_since = None
        else:
            self.waiting.add(entry.ref)
        if not statuses.difference(entry.status, desired.status):
            return Plan(finalizers=finalizers, again=again)
        if desired.provisional and (until := self._hold_until(entry, record, now)) > now:
            return Plan(finalizers=finalizers, again=until if again is None else min(until, again))
        return Plan(finalizers=finalizers, status=desired.status, again=again)

    def _hold_until(self, entry: Entry, record: Record, now: float) -> float:
        if record.pending_since is None:
            record.pending_since = now
        held = record.pending_since + self._settings.hold_back
        if entry.status.get("observedGeneration") == entry.generation and self._started is not None:
            return max(held, self._started + self._settings.takeover_hold)
        return held

    def _plan_removal(self, kind: Governed, entry: Entry, record: Record, now: float) -> Plan:
        if kind.finalizer is None or kind.finalizer not in entry.finalizers:
            self.waiting.discard(entry.ref)
            return Plan()
        removal = record.removal
        since = now if removal is None else removal.since
        # the API server's clock may be another, and no operator may have been there for a while
        most, least = self._settings.removal_deadline, self._settings.removal_least
        asked = durations.instant(entry.deleting or "") + most
        deadline = min(max(asked, since + least), since + most)
        confirmed = (
            removal is not None
            and removal.uid == entry.uid
            and self._publisher.confirmed_by_all(removal.revision)
        )
        if not confirmed and now < deadline:
            self.waiting.add(entry.ref)
            return Plan(again=deadline)
        return Plan(finalizers=tuple(f for f in entry.finalizers if f != kind.finalizer))
