"""The search index: what it lacks is written, what it should not hold is removed, what it says is believed.

Only what has been read back counts as indexed. Inventories at the start and every half minute find what was lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from toolcrib.errors import EpochFenced
from toolcrib.resources.conditions import ConditionReason
from toolcrib.telemetry import logs, tracing
from toolcrib.wire.publish import IndexAnswer, IndexRequest
from toolcrib_operator.errors import IndexUnavailable, ReplicaUnavailable
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.ports import Replica
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import IndexSettings
from toolcrib_operator.timers import Backoff, wait

log = logging.getLogger(__name__)

Changed = Callable[[Collection[str] | None], None]


class IndexSync:
    """Keeps the index equal to what is published. `held` is what it is known to hold: tool id → digest."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        settings: IndexSettings | None = None,
        on_change: Changed | None = None,
    ) -> None:
        """`on_change` is told the ids whose state is another now; None means possibly all."""
        self.held: dict[str, str] | None = None
        self.problem: str | None = None
        self._publisher = publisher
        self._settings = settings or IndexSettings()
        self._on_change = on_change
        self._source: str | None = None
        self._inventory_due = 0.0
        self._backoff = Backoff(*self._settings.backoff)
        self._failed: dict[str, tuple[str, str, float]] = {}
        self._retries: dict[str, Backoff] = {}
        self._written: dict[str, int] = {}
        """Tool id → fingerprint of what was written: scopes and state are searched by too, and are in no digest."""
        self._since: dict[str, float] = {}
        """Tools that are published and not in the index as they are, and since when that is known."""
        self._published: set[str] = set()
        """Tools that were published under this leadership, as long as the index holds them."""
        self._trouble = logs.Trouble(log)
        self._requests = 0
        self._wake = asyncio.Event()
        publisher.subscribe(self._wake.set)

    def on_change(self, told: Changed) -> None:
        """Replace who is told."""
        self._on_change = told

    def state(self, tool_id: str, digest: str) -> tuple[bool | None, Cause | None]:
        """Whether this definition is in the index (None: nobody knows), and what keeps it out."""
        unavailable = self._backoff.failures >= self._settings.unavailable_after
        problem = Cause(ConditionReason.INDEX_UNAVAILABLE, self.problem or "") if unavailable else None
        if self.held is None:
            return None, problem
        if self.held.get(tool_id) == digest:
            return True, None
        failed = self._failed.get(tool_id)
        if problem is None and failed is not None and failed[0] == digest:
            problem = Cause(ConditionReason.NOT_INDEXED, f"the index refuses the definition: {failed[1]}")
        return False, problem

    @property
    def waiting(self) -> int:
        """Tools that are published but not in the index."""
        held = self.held or {}
        return sum(held.get(t.tool_id) != t.digest for t in self._publisher.snapshot.tools.values())

    @property
    def lag(self) -> float:
        """Seconds for which the oldest of them has waited; 0 if none does."""
        self._look()
        now = time.monotonic()
        return now - min(self._since.values(), default=now)

    def _look(self) -> None:
        """Note what waits from now on, and what does no longer."""
        snapshot, held, now = self._publisher.snapshot, self.held or {}, time.monotonic()
        self._published |= snapshot.tools.keys()
        self._since = {
            tool_id: self._since.get(tool_id, now)
            for tool_id, tool in snapshot.tools.items()
            if held.get(tool_id) != tool.digest or self._is_other(tool_id, snapshot.fingerprint(tool_id))
        }

    def _is_other(self, tool_id: str, fingerprint: int) -> bool:
        """Whether something else of it was written than is published: other scopes, another state."""
        return self._written.get(tool_id, fingerprint) != fingerprint

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`."""
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._wake.set())
        try:
            while not stop.is_set():
                self._wake.clear()
                try:
                    pause = await self._step()
                    if self._backoff.failures:
                        self._trouble.over("the search index is back")
                        self._succeeded()
                except (IndexUnavailable, ReplicaUnavailable) as error:
                    pause = self._failure(error)
                    await wait(stop, pause)
                    continue
                except EpochFenced as error:
                    self._publisher.fenced(error)
                    return
                await wait(self._wake, pause)
        finally:
            stopped.cancel()

    async def _step(self) -> float | None:
        """One request's worth of work; how long there is nothing to do."""
        self._look()
        publisher = self._publisher
        replica = publisher.indexer()
        if replica is None or not publisher.may_act():
            return 1.0
        if replica.name != self._source:
            self._source, self._inventory_due = replica.name, 0.0
        now = time.monotonic()
        if publisher.confirmed(replica.name) != publisher.revision:
            return 1.0  # it could not know the newest definitions; progress wakes this up
        if now >= self._inventory_due:
            await self._take_inventory(replica)
        if await self._work(replica):
            return 0.0
        self._forget_settled()
        times = [self._inventory_due, *(due for _, _, due in self._failed.values())]
        return max(0.05, min(times) - time.monotonic())

    async def _take_inventory(self, replica: Replica) -> None:
        snapshot = self._publisher.snapshot
        self._number("inventory")
        inventory = await replica.inventory()
        self._inventory_due = time.monotonic() + self._settings.inventory
        before, self.held = self.held, dict(inventory.tools)
        # the replica compared it whole with what it has: where the digests agree, this is what was written
        self._written = {i: snapshot.fingerprint(i) for i in snapshot.tools}
        self._published = {i for i in self._published if i in self.held or i in snapshot.tools}
        if before is None:
            self._tell(None)
            return
        changed = {i for i in {*before, *self.held} if before.get(i) != self.held.get(i)}
        if changed:
            log.warning("the search index holds other than expected: %d tools differ", len(changed))
            self._tell(changed)

    async def _work(self, replica: Replica) -> bool:
        assert self.held is not None
        snapshot = self._publisher.snapshot
        tools = snapshot.tools
        now = time.monotonic()
        missing = []
        for tool_id, tool in tools.items():
            current = snapshot.fingerprint(tool_id)
            if (
                self.held.get(tool_id) == tool.digest
                and self._written.setdefault(tool_id, current) == current
            ):
                continue
            failed = self._failed.get(tool_id)
            if failed is not None and failed[0] == tool.digest and now < failed[2]:
                continue
            missing.append(tool_id)
            if len(missing) == self._settings.batch:
                break
        spared = f"{self._settings.spared_namespace}/"
        orphans = [
            i for i in self.held if i not in tools and (i in self._published or not i.startswith(spared))
        ][:1_000]
        if not missing and not orphans:
            return False
        request = IndexRequest(epoch=self._publisher.epoch, upsert=tuple(missing), remove=tuple(orphans))
        wanted = {i: tools[i].digest for i in missing}
        self._number("index")
        counts: dict[str, tracing.Value | None] = {
            "toolcrib.replica": replica.name,
            "toolcrib.index.upserts": len(missing),
            "toolcrib.index.removals": len(orphans),
        }
        with tracing.span("index batch", counts) as span:
            answer = await replica.index(request)
            span.set({"toolcrib.index.failed": len(answer.failed)})
        log.info(
            "index batch: %d in, %d out, %d failed", len(answer.indexed), len(orphans), len(answer.failed),
            extra=logs.about(
                replica=replica.name, indexed=len(answer.indexed), removed=len(orphans), failed=len(answer.failed)
            ),
        )  # fmt: skip
        for tool_id in missing:
            if tool_id in answer.indexed:
                self._written[tool_id] = snapshot.fingerprint(tool_id)
        for tool_id in orphans:
            self.held.pop(tool_id, None)
            self._written.pop(tool_id, None)
            self._published.discard(tool_id)
        self._believe(answer, wanted)
        return True

    def _believe(self, answer: IndexAnswer, wanted: dict[str, str]) -> None:
        assert self.held is not None
        now = time.monotonic()
        for tool_id, digest in answer.indexed.items():
            self.held[tool_id] = digest
        for tool_id, digest in wanted.items():
            if answer.indexed.get(tool_id) == digest:
                self._failed.pop(tool_id, None)
                self._retries.pop(tool_id, None)
                continue
            if tool_id not in answer.indexed:
                # the same definition may be there with the scopes or the state of before: that is not this one
                self.held.pop(tool_id, None)
            # not read back: refused, or superseded meanwhile; in both cases not at once again
            retry = self._retries.setdefault(tool_id, Backoff(*self._settings.backoff))
            why = answer.failed.get(tool_id, "it was written but not read back")
            self._failed[tool_id] = (digest, why, now + retry.next())
        self._tell(wanted)

    def _forget_settled(self) -> None:
        """No retry is due for a tool that has gone, or that an inventory has found after all."""
        held, tools = self.held or {}, self._publisher.snapshot.tools
        for tool_id in [i for i in self._failed if i not in tools or held.get(i) == tools[i].digest]:
            del self._failed[tool_id]
            self._retries.pop(tool_id, None)

    def _failure(self, error: Exception) -> float:
        pause = self._backoff.next()
        if isinstance(error, IndexUnavailable) and error.retry_after is not None:
            pause = max(pause, min(error.retry_after, self._settings.backoff[1]))
        self.problem = str(error)
        self._trouble.failed(
            "the search index does not answer: %s", error, extra=logs.about(replica=self._source)
        )
        if self._backoff.failures == self._settings.unavailable_after:
            self._tell(None)
        return pause

    def _succeeded(self) -> None:
        told = self._backoff.failures >= self._settings.unavailable_after
        self._backoff.reset()
        self.problem = None
        if told:
            self._tell(None)

    def _number(self, what: str) -> None:
        """The next request's id, for the lines here and at the replica."""
        self._requests += 1
        logs.request_id.set(f"op-{self._publisher.epoch}-{what}-{self._requests}")

    def _tell(self, ids: Collection[str] | None) -> None:
        if self._on_change is not None:
            self._on_change(ids)
