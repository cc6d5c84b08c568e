"""Publishing: one history of revisions, and every replica brought along it.

`publish` decides the next revision and returns at once; one task a replica delivers (DESIGN §6, Publishing).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from toolcrib.errors import EpochFenced
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs, tracing
from toolcrib.wire import condensed
from toolcrib.wire.publish import (
    AuditHead,
    Credential,
    Credentials,
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
    Removed,
    Revision,
)
from toolcrib_operator.errors import ReplicasUnknown
from toolcrib_operator.ports import Replica, Replicas
from toolcrib_operator.replicas.link import Link
from toolcrib_operator.replicas.transfer import SnapshotTransfer, Tools, held_tools
from toolcrib_operator.settings import PublisherSettings
from toolcrib_operator.timers import Backoff, wait

log = logging.getLogger(__name__)

PART_BYTES = 1 << 20
"""Of one step, estimated: a replica reads it in about 10 ms, and in 60 ms at worst."""
TOOL_BYTES = 1024
"""The same of a tool, without its schemas and its description."""


class Publisher:
    """What has been published under this leadership, and which replica has confirmed what."""

    def __init__(
        self,
        epoch: int,
        replicas: Replicas,
        *,
        settings: PublisherSettings | None = None,
        may_act: Callable[[], bool] = lambda: True,
        proven: Callable[[], bool] = lambda: True,
        age: Callable[[], float] = lambda: 0.0,
        on_fenced: Callable[[EpochFenced], None] | None = None,
        tools: Tools = held_tools,
    ) -> None:
        """
        Args:
            epoch: grows at every takeover; replicas refuse a lower one than they have seen.
            replicas: where to publish.
            settings: heartbeats, backoff, history.
            may_act: asked before every request: False once the Lease may be another's.
            proven: asked before every heartbeat: whether the view of the cluster is known to be complete.
            age: sent with every publish: the seconds since it was, 0 while it is.
            on_fenced: told when a replica has seen a later leader.
            tools: where those of a full snapshot come from; by default the publisher's own snapshot holds them.
        """
        self.epoch = epoch
        self.settings = settings or PublisherSettings()
        self.may_act = may_act
        self.proven = proven
        self.age = age
        self.unreachable: Callable[[], tuple[str, ...]] = tuple
        """Places of backends that heartbeats name as such that cannot be reached."""
        self.snapshot = Snapshot()
        self._replicas = replicas
        self._on_fenced = on_fenced
        self._tools = tools
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._known = False
        self._history: deque[Publish] = deque(maxlen=self.settings.history)
        self._credentials: tuple[int, Credentials] | None = None
        self._given: tuple[Credential, ...] | None = None
        self._indexer: str | None = None
        self._trace: tuple[Revision, tracing.Headers] | None = None
        self._progress: list[Callable[[], None]] = []
        self._moved = asyncio.Event()

    @property
    def revision(self) -> Revision | None:
        """The latest revision; None before the first publish."""
        return self.snapshot.revision

    @property
    def hash(self) -> str:
        """The hash that every replica must come to."""
        return self.snapshot.hash

    @property
    def credentials(self) -> tuple[int, Credentials] | None:
        """The latest credentials and their version; None before there were any."""
        return self._credentials

    def publish(
        self,
        *,
        tools: Iterable[PublishedTool] = (),
        bindings: Iterable[PublishedBinding] = (),
        accounts: Iterable[PublishedAccount] | None = None,
        servers: Iterable[PublishedServer] = (),
        removed: Removed | None = None,
    ) -> Revision:
        """Make the next revision and start delivering it. The first one of a leadership is a full snapshot.

        Args:
            tools, bindings, servers: those that are new or have changed.
            accounts: the same of bound ServiceAccounts; None in the first one: they are not known, none is checked.
            removed: what goes.
        """
        step = self._next(tools, bindings, accounts, servers, removed)
        return self._publish(step, self.snapshot.apply(step))

    async def publish_many(
        self,
        *,
        tools: Iterable[PublishedTool] = (),
        bindings: Iterable[PublishedBinding] = (),
        accounts: Iterable[PublishedAccount] | None = None,
        servers: Iterable[PublishedServer] = (),
        removed: Removed | None = None,
    ) -> Revision:
        """`publish`, its fingerprints and tables made in a thread; one call at a time. The last of its revisions.

        After a takeover they are those of thousands of tools, and renewals of the Lease go on meanwhile. Later, many
        tools at once become several revisions, so that no replica reads a long body. Bindings, servers and removals are
        all in the first.
        """
        parts = [list(tools)] if self.snapshot.revision is None else list(_parts(tools))
        revision = await self._publish_part(self._next(parts[0], bindings, accounts, servers, removed))
        for part in parts[1:]:
            revision = await self._publish_part(self._next(part, (), (), (), None))
        return revision

    async def _publish_part(self, step: Publish) -> Revision:
        return self._publish(step, await asyncio.to_thread(self.snapshot.apply, step))

    def _next(
        self,
        tools: Iterable[PublishedTool],
        bindings: Iterable[PublishedBinding],
        accounts: Iterable[PublishedAccount] | None,
        servers: Iterable[PublishedServer],
        removed: Removed | None,
    ) -> Publish:
        base = self.snapshot.revision
        bound = None if accounts is None else tuple(accounts)
        return Publish(
            base=base,
            to=Revision(epoch=self.epoch, seq=1 if base is None else base.seq + 1),
            bindings=tuple(bindings),
            tools=tuple(tools),
            servers=tuple(servers),
            accounts=bound if bound or base is None else None,
            removed=removed or Removed(),
        )

    def _publish(self, step: Publish, after: Snapshot) -> Revision:
        counts: dict[str, tracing.Value | None] = {
            "toolcrib.revision": str(step.to),
            "toolcrib.replicas": len(self._links),
            "toolcrib.tools": len(step.tools),
            "toolcrib.servers": len(step.servers),
            "toolcrib.bindings": len(step.bindings),
            "toolcrib.accounts": len(step.accounts or ()),
            "toolcrib.removed": sum(
                map(
                    len,
                    (
                        step.removed.tools,
                        step.removed.servers,
                        step.removed.bindings,
                        step.removed.accounts,
                    ),
                )
            ),
        }
        with tracing.span("publish", counts):
            self._trace = (step.to, tracing.headers())
            self.snapshot = after
        if step.base is not None:
            self._history.append(step)
        self._wake_links()
        return step.to

    def trace_of(self, revision: Revision) -> tracing.Headers | None:
        """What carries the span of a publish to the tasks that deliver it; the latest one's alone is kept."""
        return self._trace[1] if self._trace is not None and self._trace[0] == revision else None

    def set_credentials(self, credentials: tuple[Credential, ...]) -> None:
        """Replace the credentials; equal ones are not sent again, and the same object is not even compared."""
        if credentials is self._given:
            return
        self._given = credentials
        new = Credentials(epoch=self.epoch, credentials=tuple(credentials))
        if self._credentials is not None and self._credentials[1] == new:
            return
        self._credentials = (1 if self._credentials is None else self._credentials[0] + 1, new)
        self._wake_links()

    def steps(self, since: Revision | None) -> list[Publish] | None:
        """The steps that take a replica from `since` to the latest revision; None: only a full snapshot does."""
        current = self.snapshot.revision
        if current is None or since == current:
            return []
        tail: list[Publish] = []
        for step in reversed(self._history):
            tail.append(step)
            if step.base == since:
                return tail[::-1]
        return None

    def full(self) -> SnapshotTransfer:
        """Everything of the latest revision."""
        assert self.snapshot.revision is not None
        return SnapshotTransfer(self.snapshot, self.snapshot.revision, self._tools)

    @property
    def links(self) -> list[Link]:
        """Every known replica, by name."""
        return [self._links[name][0] for name in sorted(self._links)]

    def confirmed_by_all(self, revision: Revision) -> bool:
        """Whether the replicas are known and each has confirmed `revision` or a later one."""
        return self._known and all(_has(link, revision) for link in self.links)

    def confirmed_by_any(self, revision: Revision) -> bool:
        """Whether at least one replica has confirmed `revision` or a later one."""
        return any(_has(link, revision) for link in self.links)

    async def wait_confirmed(self, revision: Revision) -> None:
        """Return when every replica has confirmed `revision`; bound it with `asyncio.timeout`."""
        while not (self._links and self.confirmed_by_all(revision)):
            moved = self._moved
            await moved.wait()

    def indexer(self) -> Replica | None:
        """The replica that embeds and writes the index: kept as long as it answers."""
        links = [link for link in self.links if link.confirmed is not None and link.problem is None]
        chosen = next((link for link in links if link.replica.name == self._indexer), None)
        chosen = chosen or (links[0] if links else None)
        self._indexer = chosen.replica.name if chosen else None
        return chosen.replica if chosen else None

    def still_leads(self) -> bool:
        """`may_act`, as it is now: being fenced replaces it."""
        return self.may_act()

    def audit_heads(self) -> dict[str, AuditHead]:
        """The ends of the replicas' decision logs as they last said, by chain."""
        return {link.audit.chain: link.audit for link in self.links if link.audit is not None}

    def confirmed(self, name: str) -> Revision | None:
        """What a replica has confirmed."""
        found = self._links.get(name)
        return found[0].confirmed if found else None

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a replica confirmed something, failed, came or went."""
        self._progress.append(wake)

    def progressed(self) -> None:
        """Tell anyone who waits."""
        self._moved.set()
        self._moved = asyncio.Event()
        for wake in self._progress:
            wake()

    def fenced(self, error: EpochFenced) -> None:
        """A replica has seen a later leader: nothing more is sent to anybody."""
        log.error("this operator no longer leads: %s", error)
        self.may_act = lambda: False
        if self._on_fenced is not None:
            self._on_fenced(error)

    async def run(self, stop: asyncio.Event) -> None:
        """Find replicas and keep a link to each until `stop`."""
        backoff = Backoff(*self.settings.backoff)
        trouble = logs.Trouble(log)
        try:
            while not stop.is_set():
                try:
                    self._adopt(await self._replicas.current())
                    pause = self.settings.discover
                    backoff.reset()
                    trouble.over("the registry's replicas are found again")
                except ReplicasUnknown as error:
                    trouble.failed("the registry's replicas cannot be found: %s", error)
                    pause = backoff.next()
                await wait(stop, pause)
        finally:
            tasks = [task for _, task in self._links.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _adopt(self, replicas: Iterable[Replica]) -> None:
        named = {r.name: r for r in replicas}
        changed = not self._known
        self._known = True
        for name in set(self._links) - set(named):
            self._links.pop(name)[1].cancel()
            changed = True
        for name in set(named) - set(self._links):
            link = Link(named[name], self)
            self._links[name] = (link, asyncio.create_task(link.run(), name=f"replica {name}"))
            changed = True
        for _, task in self._links.values():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if changed:
            self.progressed()

    def _wake_links(self) -> None:
        for link, _ in self._links.values():
            link.wake.set()


def _parts(tools: Iterable[PublishedTool]) -> Iterator[list[PublishedTool]]:
    """At least one list, each of at most about `PART_BYTES`."""
    part: list[PublishedTool] = []
    size = 0
    for tool in tools:
        weight = (
            TOOL_BYTES
            + condensed.size(tool.packed_input)
            + condensed.size(tool.packed_output or b"")
            + len(tool.description)
        )
        if part and size + weight > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(tool)
        size += weight
    yield part


def _has(link: Link, revision: Revision) -> bool:
    return link.confirmed is not None and not link.confirmed < revision
