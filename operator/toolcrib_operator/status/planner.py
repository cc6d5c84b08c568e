"""What is to be written about each object, and when: status, finalizer, and what may wait a little.

Plans only; `writer` carries them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib import authorizer
from toolcrib.authorizer import Denial
from toolcrib.resources import durations
from toolcrib.resources.admission import FINALIZER
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.publish import PublishedBinding, PublishedTool, Revision
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.binding import Territories, matched_tools
from toolcrib_operator.kinds.questions import fired, questions
from toolcrib_operator.kinds.statuses import BindingReach, DenialHistory, Desired, Progress, Status
from toolcrib_operator.kinds.verdicts import BindingVerdict, ToolVerdict
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.status.escapes import MOST_ESCAPED, Escapes
from toolcrib_operator.world import BINDINGS, Entry, Ref, World


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
        escapes: Escapes | None = None,
    ) -> None:
        self._escapes = escapes or Escapes()
        self.waiting: set[Ref] = set()
        self._world = world
        self._assessor = assessor
        self._publisher = publisher
        self._index_sync = index_sync
        self._settings = settings
        self._started: float | None = None
        self._changed: dict[Ref, Revision] = {}
        self._gone: dict[Ref, tuple[str, Revision, float]] = {}
        """Bindings that are being deleted: uid, the first revision without it, and when that was made."""
        self._pending_since: dict[Ref, float] = {}
        self._recounted: dict[Ref, float] = {}
        self._stale: dict[Ref, float] = {}
        self._first_seen: dict[Ref, tuple[str, int, float]] = {}
        """Bindings as uid and generation, and when they were first assessed so."""
        self._territories = Territories()

    def assessed(self, refs: Iterable[Ref], changed: set[Ref], revision: Revision, now: float) -> None:
        """These objects were assessed; the published form of those in `changed` is in `revision` first."""
        if self._started is None:
            self._started = now
        for ref in refs:
            entry = self._world.get(ref)
            if entry is None:
                self._forget(ref)
                continue
            if self._first_seen.get(ref, ())[:2] != (entry.uid, entry.generation) and ref.kind in BINDINGS:
                self._first_seen[ref] = (entry.uid, entry.generation, now)
            if entry.deleting is not None and ref.kind in BINDINGS:
                if self._gone.get(ref, ("",))[0] != entry.uid:
                    self._gone[ref] = (entry.uid, revision, now)
                self.waiting.add(ref)
            elif ref in changed or ref not in self._changed:
                self._changed[ref] = revision
                self._pending_since.pop(ref, None)
                self.waiting.add(ref)
                if ref.kind in BINDINGS:
                    self._stale.setdefault(ref, now)

    def recount(self, refs: Iterable[Ref], now: float) -> float:
        """Tools within reach of these bindings have changed; returns when to look."""
        for ref in refs:
            self._stale.setdefault(ref, now)
        return now + self._settings.hold_back

    def plan(self, ref: Ref, now: float) -> Plan:
        """What to write about an object now."""
        entry = self._world.get(ref)
        if entry is None:
            self._forget(ref)
            return Plan()
        if entry.deleting is not None:
            return self._plan_removal(entry, now)
        verdict = self._assessor.verdicts.get(ref)
        if verdict is None:  # it goes with its namespace
            self.waiting.discard(ref)
            return Plan()
        if isinstance(verdict, ToolVerdict):
            desired = statuses.tool_status(entry, verdict, self._progress(ref, verdict.published), now)
            return self._plan_status(entry, desired, None, now, finalizers=None)
        reach, look = self._reach(entry, verdict, now)
        progress = self._progress(ref, verdict.published)
        desired = statuses.binding_status(entry, verdict, progress, reach, now)
        change = verdict.next_change(now)
        again = min((t for t in (look, change) if t is not None), default=None)
        finalizers = None
        if self._settings.finalizers and verdict.published is not None and FINALIZER not in entry.finalizers:
            finalizers = (*entry.finalizers, FINALIZER)
        return self._plan_status(entry, desired, again, now, finalizers=finalizers)

    def wrote(self, ref: Ref, before: Status, after: Status, now: float) -> None:
        """A status was rewritten; where a binding's reach went into it, the next such rewrite has to wait."""
        said = statuses.reached(before)
        if ref.kind in BINDINGS and said[0] is not None and said != statuses.reached(after):
            self._recounted[ref] = now

    def _plan_status(
        self, entry: Entry, desired: Desired, again: float | None, now: float, *, finalizers: tuple[str, ...] | None
    ) -> Plan:  # fmt: skip
        ref = entry.ref
        if not desired.provisional:
            self.waiting.discard(ref)
            self._pending_since.pop(ref, None)
        else:
            self.waiting.add(ref)
        if not statuses.difference(entry.status, desired.status):
            return Plan(finalizers=finalizers, again=again)
        if desired.provisional and (until := self._hold_until(entry, now)) > now:
            return Plan(finalizers=finalizers, again=until if again is None else min(until, again))
        return Plan(finalizers=finalizers, status=desired.status, again=again)

    def _hold_until(self, entry: Entry, now: float) -> float:
        since = self._pending_since.setdefault(entry.ref, now)
        held = since + self._settings.hold_back
        if entry.status.get("observedGeneration") == entry.generation and self._started is not None:
            return max(held, self._started + self._settings.takeover_hold)
        return held

    def _plan_removal(self, entry: Entry, now: float) -> Plan:
        if FINALIZER not in entry.finalizers or entry.ref.kind not in BINDINGS:
            self.waiting.discard(entry.ref)
            return Plan()
        uid, revision, since = self._gone.get(entry.ref, ("", None, now))
        # the API server's clock may be another, and no operator may have been there for a while
        most, least = self._settings.removal_deadline, self._settings.removal_least
        asked = durations.instant(entry.deleting or "") + most
        deadline = min(max(asked, since + least), since + most)
        confirmed = uid == entry.uid and revision is not None and self._publisher.confirmed_by_all(revision)
        if not confirmed and now < deadline:
            self.waiting.add(entry.ref)
            return Plan(again=deadline)
        return Plan(finalizers=tuple(f for f in entry.finalizers if f != FINALIZER))

    def _progress(self, ref: Ref, item: PublishedTool | PublishedBinding | None) -> Progress:
        publisher, revision = self._publisher, self._changed.get(ref)
        if item is None or revision is None:
            return Progress()
        links = len(publisher.links)
        published = publisher.confirmed_by_any(revision)
        propagated = links > 0 and publisher.confirmed_by_all(revision)
        if isinstance(item, PublishedBinding):
            return Progress(published=published, propagated=propagated, replicas=links)
        indexed, problem = self._index_sync.state(item.tool_id, item.digest)
        return Progress(published, propagated, links, indexed, problem)

    def _reach(
        self, entry: Entry, verdict: BindingVerdict, now: float
    ) -> tuple[BindingReach | None, float | None]:
        """What it reaches, if that may be written now, and when it may be otherwise."""
        if verdict.published is None or verdict.refusal is not None:
            return None, None
        said = statuses.reached(entry.status)
        fresh = entry.status.get("observedGeneration") != entry.generation or said[0] is None
        if not fresh:
            stale = self._stale.get(entry.ref)
            if stale is None:
                return None, None
            last = self._recounted.get(entry.ref)
            due = stale + self._settings.hold_back
            due = due if last is None else max(due, last + self._settings.rewrite_every)
            if now < due:
                return None, due
        reach = self._look(entry, verdict.published, now)
        if not fresh:
            self._stale.pop(entry.ref, None)
            if statuses.told(reach) != said:
                self._stale[entry.ref] = now - self._settings.hold_back  # until it is really written
        return reach, None

    def _look(self, entry: Entry, binding: PublishedBinding, now: float) -> BindingReach:
        snapshot = self._publisher.snapshot
        exists = self._assessor.account_exists
        tools = self._territories.tools_of(binding, snapshot)
        found = questions(binding, tools, exists=exists, applied=self._applied(entry, now))
        held = self._held(entry, binding, tools) if binding.denies else None
        return BindingReach(matched_tools(binding, snapshot), found, held)

    def _held(self, entry: Entry, binding: PublishedBinding, tools: list[PublishedTool]) -> DenialHistory:
        """What this generation has denied: what its status remembers, and what is seen now."""
        same = entry.status.get("observedGeneration") == entry.generation
        remembered = entry.status if same else {}
        now = fired(binding, tools)
        entries = [Denial("deny", text) for text in binding.deny]
        entries += [Denial("denyScopes", scope) for scope in binding.deny_scopes]
        known = frozenset(remembered.get("firedDenials") or ())
        found = [e for e in entries if e in now or "/".join(e) in known]
        denials, snapshot = authorizer.denials(binding), self._publisher.snapshot
        left = {*(remembered.get("escapedTools") or ()), *self._escapes.of(binding)}
        escaped = [
            i for i in sorted(left) if (t := snapshot.tools.get(i)) and not any(True for _ in denials(t))
        ]
        return DenialHistory(
            fired=tuple("/".join(e) for e in found),
            stopped=tuple("/".join(e) for e in found if e not in now),
            escaped=tuple(escaped[:MOST_ESCAPED]),
        )

    def _applied(self, entry: Entry, now: float) -> float:
        """When this generation was applied, as far as that is known: the API server tells of the first one alone."""
        if entry.status.get("observedGeneration") != entry.generation:
            return self._first_seen.get(entry.ref, ("", 0, now))[2]
        odd, why = statuses.questioned(entry.status)
        if odd and why.reason is ConditionReason.EXPIRED_AT_APPLY:
            return math.inf  # said of this generation already, and true for good
        return durations.instant(entry.created) if entry.created and entry.generation == 1 else -math.inf

    def _forget(self, ref: Ref) -> None:
        self.waiting.discard(ref)
        self._gone.pop(ref, None)
        self._first_seen.pop(ref, None)
        for table in (self._changed, self._pending_since, self._recounted, self._stale):
            table.pop(ref, None)
