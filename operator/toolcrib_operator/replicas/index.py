"""The search index: what it lacks is written, what it should not hold is removed, what it says is believed.

Only what has been read back counts as indexed. Inventories at the start and every half minute find what was lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from toolcrib import names
from toolcrib.errors import EpochFenced
from toolcrib.resources.conditions import ConditionReason
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs, tracing
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.publish import Revision
from toolcrib_operator.errors import IndexUnavailable, ReplicaUnavailable
from toolcrib_operator.kinds.verdicts import Cause
from toolcrib_operator.ports import Replica
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import IndexSettings
from toolcrib_operator.timers import Backoff, paced, pause, wait

log = logging.getLogger(__name__)

Changed = Callable[[Collection[str] | None], None]


@dataclass(slots=True)
class _Indexed:
    """What is known of one tool id, whether an object has it or not."""

    digest: str | None = None
    """Of the definition that the index holds, as it was read back."""
    written: int | None = None
    """Fingerprint of what was written: scopes and state are searched by too, and are in no digest."""
    since: float | None = None
    """It is published and not in the index as it is: since when that is known."""
    published: bool = False
    """It was published under this leadership, and the index may hold it."""
    refused: str | None = None
    """Digest of a definition that was written and not read back; with the reason, and when to try again."""
    why: str = ""
    due: float = 0.0
    failures: int = 0

    def settle(self) -> None:
        """Nothing is refused any more."""
        self.refused, self.failures = None, 0


class IndexSync:
    """Keeps the index equal to what is published."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        settings: IndexSettings | None = None,
        on_change: Changed | None = None,
    ) -> None:
        """`on_change` is told the ids whose state is another now; None means possibly all."""
        self.problem: str | None = None
        self._publisher = publisher
        self._settings = settings or IndexSettings()
        self._on_change = on_change
        self._source: str | None = None
        self._inventory_due = 0.0
        self._backoff = Backoff(*self._settings.backoff)
        self._tools: defaultdict[str, _Indexed] = defaultdict(_Indexed)
        self._open: dict[str, None] = {}
        """Ids that may differ from the index, in their order: a change is looked at alone, however large the catalog."""
        self._looked: Revision | None = None
        """The revision up to which changes are in `_open`."""
        self._known = False
        """Whether there was an inventory."""
        self._trouble = logs.Trouble(log)
        self._requests = 0
        self._wake = asyncio.Event()
        publisher.subscribe(self._wake.set)

    def on_change(self, told: Changed) -> None:
        """Replace who is told."""
        self._on_change = told

    @property
    def held(self) -> dict[str, str] | None:
        """What the index is known to hold, tool id → digest; None before the first inventory."""
        found = {i: t.digest for i, t in self._tools.items() if t.digest is not None}
        return found if self._known else None

    def state(self, tool_id: str, digest: str) -> tuple[bool | None, Cause | None]:
        """Whether this definition is in the index (None: nobody knows), and what keeps it out."""
        unavailable = self._backoff.failures >= self._settings.unavailable_after
        problem = Cause(ConditionReason.INDEX_UNAVAILABLE, self.problem or "") if unavailable else None
        if not self._known:
            return None, problem
        tool = self._tools.get(tool_id) or _Indexed()
        if tool.digest == digest:
            return True, None
        if problem is None and tool.refused == digest:
            problem = Cause(
                ConditionReason.NOT_INDEXED, f"the search index rejected the definition: {tool.why}"
            )
        return False, problem

    @property
    def waiting(self) -> int:
        """Tools that are published but not in the index."""
        published, none = self._publisher.snapshot.indexed.values(), _Indexed()
        return sum(self._tools.get(t.index_id, none).digest != t.digest for t in published)

    @property
    def lag(self) -> float:
        """Seconds for which the oldest of them has waited; 0 if none does."""
        self._look()
        now = time.monotonic()
        return now - min((t.since for t in self._tools.values() if t.since is not None), default=now)

    def _look(self) -> None:
        """Note what waits from now on, and what does no longer."""
        snapshot, now = self._publisher.snapshot, time.monotonic()
        steps = self._publisher.steps(self._looked)
        if steps is None:
            self._open |= dict.fromkeys((*snapshot.indexed, *self._tools))
        for step in steps or ():
            ids = (*(tool.tool_id for tool in step.tools), *step.removed.tools)
            self._open |= dict.fromkeys(ids)
            trials = map(names.candidate_id, ids)
            self._open |= dict.fromkeys(i for i in trials if i in self._tools or i in snapshot.trials)
        self._looked = snapshot.revision
        for tool_id in self._open:
            if (tool := snapshot.indexed.get(tool_id)) is None:
                if tool_id in self._tools:
                    self._tools[tool_id].since = None
                continue
            one = self._tools[tool_id]
            one.published = True
            # other scopes or another state may have been written than are published
            other = one.written is not None and one.written != snapshot.fingerprint(tool_id)
            if one.digest == tool.digest and not other:
                one.since = None
            elif one.since is None:
                one.since = now

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
        opened = (self._tools[tool_id] for tool_id in self._open)
        times = [self._inventory_due, *(one.due for one in opened if one.refused is not None)]
        return max(0.05, min(times) - time.monotonic())

    async def _take_inventory(self, replica: Replica) -> None:
        snapshot = self._publisher.snapshot
        self._number("inventory")
        inventory = await replica.inventory()
        self._inventory_due = time.monotonic() + self._settings.inventory
        changed: set[str] = set()
        # a large catalog takes a moment: what is published meanwhile does not wait for it
        async for part in paced([*{*self._tools, *inventory.tools}], most=1_000, seconds=0.002):
            changed.update(tool_id for tool_id in part if self._compare(tool_id, inventory, snapshot))
        if not self._known:
            self._known = True
            self._tell(None)
        elif changed:
            log.warning("search index out of sync: %d tools differ", len(changed))
            self._tell(changed)

    def _compare(self, tool_id: str, inventory: IndexInventory, snapshot: Snapshot) -> bool:
        """Take what the index says of a tool; whether it holds another digest than was known."""
        one, digest = self._tools[tool_id], inventory.tools.get(tool_id)
        tool = snapshot.indexed.get(tool_id)
        if digest != (None if tool is None else tool.digest):
            self._open[tool_id] = None
        differs, one.digest = one.digest != digest, digest
        # the replica compared it whole with what it has: where the digests agree, this is what was written
        one.written = None if tool is None else snapshot.fingerprint(tool_id)
        if digest is None and tool is None:
            del self._tools[tool_id]
        return differs

    async def _work(self, replica: Replica) -> bool:
        snapshot = self._publisher.snapshot
        tools = snapshot.indexed
        now = time.monotonic()
        missing: list[str] = []
        orphans: list[str] = []
        settled: list[str] = []
        spared = f"{self._settings.spared_namespace}/"
        for tool_id in self._open:
            if len(missing) >= self._settings.batch:
                break  # the rest is looked at for the next request
            one = self._tools[tool_id]
            if (tool := tools.get(tool_id)) is None:
                if one.digest is not None and (one.published or not tool_id.startswith(spared)):
                    orphans.append(tool_id)
                else:
                    settled.append(tool_id)
                continue
            current = snapshot.fingerprint(tool_id)
            if one.digest == tool.digest:
                if one.written is None:
                    one.written = current
                if one.written == current:
                    settled.append(tool_id)
                    continue
            if one.refused != tool.digest or now >= one.due:
                missing.append(tool_id)
        orphans = orphans[:1_000]
        self._close(settled)
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
                self._tools[tool_id].written = snapshot.fingerprint(tool_id)
        for tool_id in orphans:
            del self._tools[tool_id]
        self._believe(answer, wanted)
        return True

    def _close(self, ids: Iterable[str]) -> None:
        """Nothing is to be done for these until they change; no retry is due, and none waits."""
        for tool_id in ids:
            del self._open[tool_id]
            one = self._tools[tool_id]
            one.since = None
            one.settle()

    def _believe(self, answer: IndexAnswer, wanted: dict[str, str]) -> None:
        now = time.monotonic()
        for tool_id, digest in answer.indexed.items():
            self._tools[tool_id].digest = digest
        for tool_id, digest in wanted.items():
            one = self._tools[tool_id]
            if answer.indexed.get(tool_id) == digest:
                one.settle()
                continue
            if tool_id not in answer.indexed:
                # the same definition may be there with the previous scopes or state: that is not this one
                one.digest = None
            # not read back: refused, or superseded meanwhile; in both cases not at once again
            one.refused, one.why = (
                digest,
                answer.failed.get(tool_id, "the index did not return what was written"),
            )
            one.due = now + pause(*self._settings.backoff, one.failures)
            one.failures += 1
        self._tell(wanted)

    def _forget_settled(self) -> None:
        """No retry is due for a tool that has gone, or that an inventory has found after all."""
        tools = self._publisher.snapshot.indexed
        for tool_id in self._open:
            one = self._tools[tool_id]
            if one.refused is not None and (tool_id not in tools or one.digest == tools[tool_id].digest):
                one.settle()

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
