"""What a replica knows: the one immutable snapshot, when a leader was last heard, and the views made of it.

Writers swap the snapshot whole; readers take no lock and see exactly one revision (DESIGN §6, The snapshot).
Used from one event loop only.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from toolcrib import process
from toolcrib.authorizer import Policy, granted_scopes, is_valid
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.identity import Identity
from toolcrib.snapshot import Draft, Snapshot
from toolcrib.view import EMPTY, View, ViewMaker, view_of, view_work
from toolcrib.wire.canaries import CanaryCounts
from toolcrib.wire.features import FEATURES
from toolcrib.wire.probes import place_key
from toolcrib.wire.publish import (
    AuditHead,
    Heartbeat,
    Publish,
    PublishedTool,
    ReplicaState,
    Revision,
)
from toolcrib_registry.clock import Clock, whole_milliseconds
from toolcrib_registry.policy.leader import Leader
from toolcrib_registry.policy.single_flight import SingleFlight
from toolcrib_registry.policy.view_cache import BYTES, Answer, CallerView, Content, ViewCache

__all__ = ["CallerView", "PolicyState", "definition_bytes", "is_long"]

AT_ONCE, BYTES_AT_ONCE = 200, 65_536
"""Tools of a list, and bytes of their texts and schemas, that are encoded on the event loop: some ten milliseconds."""
WORK_AT_ONCE = 4_000
"""`view_work` of a view that is made there."""
TRIES = 3
"""Times that a view is made without holding back the next snapshot."""
WORK_IN_A_HURRY = 100_000
"""`view_work`, about 0.15 s, after which a view that holds the next snapshot back does without the rest: revocations come with it."""
MAKERS = 8
"""Large views of which is remembered what was found, so that the next one of the same caller takes less: about 150 bytes a tool."""


@dataclass(slots=True)
class PolicyState:
    """The holder of the snapshot.

    Args:
        clock: decides what is valid and how old the policy is.
        replica: this replica's name.
        policy_max_age: seconds without a leader after which `stale` is true.
        anonymous_list: discovery.anonymous is `list`.
        view_bytes: what remembered views may take together.
    """

    clock: Clock
    replica: str = "registry"
    policy_max_age: float = 900.0
    anonymous_list: bool = False
    view_bytes: int = BYTES
    audit_head: Callable[[], AuditHead | None] = field(default=lambda: None, repr=False)
    """The end of the decision log, where there is one."""
    canaries: Callable[[Snapshot], tuple[CanaryCounts, ...]] = field(default=lambda _: (), repr=False)
    """What was counted of the trials of tools."""
    on_swap: Callable[[Snapshot], None] = field(default=lambda _: None, repr=False)
    """Told of each snapshot, before anything is decided by it."""
    snapshot: Snapshot = field(init=False)
    epoch: int = field(default=0, init=False)
    heard_at: float | None = field(default=None, init=False)
    """By `clock.elapsed`: setting the wall clock back makes no policy young again."""
    unreachable: frozenset[str] = field(default=frozenset(), init=False)
    """Places of backends that cannot be reached, as the leader last said."""
    draining: bool = field(default=False, init=False)
    """Asked to stop: still answering, but clients should go elsewhere."""
    closing: bool = field(default=False, init=False)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held by the one watch stream that looks at its view, if that takes no thread."""
    large_turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held by the one watch stream whose view, or what changed in it, takes one: it holds up none of the others."""
    leader: Leader = field(init=False)
    _view_cache: ViewCache = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _views: SingleFlight = field(default_factory=SingleFlight, init=False)
    _makers: OrderedDict[Any, ViewMaker] = field(default_factory=OrderedDict, init=False)
    _answers: SingleFlight = field(default_factory=SingleFlight, init=False)
    """Of its own: every call needs a view, and none waits for a list."""

    def __post_init__(self) -> None:
        self.snapshot = Snapshot(policy=Policy(anonymous_list=self.anonymous_list))
        self.leader = Leader(self.clock.elapsed())
        self._view_cache = ViewCache(self.view_bytes)

    @property
    def ready(self) -> bool:
        """Whether a full snapshot has come from a leader."""
        return self.snapshot.revision is not None

    def report(self) -> ReplicaState:
        """What the operator is told."""
        return ReplicaState(
            replica=self.replica,
            revision=self.snapshot.revision,
            hash=self.snapshot.hash,
            ready=self.ready,
            audit=self.audit_head(),
            features=FEATURES,
            canaries=self.canaries(self.snapshot),
        )

    def unaddressed(self, known: Container[str]) -> bool:
        """Whether tools wait for addresses of Services that a leader of this version may be about to publish.

        Args:
            known: Services, as `namespace/name`, whose place needs no publishing.
        """
        if not self.leader.awaited(self.clock.elapsed()):
            return False
        backends = (tool.backend for tool in self.snapshot.tools.values())
        return any(b and b.service and b.cluster_ip is None and b.service not in known for b in backends)

    def cannot_reach(self, tool: PublishedTool) -> bool:
        """Whether the leader says that the tool's backend cannot be reached."""
        return bool(self.unreachable) and place_key(tool.backend) in self.unreachable

    def policy_age(self) -> float | None:
        """Seconds since a leader was heard; None: never."""
        return None if self.heard_at is None else max(0.0, self.clock.elapsed() - self.heard_at)

    @property
    def stale(self) -> bool:
        """Whether no leader has been heard for so long that nothing may be called."""
        age = self.policy_age()
        return age is None or age > self.policy_max_age

    def fence(self, epoch: int) -> None:
        """Accept `epoch` as the leader's.

        Raises:
            EpochFenced: a later one was seen.
        """
        if epoch < self.epoch:
            raise EpochFenced(f"epoch {epoch} has ended: {self.epoch} leads")
        self.epoch = epoch

    async def publish(self, publish: Publish) -> ReplicaState:
        """Apply `publish`; anyone who asks afterwards gets the new revision.

        Raises:
            EpochFenced, RevisionMismatch: nothing has changed.
        """
        base = publish.base
        count = len(publish.tools) + len(publish.bindings)
        return await self._replace(
            lambda before: before.apply(publish),
            publish.to,
            publish.age,
            count,
            whole=base is None,
            chunks=False,
        )

    async def swap(self, draft: Draft, to: Revision, age: float, count: int) -> ReplicaState:
        """Put the full snapshot of `draft`, of `count` objects, in the place of the present one, as of `to`.

        Raises:
            EpochFenced, RevisionMismatch: nothing has changed.
        """
        return await self._replace(
            lambda before: before.replaced(draft, to), to, age, count, whole=True, chunks=True
        )

    async def _replace(
        self,
        make: Callable[[Snapshot], Snapshot],
        to: Revision,
        age: float,
        count: int,
        *,
        whole: bool,
        chunks: bool,
    ) -> ReplicaState:
        async with self._writing:
            self.fence(to.epoch)
            before = self.snapshot
            # thousands of fingerprints: off the event loop, discovery goes on meanwhile
            after = await asyncio.to_thread(make, before)
            self.fence(to.epoch)
            heard = self.clock.elapsed() - age
            self.heard_at = heard if self.heard_at is None else max(self.heard_at, heard)
            if after is not before:
                self.snapshot = after
                self.on_swap(after)
                if whole:
                    self.leader.sent_whole(self.clock.elapsed(), chunks=chunks)
                self._view_cache.clear()
                process.heap.grown(count)
                self.wake()
            return self.report()

    def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        """A sign of life of the leader.

        Raises:
            EpochFenced: its sender no longer leads.
            RevisionMismatch: the leader holds another revision or content; it does not count as heard.
        """
        self.fence(heartbeat.revision.epoch)
        held, now = self.snapshot, self.clock.elapsed()
        if heartbeat.revision != held.revision or not self.leader.agrees(
            heartbeat.revision.epoch, heartbeat.hash, held.hash, now
        ):
            raise RevisionMismatch(
                f"this replica holds {held.revision or 'nothing'}, not {heartbeat.revision}"
            )
        self.heard_at = now
        self.unreachable = frozenset(heartbeat.unreachable)
        return self.report()

    async def caller_view(self, identity: Identity | None, *, bad_token: bool = False) -> CallerView:
        """What `identity` may see now; nothing for a token that is present but bad. A large view is made in a thread."""
        while True:
            known = self.view_at_once(identity, bad_token=bad_token)
            if known is not None:
                return known
            await self._views.once(_key(identity), partial(self._make, identity))

    def view_at_once(self, identity: Identity | None, *, bad_token: bool = False) -> CallerView | None:
        """The same where it takes no thread; None: it does."""
        now = whole_milliseconds(self.clock.now())
        if bad_token or (identity is not None and not is_valid(identity, now)):
            return CallerView(Content(EMPTY), self.snapshot, None, (), now)
        known = self._view_cache.get(_key(identity))
        if known is not None and known.since <= now < known.until and known.snapshot is self.snapshot:
            return known
        if self._views.has(_key(identity)) or view_work(identity, self.snapshot, WORK_AT_ONCE) > WORK_AT_ONCE:
            return None
        return self._remember(identity, now, view_of(identity, self.snapshot, now))

    async def _make(self, identity: Identity | None) -> None:
        """Remember the view. Where the snapshot changes meanwhile only so much is judged again at one time; what is left
        out is judged the next time, and is not seen until then."""
        maker = self._maker(identity)
        work = WORK_IN_A_HURRY if maker.behind else math.inf
        for _ in range(TRIES):
            snapshot, now = self.snapshot, whole_milliseconds(self.clock.now())
            view = await asyncio.to_thread(maker.of, snapshot, now, work)
            if snapshot is self.snapshot:
                self._remember(identity, now, view, whole=not maker.behind)
                return
            work = WORK_IN_A_HURRY
        # the snapshot stays until its view is there: else a busy cluster would let a large view never be done
        async with self._writing:
            now = whole_milliseconds(self.clock.now())
            view = await asyncio.to_thread(maker.of, self.snapshot, now, work)
            self._remember(identity, now, view, whole=not maker.behind)

    def _maker(self, identity: Identity | None) -> ViewMaker:
        key = _key(identity)
        maker = self._makers.get(key) or ViewMaker(identity)
        maker.identity = identity  # of a newer token
        self._makers[key] = maker
        self._makers.move_to_end(key)
        while len(self._makers) > MAKERS:
            self._makers.popitem(last=False)
        return maker

    def _remember(
        self, identity: Identity | None, now: float, view: View, *, whole: bool = True
    ) -> CallerView:
        scopes = granted_scopes(identity, self.snapshot.policy, now)
        content = self._view_cache.content(view, scopes, anonymous=identity is None)
        made = CallerView(content, self.snapshot, identity, scopes, view.valid_until, now, whole)
        # what is known of a caller is also known to its next token: nothing is, of one that has just ended
        if identity is None or is_valid(identity, now):
            self._view_cache.put(_key(identity), made)
        return made

    async def answer(self, caller_view: CallerView, make: Callable[[], Answer]) -> Answer:
        """The encoded answer of `GET /` for `caller_view`, made once for all who get the same; a long one in a thread."""
        content = caller_view.content
        if content.answer is None and is_long(caller_view.view.tools.values()):
            made = await self._answers.once(content, partial(asyncio.to_thread, make))
            return self._view_cache.answer(caller_view, lambda: made)
        return self._view_cache.answer(caller_view, make)

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change of the snapshot, or when the service stops. Take it before looking."""
        return self._changed

    def wake(self) -> None:
        """Make every watcher look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def drain(self) -> None:
        """Say that this replica is about to stop, and end all watch streams: their clients go elsewhere."""
        self.draining = True
        self.wake()

    def close(self) -> None:
        """End what waits for a change, too."""
        self.closing = True
        self.drain()


def _key(identity: Identity | None) -> Any:
    return None if identity is None else identity.cache_key


def is_long(tools: Collection[PublishedTool]) -> bool:
    """Whether an answer with these tools takes too long to encode on the event loop."""
    return len(tools) > AT_ONCE or sum(map(definition_bytes, tools)) > BYTES_AT_ONCE


def definition_bytes(tool: PublishedTool) -> int:
    """Bytes of what may be long in a tool's definition: its description and its schemas."""
    return len(tool.description) + len(tool.packed_input) + len(tool.packed_output or b"")
