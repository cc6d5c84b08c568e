"""Keeps what is run for Agents as the Agents say: written, mended after others changed it, deleted where it is not to run.

Looks every few seconds, and when an Agent was assessed. Each Agent has its own retries: one that cannot be run holds up none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.resources.agents import Agent, RunOutcome
from toolcrib.resources.conditions import ConditionReason
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.admission import AGENT
from toolcrib_operator.kinds.deployed import DeployedState, is_over
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.running import account_of
from toolcrib_operator.kinds.statuses import Progress
from toolcrib_operator.kinds.verdicts import AgentVerdict, Cause, Run
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.ports import Workloads
from toolcrib_operator.settings import AgentSettings
from toolcrib_operator.timers import Backoff, wait_any
from toolcrib_operator.workloads import manifests, state
from toolcrib_operator.workloads.comparison import holds
from toolcrib_operator.workloads.seen import Seen
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

WAITS = ConditionReason.WAITS_FOR_TOOLS
AT_ONCE = 4
"""Agents whose workloads are written at a time."""
Manifest = Mapping[str, Any]


@dataclass
class _Trial:
    """The writes for one generation of an Agent."""

    seen: tuple[str, int]
    backoff: Backoff
    not_before: float = 0.0
    problem: Cause | None = None
    begins_by: float | None = None
    """When its task begins whatever it waits for; None: it has not waited."""
    settled: dict[Ref, tuple[str, Any, Manifest]] = field(default_factory=dict)
    """Workloads that the API server keeps another way than they were written: uid and generation then, and what was written."""


class Keeper:
    """Keeps the workloads of all Agents until stopped."""

    def __init__(
        self,
        world: World,
        workloads: Workloads,
        settings: AgentSettings,
        *,
        may_act: Callable[[], bool] = lambda: True,
        snapshot: Callable[[], Snapshot] = Snapshot,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            world: where the Agents are.
            workloads: reads and writes what is run.
            settings: where, and how.
            may_act: whether this operator leads; asked before each write.
            snapshot: what is published.
            clock: seconds since the epoch.
            monotonic: seconds.
        """
        self._world, self._workloads, self._settings = world, workloads, settings
        self._may_act, self._monotonic = may_act, monotonic
        self._seen = Seen(snapshot, clock)
        self._facts: Facts | None = None
        self._due: Callable[[Ref], None] = lambda ref: None
        self._progress: Callable[[Record], Progress] = lambda record: Progress()
        self._there: dict[str, dict[Ref, Manifest]] = {}
        """By namespace, as they were seen last; a namespace that was never listed is not there."""
        self._unlisted: dict[str, Cause] = {}
        self._troubles: dict[str, logs.Trouble] = {}
        self._look_at = 0.0
        self._trials: dict[Ref, _Trial] = {}
        self._states: dict[Ref, DeployedState] = {}
        self._wake = asyncio.Event()
        self.writes = 0
        """Workloads written and deleted so far."""

    def know(self, facts: Facts, due: Callable[[Ref], None], progress: Callable[[Record], Progress]) -> None:
        """Take verdicts from `facts`, have statuses written by `due`, and ask `progress` who has confirmed an object."""
        self._facts, self._due, self._progress = facts, due, progress

    def assessed(self, refs: Iterable[Ref]) -> None:
        """These objects were assessed."""
        if any(ref.kind == AGENT for ref in refs):
            self._wake.set()

    def confirmed(self) -> None:
        """A replica has confirmed something: a task may wait for it."""
        if any(
            trial.problem is not None and trial.problem.reason is WAITS for trial in self._trials.values()
        ):
            self._wake.set()

    def of(self, agent: Ref) -> DeployedState | None:
        """What stands at the API server for an Agent; None: it was not looked yet, or nothing is run."""
        return self._states.get(agent)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Nothing that goes wrong with a workload ends it."""
        while not stop.is_set():
            self._wake.clear()
            if self._facts is not None and not self._world.unlisted and self._may_act():
                try:
                    await self._turn(self._facts)
                except Exception:  # grants and revocations go on, whatever becomes of pods
                    log.exception("keeping the workloads of agents failed; trying again")
            await wait_any((stop, self._wake), self._settings.every)

    async def _turn(self, facts: Facts) -> None:
        if self._monotonic() >= self._look_at:
            for namespace in self._settings.namespaces:
                await self._look(namespace)
            self._look_at = self._monotonic() + self._settings.every
        entries = {e.ref: e for e in self._world.all(AGENT) if e.ref.namespace in self._settings.namespaces}
        for gone in self._states.keys() - entries.keys():
            del self._states[gone]
        for gone in self._trials.keys() - entries.keys():
            del self._trials[gone]
        places = asyncio.Semaphore(AT_ONCE)

        async def keep(entry: Entry, verdict: AgentVerdict) -> None:
            async with places:
                await self._keep(entry, verdict)

        async with asyncio.TaskGroup() as group:
            for entry in entries.values():
                record = facts.records.get(entry.ref)
                verdict = None if record is None or entry.deleting is not None else record.verdict
                if record is None or record.judged != (entry.uid, entry.generation):
                    continue
                if isinstance(verdict, AgentVerdict) and verdict.known:
                    group.create_task(keep(entry, verdict))

    async def _look(self, namespace: str) -> None:
        trouble = self._troubles.setdefault(namespace, logs.Trouble(log))
        try:
            found = await self._workloads.there(namespace)
        except ClusterUnavailable as error:
            trouble.failed("the workloads of agents in %s cannot be listed: %s", namespace, error)
            self._unlisted[namespace] = Cause(ConditionReason.DEPLOY_FAILED, str(error))
            return
        trouble.over("the workloads of agents in %s can be listed again", namespace)
        self._unlisted.pop(namespace, None)
        self._there[namespace] = {state.ref_of(each): each for each in found}

    async def _keep(self, entry: Entry, verdict: AgentVerdict) -> None:
        """Bring about what is to be for one Agent, and note how it is."""
        seen = (entry.uid, entry.generation)
        trial = self._trials.get(entry.ref)
        if trial is None or trial.seen != seen:
            trial = self._trials[entry.ref] = _Trial(seen, Backoff(*self._settings.backoff))
        namespace = entry.ref.namespace or ""
        if namespace not in self._there:
            trial.problem = self._unlisted.get(namespace)
        elif self._monotonic() >= trial.not_before:
            await self._try(entry, verdict, trial)
        await self._note(entry, verdict.run, trial)

    async def _try(self, entry: Entry, verdict: AgentVerdict, trial: _Trial) -> None:
        run, waits = verdict.run, None
        try:
            if run is None or run.refusal is not None:
                await self._end(entry, run)
            else:
                waits = await self._write(entry, verdict, trial)
        except Conflict as error:
            trial.problem = Cause(
                ConditionReason.NAME_TAKEN, f"Another object has the name of the workload: {error}"
            )
        except Gone:
            trial.problem = Cause(
                ConditionReason.DEPLOY_FAILED, f"There is no namespace {entry.ref.namespace}."
            )
        except (Invalid, ClusterUnavailable) as error:
            trial.problem = Cause(ConditionReason.DEPLOY_FAILED, f"The API server refused it: {error}")
        except Exception:
            log.exception("the workload of an agent failed", extra=logs.about_object(AGENT, entry.ref.key))
            trial.problem = Cause(ConditionReason.DEPLOY_FAILED, "The operator's log has the reason.")
        else:
            trial.backoff.reset()
            trial.problem, trial.not_before = waits, 0.0
            return
        # what was seen may be out of date
        self._look_at = 0.0
        trial.not_before = self._monotonic() + trial.backoff.next()

    async def _end(self, entry: Entry, run: Run | None) -> None:
        """Nothing is to run: all goes where nothing is asked for, and what runs where that was refused."""
        for each in self._mine(entry):
            if run is None or (run.stops and state.is_running(each)):
                await self._delete(each)

    async def _write(self, entry: Entry, verdict: AgentVerdict, trial: _Trial) -> Cause | None:
        """Have it as it is to be; what its task waits for, if it does."""
        agent, waits = entry.resource, None
        assert isinstance(agent, Agent)
        wanted = manifests.workload(agent, self._settings)
        ref = state.ref_of(wanted)
        there = self._there[ref.namespace or ""].get(ref)
        if there is not None and state.owner_of(there) != entry.uid:
            await self._of_another(there)
            there = None
        if wanted["kind"] == "Job":
            # once: a Job that somebody has deleted is not wanted again
            if there is None and (entry.status.get("lastRun") or {}).get("job") != ref.name:
                waits = await self._waits(entry, verdict, trial)
                if waits is None:
                    await self._apply(wanted, None)
        elif there is None or not (holds(wanted, there) or self._is_settled(trial, ref, there, wanted)):
            made = await self._apply(wanted, None if there is None else there["metadata"]["uid"])
            if not holds(wanted, made):
                metadata = made["metadata"]
                trial.settled[ref] = (metadata["uid"], metadata.get("generation"), wanted)
        for each in self._mine(entry):
            if state.ref_of(each) != ref:
                await self._delete(each)
        return waits

    async def _waits(self, entry: Entry, verdict: AgentVerdict, trial: _Trial) -> Cause | None:
        """What a task that has not begun waits for."""
        facts, agent, now = self._facts, entry.resource, self._monotonic()
        assert facts is not None
        assert isinstance(agent, Agent)
        if verdict.published is not None:
            return Cause(WAITS, "The task begins once the agent is resumed.")
        within = self._settings.grants_within
        if trial.begins_by is None:
            trial.begins_by = now + within
        if now >= trial.begins_by:
            return None
        account = account_of(entry)
        bindings = [r for ref in facts.accounts.namers(account) if (r := facts.records.get(ref)) is not None]
        late = [r.ref for r in bindings if r.published is not None and not self._progress(r).propagated]
        if late:
            lacks = f"Not every registry replica has confirmed {min(late, key=str)} yet."
        elif not await self._tools(account):
            lacks = f"No binding in effect gives ServiceAccount {account} a tool yet."
        else:
            return None
        return Cause(WAITS, f"{lacks} If that lasts, the task begins {within:g} s after the operator saw it.")

    async def _tools(self, account: str) -> int:
        found = self._world.get(Ref(SERVICE_ACCOUNT, account))
        return await self._seen.of(account, None if found is None else found.uid)

    async def _of_another(self, there: Manifest) -> None:
        """The workload of an Agent of the same name that is gone goes; anybody else's stays."""
        ref, owner = state.ref_of(there), state.owner_of(there)
        if not owner or any(entry.uid == owner for entry in self._world.all(AGENT)):
            raise Conflict(str(ref))
        await self._delete(there)

    def _is_settled(self, trial: _Trial, ref: Ref, there: Manifest, wanted: Manifest) -> bool:
        metadata = there["metadata"]
        return trial.settled.get(ref) == (metadata["uid"], metadata.get("generation"), wanted)

    async def _apply(self, wanted: Manifest, uid: str | None) -> Manifest:
        ref = state.ref_of(wanted)
        if not self._may_act():
            raise ClusterUnavailable("this operator does not lead any more")
        made = await self._workloads.apply(wanted, uid=uid)
        self.writes += 1
        log.info(
            "%s %s", "created" if uid is None else "mended", ref, extra=logs.about_object(ref.kind, ref.key)
        )
        self._there[ref.namespace or ""][ref] = made
        return made

    async def _delete(self, there: Manifest) -> None:
        ref = state.ref_of(there)
        if not self._may_act():
            raise ClusterUnavailable("this operator does not lead any more")
        if there["metadata"].get("deletionTimestamp") is None:
            await self._workloads.delete(ref, uid=there["metadata"]["uid"])
            self.writes += 1
            log.info("deleted %s", ref, extra=logs.about_object(ref.kind, ref.key))
        self._there[ref.namespace or ""].pop(ref, None)

    def _mine(self, entry: Entry) -> list[Manifest]:
        held = self._there.get(entry.ref.namespace or "", {})
        return [each for each in held.values() if state.owner_of(each) == entry.uid]

    async def _note(self, entry: Entry, run: Run | None, trial: _Trial) -> None:
        """The state of an Agent, and its status if that is another now."""
        mine, last = self._mine(entry), entry.status.get("lastRun")
        jobs = [each for each in mine if each["kind"] == "Job"]
        if jobs:
            last = state.last_run(max(jobs, key=lambda j: str(j["metadata"].get("creationTimestamp") or "")))
        elif last is not None and not is_over(last) and entry.ref.namespace in self._there:
            last = {**last, "outcome": RunOutcome.FAILED.value}
        counts = [state.pods(each) for each in mine]
        trouble = next(filter(None, map(state.trouble, mine)), "")
        account = account_of(entry)
        if run is None:
            self._seen.forget(account)
            if self._states.pop(entry.ref, None) is not None:
                self._due(entry.ref)
            return
        now = DeployedState(
            trial.seen, trial.problem, sum(w for w, _ in counts), sum(r for _, r in counts), trouble, last,
            await self._tools(account),
        )  # fmt: skip
        if self._states.get(entry.ref) != now:
            self._states[entry.ref] = now
            self._due(entry.ref)
