"""Imports: each server's list stands as Tools that its ToolServer owns.

What is to be done is decided by `toolcrib.imports`; here it is carried out: when a list, a ToolServer or a Tool of one
changes. Before every write the leadership is asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from toolcrib.errors import EpochFenced
from toolcrib.imports.definitions import Imported, LeftOut, instructions_digest
from toolcrib.imports.plan import Plan, Standing, plan
from toolcrib.resources import durations
from toolcrib.resources.servers import MOST_INSTRUCTIONS, ToolServer
from toolcrib.telemetry import logs
from toolcrib.wire.imports import ServerList
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid, ReplicaUnavailable
from toolcrib_operator.kinds.facts import SERVER, Facts
from toolcrib_operator.kinds.imported import Carried, ImportState, shrunk_since
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.kinds.verdicts import ServerVerdict
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.ports import Applier
from toolcrib_operator.replicas.import_work import Work, in_the_way, marked
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.servers import ServerReports
from toolcrib_operator.settings import ImportSettings
from toolcrib_operator.timers import pause, wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

_QUIET = 2
"""Failures in a row that are no news: a replica or the API server was down for a moment."""


class Imports:
    """Carries imports out until stopped."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        reports: ServerReports,
        applier: Applier,
        *,
        settings: ImportSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            world: has the ToolServers and Tools, and is told what was written, before any watch.
            publisher: knows whether this operator may act.
            reports: what a replica says of the servers.
            applier: writes Tools.
            settings: how many writes at a time, and when to try again.
            clock: seconds since the epoch.
        """
        self.reports = reports
        self.settings = settings or ImportSettings()
        self.applied = 0
        """Tools written so far."""
        self.deleted = 0
        self._world, self._publisher, self._applier, self._clock = world, publisher, applier, clock
        self._facts: Facts | None = None
        self._on_change: Callable[[Ref], None] = lambda ref: None
        self._work: dict[Ref, Work] = {}
        self._servers: dict[str, Ref] = {}
        """By uid."""
        self._owner: dict[Ref, Ref] = {}
        """The ToolServer of each imported Tool."""
        self._wake = asyncio.Event()
        reports.on_change(self._reported)

    def know(self, facts: Facts, told: Callable[[Ref], None]) -> None:
        """Ask `facts` who has which name; `told` gets ToolServers whose status may say something else."""
        self._facts, self._on_change = facts, told

    def of(self, server: Ref) -> ImportState | None:
        """What is known of a server and of its import."""
        work, seen = self._work.get(server), self.reports.of(server.key)
        carried = None if work is None else work.carried
        return None if seen is None and carried is None else ImportState(seen, carried)

    @property
    def failing(self) -> dict[Ref, str]:
        """The ToolServers whose tools could not be written, with the reason."""
        found = ((ref, work.carried) for ref, work in self._work.items())
        return {ref: c.problem for ref, c in found if c is not None and c.problem}

    @property
    def left_out(self) -> int:
        """Tools of all lists that no Tool is written for."""
        return sum(len(w.carried.left_out) for w in self._work.values() if w.carried is not None)

    def assessed(self, refs: Iterable[Ref]) -> None:
        """These objects were assessed: a ToolServer may ask for something else, a Tool be another than was written."""
        assert self._facts is not None
        for ref in refs:
            if ref.kind == SERVER:
                self._asked_for(ref)
            elif ref.kind == TOOL:
                self._touched(ref)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`."""
        slots, tasks = asyncio.Semaphore(self.settings.servers), set[asyncio.Task[None]]()
        tasks.add(asyncio.create_task(self.reports.run(stop), name="servers"))
        try:
            while not stop.is_set():
                self._wake.clear()
                now, following = self._clock(), 0.5
                for ref, work in list(self._work.items()):
                    if work.due is None or work.busy:
                        continue
                    if work.due > now:
                        following = min(following, work.due - now)
                        continue
                    work.due, work.busy = None, True
                    task = asyncio.create_task(self._one(ref, work, slots))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await wait(self._wake, following)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _asked_for(self, ref: Ref) -> None:
        assert self._facts is not None
        entry, record = self._world.get(ref), self._facts.records.get(ref)
        verdict = None if record is None else record.verdict
        wanted = verdict.wanted if isinstance(verdict, ServerVerdict) else None
        gone = entry is None or entry.deleting is not None
        self.reports.want(ref.key, None if gone else wanted)
        work = self._work.get(ref)
        if work is not None and (entry is None or gone or work.uid != entry.uid):
            del self._work[ref]
            self._servers.pop(work.uid, None)
            work = None
        if entry is None or gone:
            return
        if work is None:
            self._work[ref] = Work(entry.uid)
            self._servers[entry.uid] = ref
        if wanted is not None:
            self._due(ref)

    def _touched(self, ref: Ref) -> None:
        entry = self._world.get(ref)
        owner = self._owner.get(ref) if entry is None else self._servers.get(entry.owner)
        work = None if owner is None else self._work.get(owner)
        if owner is None or work is None:
            return
        if entry is None:
            del self._owner[ref]
            self._due(owner)
        elif (held := work.marks.get(ref.name)) is None or held[0] != entry.kept:
            self._due(owner)

    def _reported(self, servers: Collection[str]) -> None:
        for server in servers:
            ref = Ref(SERVER, server)
            self._due(ref)
            self._on_change(ref)

    def _due(self, ref: Ref, seconds: float = 0.0) -> None:
        work = self._work.get(ref)
        if work is None:
            return
        at = self._clock() + seconds
        work.due = at if work.due is None else min(work.due, at)
        self._wake.set()

    async def _one(self, ref: Ref, work: Work, slots: asyncio.Semaphore) -> None:
        """Bring one import up to date; it never raises."""
        before = work.carried
        async with slots:
            try:
                await self._import(ref, work)
                work.failures = 0
            except EpochFenced as error:
                self._publisher.fenced(error)
            except (ReplicaUnavailable, ClusterUnavailable, Conflict, Gone) as error:
                self._failed(ref, work, str(error))
            except Exception as error:
                log.exception("the import failed", extra=logs.about_object(ref.kind, ref.key))
                self._failed(ref, work, f"{type(error).__name__}; the operator's log has the reason.")
            finally:
                work.busy = False
                self._wake.set()
        if work.carried != before:
            self._on_change(ref)

    def _failed(self, ref: Ref, work: Work, problem: str) -> None:
        work.failures += 1
        work.done = None
        if work.failures > _QUIET:
            log.warning("the import failed: %s", problem, extra=logs.about_object(ref.kind, ref.key))
            work.carried = replace(work.carried or Carried(), done=False, problem=problem)
        self._due(ref, pause(*self.settings.backoff, work.failures - 1))

    async def _import(self, ref: Ref, work: Work) -> None:
        entry, seen = self._world.get(ref), self.reports.of(ref.key)
        server = None if entry is None else entry.resource
        if (
            entry is None
            or entry.deleting is not None
            or not isinstance(server, ToolServer)
            or server.disabled
        ):
            return
        if seen is None or seen.set_digest is None or not self._publisher.still_leads():
            return
        standing = await asyncio.to_thread(work.standing, self._world)
        self._owner |= {Ref(TOOL, f"{ref.namespace}/{name}"): ref for name in standing}
        over = work.shrunk_at is not None and self._clock() >= work.shrunk_at + server.spec.grace
        goal = (entry.generation, seen.set_digest)
        if work.done == goal and not over and work.stands(standing):
            return
        if (again := work.spaced(self._clock())) > 0:
            self._due(ref, again)
            return
        listed = await self.reports.list(ref.key, seen.set_digest)
        if listed is None:  # the report that names the next one is on its way
            self._due(ref, self.settings.backoff[0])
            return
        plan_ = await self._planned(entry, server, work, listed, standing)
        if plan_.apply or plan_.delete:
            work.carried = replace(work.carried or Carried(), done=False, problem="")
            self._on_change(ref)
        refused = await self._carry_out(ref, work, plan_, standing)
        left_out = tuple(sorted((*plan_.left_out, *refused), key=lambda left: left.tool))
        work.carried = Carried(plan_.imported - len(refused), len(plan_.held), left_out, done=True,
                               instructions=listed.instructions[:MOST_INSTRUCTIONS],
                               instructions_digest=instructions_digest(listed.instructions))  # fmt: skip
        work.done = goal
        if any(left.passing for left in left_out):
            work.done = None
            self._due(ref, self.settings.again)
        if work.shrunk_at is not None:
            self._due(ref, max(0.0, work.shrunk_at + server.spec.grace - self._clock()))

    async def _planned(
        self, entry: Entry, server: ToolServer, work: Work, listed: ServerList, standing: dict[str, Standing]
    ) -> Plan:
        if work.known_at != entry.generation or len(work.known) > 2 * len(listed.tools) + 100:
            work.known, work.known_at = {}, entry.generation
        assert self._facts is not None
        others = in_the_way(self._world, self._facts, entry, server, listed)

        def made(patient: bool) -> Plan:
            return plan(server, listed, standing, others, patient=patient, known=work.known)

        found = await asyncio.to_thread(made, True)
        if not found.shrunk:
            work.shrunk_at = None
            return found
        if work.shrunk_at is None:
            said = shrunk_since(entry)
            work.shrunk_at = self._clock() if said is None else durations.instant(said)
        if self._clock() >= work.shrunk_at + server.spec.grace:
            work.shrunk_at = None
            return await asyncio.to_thread(made, False)
        return found

    async def _carry_out(
        self, ref: Ref, work: Work, plan_: Plan, standing: dict[str, Standing]
    ) -> list[LeftOut]:
        """Delete, then apply. Returns what the API server refuses for what it is."""
        slots, refused = asyncio.Semaphore(self.settings.writes), list[LeftOut]()
        changing = {*plan_.delete, *(each.object_name for each in plan_.apply)}
        work.written = {
            name: (s.mark, work.marks[name][1]) for name, s in standing.items() if name not in changing
        }

        async def delete(name: str) -> None:
            async with slots:
                await self._delete(Ref(TOOL, f"{ref.namespace}/{name}"), work)

        async def apply(each: Imported) -> None:
            async with slots:
                try:
                    await self._apply(ref, work, each)
                except Invalid as error:
                    refused.append(LeftOut(each.tool, f"the API server refuses it: {error}", passing=True))

        for part in ([delete(name) for name in plan_.delete], [apply(each) for each in plan_.apply]):
            # all are awaited before the first failure is raised: none goes on behind our back
            for result in await asyncio.gather(*part, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        if changing:
            log.info("%d tools written, %d deleted, %d left out, %d held", len(plan_.apply) - len(refused),
                     len(plan_.delete), len(plan_.left_out) + len(refused), len(plan_.held),
                     extra=logs.about_object(ref.kind, ref.key))  # fmt: skip
        return refused

    async def _delete(self, tool: Ref, work: Work) -> None:
        there = self._world.get(tool)
        if there is None or there.owner != work.uid or there.deleting is not None:
            return
        self._lead()
        await self._applier.delete(tool, uid=there.uid)
        self.deleted += 1
        work.deleted.add(there.uid)
        self._owner.pop(tool, None)

    async def _apply(self, server: Ref, work: Work, each: Imported) -> None:
        tool = Ref(TOOL, f"{server.namespace}/{each.object_name}")
        there = self._world.get(tool)
        if there is not None and there.owner != work.uid:
            raise Conflict(f"{tool} does not belong to {server}")
        self._lead()
        made = await self._applier.apply(each.manifest, uid=None if there is None else there.uid)
        self.applied += 1
        self._world.upsert(TOOL, made)
        self._owner[tool] = server
        if (after := self._world.get(tool)) is not None:
            mark = marked(after)
            work.marks[each.object_name] = (after.kept, mark)
            work.written[each.object_name] = (each.mark, mark)

    def _lead(self) -> None:
        if not self._publisher.still_leads():
            raise ClusterUnavailable("this operator no longer leads")
