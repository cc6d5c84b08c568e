"""The loop: assess what is dirty, publish one batch, have the statuses written. Composable without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection

from toolcrib import names, process
from toolcrib.lint import weaknesses
from toolcrib.telemetry import logs
from toolcrib.wire.probes import MOST_BACKENDS
from toolcrib.wire.publish import Revision
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.counts.grants import GrantCounts
from toolcrib_operator.counts.propagation import Propagation
from toolcrib_operator.counts.reach import ReachCounts
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.facts import TOOLS, Batch
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.objects import Entry, Ref, in_order
from toolcrib_operator.ports import ClusterWriter
from toolcrib_operator.replicas.canaries import Canaries
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.status.escapes import Escapes
from toolcrib_operator.status.events import Events
from toolcrib_operator.status.planner import StatusPlanner
from toolcrib_operator.status.writer import StatusWriter
from toolcrib_operator.timers import paced, wait_any
from toolcrib_operator.workloads.keeper import Keeper
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

_FEW = 50
"""Objects of a revision that are worth a line each: what people apply by hand, not a takeover."""


class Loop:
    """One World, one publisher: what is recorded in the first is put into effect by the second."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        index_sync: IndexSync,
        writer: ClusterWriter,
        *,
        settings: LoopSettings | None = None,
        policies: Policies | None = None,
        probes: ProbeReports | None = None,
        imports: Imports | None = None,
        workloads: Keeper | None = None,
        clock: Callable[[], float] = time.time,
        on_published: Callable[[Revision, Collection[Ref]], None] | None = None,
        on_propagated: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """
        Args:
            world: where changes are recorded, from any thread.
            publisher: what delivers to the replicas; `run` runs it.
            index_sync: what keeps the search index; `run` runs it.
            writer: where statuses, finalizers and events go.
            settings: hold-backs, trusted labels, credential namespaces.
            policies: what tells whether new grants were checked at admission; without it all count as checked.
            probes: what asks a replica whether backends can be reached; `run` runs it; None: nobody is asked.
            imports: what imports the tools of servers; `run` runs it; None: none are imported.
            workloads: what keeps what is run for Agents; `run` runs it; None: nothing is run.
            clock: seconds since the epoch; dates of bindings are judged by it.
            on_published: told about every revision and the objects that changed in it.
            on_propagated: told the seconds from the first change in a revision until every replica had it.
        """
        self.settings = settings or LoopSettings()
        self.policies = policies or Policies(Admitted())
        self.assessor = Assessor(world, self.settings, self.policies.admitted)
        self.events = Events(writer, clock)
        self._world, self._publisher, self._index_sync, self._clock = world, publisher, index_sync, clock
        self._records = self.assessor.facts.records
        self._escapes = Escapes(self._records, self._escaped)
        self._planner = StatusPlanner(
            world, self.assessor, publisher, index_sync, self.settings, self._escapes, probes, imports, workloads
        )  # fmt: skip
        self.status_writer = StatusWriter(
            world, self.assessor.kinds, self._records, self._planner, writer, self.events, self.settings, clock=clock,
            # asked of the publisher each time: a fenced one may not act whatever the Lease says
            may_act=lambda: publisher.may_act(),
        )  # fmt: skip
        self.reach = ReachCounts(publisher)
        self.grants = GrantCounts(
            publisher, self.reach, grants=self.settings.metric_grants, tools=self.settings.metric_tools
        )
        self._on_published = on_published
        self._propagation = Propagation(on_propagated)
        self._wake = asyncio.Event()
        self._turned = asyncio.Event()
        self._covered = 0
        self._confirmed: tuple[Revision | None, ...] = ()
        self._probes, self._imports, self._workloads = probes, imports, workloads
        self._canaries = Canaries(
            world,
            publisher,
            self.assessor.facts,
            lambda ref: self.status_writer.due(ref, clock()),
            clock=clock,
            every=self.settings.trials_every,
        )
        index_sync.on_change(self._index_changed)
        if probes is not None:
            probes.on_change(self._backends_changed)
        if imports is not None:
            imports.know(self.assessor.facts, lambda ref: self.status_writer.due(ref, self._clock()))
        if workloads is not None:
            workloads.know(
                self.assessor.facts,
                lambda ref: self.status_writer.due(ref, self._clock()),
                self._planner.progress,
            )
        publisher.subscribe(self._progressed)
        publisher.unreachable = self._unreachable

    @property
    def started(self) -> bool:
        """Whether everything has been listed and published once."""
        return self._publisher.revision is not None

    @property
    def oldest_waiting(self) -> float:
        """Seconds for which the oldest thing waits to be assessed, published or written; 0 if nothing does."""
        return max(self._propagation.unpublished, self.status_writer.oldest)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. An unexpected error ends all of it and is raised."""
        running = asyncio.get_running_loop()

        def woken() -> None:
            self._propagation.noticed()
            with contextlib.suppress(RuntimeError):  # a watch may end after this loop
                running.call_soon_threadsafe(self._wake.set)

        self._world.subscribe(woken)
        self.policies.subscribe(self._wake.set)
        self._wake.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publisher.run(stop))
            group.create_task(self._index_sync.run(stop))
            group.create_task(self.status_writer.run(stop))
            if self._probes is not None:
                group.create_task(self._probes.run(stop))
            if self._imports is not None:
                group.create_task(self._imports.run(stop))
            if self._workloads is not None:
                group.create_task(self._workloads.run(stop))
            group.create_task(self._canaries.run(stop))
            group.create_task(self.events.run(stop))
            group.create_task(self.reach.run(stop))
            group.create_task(self._escapes.run(stop))
            group.create_task(self.policies.run(stop))
            while not stop.is_set():
                await wait_any((self._wake, stop))
                if self._wake.is_set():
                    self._wake.clear()
                    await self._turn()

    async def published(self, change: int) -> Revision:
        """Wait until `change` (as `World` returned it) is confirmed by every replica; bound it with a timeout."""
        while self._covered < change:
            turned = self._turned
            await turned.wait()
        revision = self._publisher.revision
        assert revision is not None
        await self._publisher.wait_confirmed(revision)
        return revision

    def told(self, ref: Ref) -> Told | None:
        """What the status of an object says, or is about to say; None where it has none."""
        return self._planner.told(ref, self._clock())

    async def _turn(self) -> None:
        if self._world.unlisted or not self.policies.known or not self._publisher.may_act():
            return
        dirty, change = self._world.take()
        refs = await self._expanded(dirty | self.policies.admitted.ripe())
        undecided = [each for ref in refs if (each := self._undecided(ref)) is not None]
        self.policies.settle()
        for record, entry in undecided:
            self.policies.admitted.notice(record, entry)
        if {record.ref for record, _ in undecided} - self.policies.admitted.ripe():
            # a revocation of the same turn does not wait for a slow API server: the new grants alone do
            await self.policies.asked(self.settings.look_within)
        refs = await self._judged(refs)
        batch = await self._gathered()
        self._publisher.set_credentials(self.assessor.credentials)
        revision = self._publisher.revision
        if batch or revision is None:
            revision = await self._publisher.publish_many(
                tools=batch.tools,
                bindings=batch.bindings,
                accounts=batch.accounts,
                servers=batch.servers,
                removed=batch.removed,
            )
            self._say(revision, batch)
            process.heap.grown(len(batch.changed))
            self.reach.changed()
            self._escapes.moved(batch.moved, self._publisher.snapshot.policy)
            self._propagation.turned(revision if batch else None)
            if self._on_published is not None:
                self._on_published(revision, batch.changed)
        else:
            self._propagation.turned(None)
        if self._imports is not None:
            self._imports.assessed(refs)
        if self._workloads is not None:
            self._workloads.assessed(refs)
        now = self._clock()
        self._planner.assessed(refs, batch.changed, revision, now)
        for ref in (*refs, *batch.drifted):
            self.status_writer.due(ref, now)
        if recount := {*self.assessor.surveying(batch.namespaces), *batch.renamed}:
            at = self._planner.recount(recount, now)
            for ref in recount:
                self.status_writer.due(ref, at)
        self._covered = change
        self._turned.set()
        self._turned = asyncio.Event()

    async def _expanded(self, dirty: set[Ref]) -> list[Ref]:
        """`Assessor.expand`, in parts: the lint looks at each tool's words."""
        given = in_order(dirty)
        touched: set[Ref] = set()
        async for part in paced(given):
            touched.update(self.assessor.expand(part))
        return in_order(touched)

    async def _judged(self, refs: list[Ref]) -> list[Ref]:
        """Judge these objects; returns them and those whose place among the quotas is another now."""
        found, due = set(refs), refs
        while due:
            async for part in paced(due):
                few: list[Ref] = []
                for ref in part:
                    few.append(ref)
                    if (large := self.assessor.large(ref)) is not None:
                        await asyncio.to_thread(weaknesses.prepare, large)
                        self.assessor.judge(few)
                        few = []
                self.assessor.judge(few)
            due, lost = self.assessor.settle()
            found.update(due, lost)
        return in_order(found)

    async def _gathered(self) -> Batch:
        """`Assessor.batch`, in parts."""
        batch = Batch()
        async for part in paced(self.assessor.pending):
            self.assessor.gather(part, batch)
        return self.assessor.close(batch)

    def _undecided(self, ref: Ref) -> tuple[Record, Entry] | None:
        """The object, if it depends on the admission policies of this moment whether it is used."""
        entry = self._world.get(ref)
        if entry is None:
            return None
        record = self._records[ref]
        if not self.assessor.kinds[ref.kind].guarded(entry, record):
            return None
        return None if self.policies.admitted.decided(record, entry) else (record, entry)

    def _escaped(self, ref: Ref) -> None:
        """A tool has left what this binding denies."""
        self.status_writer.due(ref, self._planner.recount([ref], self._clock()))

    def _say(self, revision: Revision, batch: Batch) -> None:
        """One line about the revision, and one about each object in it unless they are many (then at debug)."""
        # the id that the replicas log this revision by
        with logs.working_on(f"op-{revision.epoch}-{revision.seq}"):
            gone = batch.removed
            log.info("revision %s: %d tools, %d bindings, %d accounts, %d removed", revision, len(batch.tools),
                     len(batch.bindings), len(batch.accounts or ()),
                     len(gone.tools) + len(gone.servers) + len(gone.bindings) + len(gone.accounts),
                     extra=logs.about(revision=str(revision)))  # fmt: skip
            level = logging.INFO if len(batch.changed) <= _FEW else logging.DEBUG
            if not log.isEnabledFor(level):
                return
            for ref in batch.changed:
                entry = self._world.get(ref)
                record = self._records.get(ref)
                in_force = record is not None and record.published is not None
                log.log(level, "published in revision %s" if in_force else "not in effect since revision %s", revision, extra=logs.about_object(
                            ref.kind, ref.key, revision=str(revision),
                            generation=entry.generation if entry else None,
                            resource_version=entry.resource_version if entry else None,
                        ))  # fmt: skip

    def _progressed(self) -> None:
        """A replica came, went, failed or confirmed; only a confirmation or a set of others can finish anything."""
        self._propagation.progressed(self._publisher.confirmed_by_all)
        confirmed = tuple(link.confirmed for link in self._publisher.links)
        if confirmed == self._confirmed and confirmed:
            return
        self._confirmed = confirmed
        if self._workloads is not None:
            self._workloads.confirmed()
        now = self._clock()
        for ref in list(self._planner.waiting):
            self.status_writer.due(ref, now)

    def _backends_changed(self, ids: Collection[str]) -> None:
        """Not all at once: a host may have thousands of tools, and more urgent writes go on."""
        assert self._probes is not None
        now, each = self._clock(), 1 / self._probes.settings.writes
        tools = [kind.name for kind in self.assessor.kinds.values() if kind.slot is TOOLS]
        for number, tool_id in enumerate(ids):
            for kind in tools:
                self.status_writer.due(Ref(kind, tool_id), now + number * each)

    def _unreachable(self) -> tuple[str, ...]:
        found, tools = self.assessor.facts.unreachable, self._publisher.snapshot.tools
        for gone in found.keys() - tools.keys():
            del found[gone]
        return tuple(sorted(set(found.values()))[:MOST_BACKENDS])

    def _index_changed(self, ids: Collection[str] | None) -> None:
        now = self._clock()
        for kind in (kind.name for kind in self.assessor.kinds.values() if kind.slot is TOOLS):
            known = (record.ref for record in self._records.of(kind) if record.published is not None)
            for ref in list(known) if ids is None else [Ref(kind, names.of_candidate(i)) for i in ids]:
                self.status_writer.due(ref, now)
