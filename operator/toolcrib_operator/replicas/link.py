"""One replica as the publisher sees it: what it has confirmed, and the task that keeps it up to date."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Protocol

from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.telemetry import logs, tracing
from toolcrib.wire.canaries import CanaryCounts
from toolcrib.wire.features import DENY_SCOPES, enforceable
from toolcrib.wire.publish import (
    AuditHead,
    Credentials,
    Heartbeat,
    Publish,
    PublishedBinding,
    ReplicaState,
    Revision,
)
from toolcrib_operator.errors import ReplicaUnavailable
from toolcrib_operator.ports import Replica
from toolcrib_operator.replicas.transfer import SnapshotTransfer
from toolcrib_operator.settings import PublisherSettings
from toolcrib_operator.timers import Backoff, wait

log = logging.getLogger(__name__)


class Source(Protocol):
    """What a link asks its publisher."""

    @property
    def settings(self) -> PublisherSettings: ...
    @property
    def revision(self) -> Revision | None: ...
    @property
    def hash(self) -> str: ...
    @property
    def credentials(self) -> tuple[int, Credentials] | None: ...
    def steps(self, since: Revision | None) -> list[Publish] | None: ...
    def full(self) -> SnapshotTransfer: ...
    def may_act(self) -> bool: ...
    def proven(self) -> bool: ...
    def age(self) -> float: ...
    def unreachable(self) -> tuple[str, ...]: ...
    def trace_of(self, revision: Revision) -> tracing.Headers | None: ...
    def progressed(self) -> None: ...
    def fenced(self, error: EpochFenced) -> None: ...


class Link:
    """Keeps one replica at the publisher's revision, with its credentials, and sends its heartbeats."""

    def __init__(self, replica: Replica, source: Source) -> None:
        self.replica = replica
        self.confirmed: Revision | None = None
        self.problem: str | None = None
        self.audit: AuditHead | None = None
        """The end of its decision log, as it last said."""
        self.canaries: tuple[CanaryCounts, ...] = ()
        """What it counted of the trials of tools, as it last said."""
        self.wake = asyncio.Event()
        self._source = source
        self._hash = ""
        """Of its content as it named it with its last confirmation: another version may make it in another form."""
        self._doubted = False
        """Steps led to another hash than ours: only a full snapshot proves its content."""
        self._recheck_at = 0.0
        self._told: int | None = None
        self._features: tuple[str, ...] | None = None
        """What it enforces; None: it was not asked yet."""
        self._warned = False
        self._backoff = Backoff(*source.settings.backoff)
        self._beat_due = 0.0
        self._behind_since: float | None = None
        self._complete_at = time.monotonic()
        """When the replica was last known to have everything."""
        self._trouble = logs.Trouble(log)
        self._beats = 0

    @property
    def behind(self) -> float:
        """Seconds for which the replica has been known to lack something; 0 while it has everything."""
        return 0.0 if self._behind_since is None else time.monotonic() - self._behind_since

    async def run(self) -> None:
        """Work until cancelled, or until the replica has seen another leader."""
        while True:
            self.wake.clear()
            pause: float | None
            try:
                await self._catch_up()
                await self._beat()
            except EpochFenced as error:
                self._source.fenced(error)
                return
            except RevisionMismatch as error:
                # a restarted replica, or one that another history reached: the full snapshot settles it
                log.info("sending the replica a full snapshot: %s", error, extra=self._about())
                refused_full = self.confirmed is None
                self._set(None)
                pause = self._backoff.next() if refused_full else 0.0
            except ReplicaUnavailable as error:
                self._trouble.failed("the replica cannot be reached: %s", error, extra=self._about())
                self._set(self.confirmed, str(error))
                pause = self._backoff.next()
            else:
                if self.problem is not None:
                    self._trouble.over("the replica is back", extra=self._about())
                    self._set(self.confirmed)
                self._backoff.reset()
                idle = self._beat_due - time.monotonic() if self.confirmed else None
                await wait(self.wake, max(idle, 0.05) if idle is not None else None)
                continue
            await asyncio.sleep(pause)

    async def _catch_up(self) -> None:
        source = self._source
        while source.may_act() and source.revision is not None:
            await self._tell_credentials()
            recheck = self._doubted and time.monotonic() >= self._recheck_at
            steps = None if recheck else source.steps(self.confirmed)
            if steps == []:
                self._behind_since = None
                return
            if self._behind_since is None:
                self._behind_since = time.monotonic()
            if steps is None:
                await self._deliver_full(source.full())
            for step in steps or ():
                if not source.may_act():
                    return
                await self._deliver(step)

    async def _deliver(self, step: Publish) -> None:
        """One step from the confirmed revision to the next."""
        self._working_on(step.to)
        with tracing.span(
            "deliver", self._attributes(step.to, full=False), parent=self._source.trace_of(step.to)
        ):
            step = await self._enforceable(step)
            # before it is sent: what is published meanwhile is not in the hash that the replica will name
            ours = self._source.hash if step.to == self._source.revision else None
            age = self._age(last=ours is not None)
            state = await self.replica.publish(step.model_copy(update={"age": age}))
        self._confirm(state, step.to, ours, full=False, last=ours is not None)

    async def _deliver_full(self, full: SnapshotTransfer) -> None:
        """Everything, in chunks where the replica takes them. It is asked: another version may answer by now."""
        source = self._source
        self._working_on(full.to)
        with tracing.span("deliver", self._attributes(full.to, full=True), parent=source.trace_of(full.to)):
            features = await self._ask_features(full.snapshot.bindings.values())
            state = await full.send(
                self.replica,
                features,
                age=lambda: self._age(last=full.to == source.revision),
                may_act=source.may_act,
            )
        if state is not None:
            self._told = None  # it may have been restarted: it has no credentials then
            self._confirm(state, full.to, full.snapshot.hash, full=True, last=full.to == source.revision)

    def _age(self, *, last: bool) -> float:
        """For `Publish.age`. What is known is put into effect, but it is no sign that nothing was missed.

        Where more is to come, a revocation may be among it: a replica that was cut off is no surer of its policy yet.
        """
        age = self._source.age()
        return age if last else max(age, time.monotonic() - self._complete_at)

    def _confirm(
        self, state: ReplicaState, to: Revision, ours: str | None, *, full: bool, last: bool
    ) -> None:
        """Note what the replica answered. `ours`: the hash that it must name, where it is known."""
        self._heard(state)
        if state.revision != to:
            raise ReplicaUnavailable(f"confirmed {state.revision}, expected {to}")
        if last:
            self._complete_at = time.monotonic()
        log.info("revision %s confirmed", to, extra=self._about(revision=str(to), full=full))
        self._compare(state.hash, ours, full=full)
        self._set(to)
        self._beat_due = time.monotonic() + self._source.settings.heartbeat

    @staticmethod
    def _working_on(to: Revision) -> None:
        # this task's lines carry it from here on, the replica's lines about the request too
        logs.request_id.set(f"op-{to.epoch}-{to.seq}")

    def _compare(self, named: str, ours: str | None, *, full: bool) -> None:
        """Take the hash that the replica named. It is doubted if it is not ours, but not after a full snapshot.

        A replica of another version may make hashes in another form, or was sent what it can enforce. Its content is
        known by the full snapshot that it confirmed; after further steps it gets one again, at most every `recheck`.
        """
        differs = self._doubted if ours is None else named != ours
        if full and (differs or self._doubted):
            self._recheck_at = time.monotonic() + self._source.settings.recheck
        if full and differs:
            log.warning(
                "the replica's hash of a full snapshot differs from the operator's, as between versions: using the"
                " replica's", extra=self._about(),
            )  # fmt: skip
        self._hash, self._doubted = named, differs and not full

    async def _enforceable(self, step: Publish) -> Publish:
        """The step as this replica can enforce it."""
        if enforceable(step, ()) is step:
            return step
        features = await self._ask_features(step.bindings) if self._features is None else self._features
        return enforceable(step, features)

    async def _ask_features(self, bindings: Iterable[PublishedBinding]) -> tuple[str, ...]:
        """What the replica knows. Warns where that is not enough for `bindings`, once."""
        self._features = (await self.replica.report()).features
        if DENY_SCOPES in self._features:
            self._warned = False
        elif not self._warned and any(b.deny_scopes for b in bindings):
            self._warned = True
            log.warning(
                "the replica does not know denyScopes: until it is replaced, it denies the subjects of bindings with"
                " denyScopes every tool within their reach", extra=self._about(),
            )  # fmt: skip
        return self._features

    async def _tell_credentials(self) -> None:
        current = self._source.credentials
        if current is None or current[0] == self._told:
            return
        logs.request_id.set(f"op-{current[1].epoch}-credentials-{current[0]}")
        await self.replica.credentials(current[1])
        self._told = current[0]

    async def _beat(self) -> None:
        source = self._source
        if self.confirmed is None or time.monotonic() < self._beat_due:
            return
        self._beat_due = time.monotonic() + source.settings.heartbeat
        if not (source.may_act() and source.proven()) or self.confirmed != source.revision:
            return
        self._beats += 1
        logs.request_id.set(f"op-{self.confirmed.epoch}-{self.confirmed.seq}-beat-{self._beats}")
        beat = Heartbeat(revision=self.confirmed, hash=self._hash, unreachable=source.unreachable())
        self._heard(await self.replica.heartbeat(beat))
        self._complete_at = time.monotonic()

    def _heard(self, state: ReplicaState) -> None:
        self.audit, self.canaries = state.audit, state.canaries

    def _about(self, **fields: object) -> dict[str, dict[str, object]]:
        return logs.about(replica=self.replica.name, **fields)

    def _attributes(self, to: Revision, *, full: bool) -> dict[str, tracing.Value | None]:
        return {
            "toolcrib.replica": self.replica.name,
            "toolcrib.revision": str(to),
            "toolcrib.full": full,
            "toolcrib.request_id": logs.request_id.get(),
        }

    def _set(self, confirmed: Revision | None, problem: str | None = None) -> None:
        self.confirmed, self.problem = confirmed, problem
        self._source.progressed()
