"""`GET /v1/watch`: the caller's view as server-sent events.

The whole view first (`snapshot`), then `added`, `changed`, `removed`; every event is decided when it is sent, because
each round compares the view of that moment with what was sent before. So there is no queue: a slow reader gets the
difference when it reads on, and one that does not read at all is dropped. So is one that is in the middle of a large
event when the token ends or a tool in that event is not the caller's any more. A grant's expiry emits `removed` by the
clock alone; at the token's `exp`, when its ServiceAccount is deleted or its issuer withdraws the key that signed it,
the stream ends (`end`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Set
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from toolcrib.authorizer import Action
from toolcrib.identity import Identity
from toolcrib.wire.api import ToolDefinition, WatchRemoved, WatchSnapshot, WatchTool, with_tools
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.clock import Clock
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.policy.state import CallerView, PolicyState, is_long
from toolcrib_registry.settings import RegistrySettings

KEEP_ALIVE = 15.0
"""Seconds between comments on a quiet stream."""
_SLICE = 64 * 1024
"""Bytes handed over at one time: the reader is waited for between two of them."""

Shown = dict[str, ToolDefinition]
_made: WeakValueDictionary[tuple[int, str], ToolDefinition] = WeakValueDictionary()
"""Definitions that some stream holds, by the tool's fingerprint and its listed name: a thousand streams of one tool
hold one definition."""


def shown(caller_view: CallerView) -> Shown:
    """What the caller sees: definitions under the names that it knows."""
    found: Shown = {}
    for tool_id, tool in caller_view.view.tools.items():
        key = (caller_view.snapshot.fingerprint(tool_id), caller_view.view.listed_name(tool_id))
        definition = _made.get(key)
        if definition is None:
            definition = _made[key] = ToolDefinition.of(tool, key[1])
        found[tool_id] = definition
    return found


def difference(before: Shown, after: Shown, revision: str) -> list[tuple[str, bytes]]:
    """Events (type, encoded) that lead from `before` to `after`: removals first."""
    events: list[tuple[str, bytes]] = []
    for tool_id in sorted(before.keys() - after.keys()):
        gone = WatchRemoved(revision=revision, tool_id=tool_id, name=before[tool_id].name)
        events.append(("removed", encode("removed", revision, gone.model_dump_json().encode())))
    for tool_id in sorted(after):
        if before.get(tool_id) == after[tool_id]:
            continue
        kind = "changed" if tool_id in before else "added"
        data = WatchTool(revision=revision, tool=after[tool_id]).model_dump_json().encode()
        events.append((kind, encode(kind, revision, data)))
    return events


def encode(kind: str, revision: str, data: bytes) -> bytes:
    """One event; JSON has no raw line breaks, so one data line is enough."""
    return b"".join((f"id: {revision}\nevent: {kind}\ndata: ".encode(), data, b"\n\n"))


class Dropped(Exception):
    """The stream ends in the middle: its reader is slow."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is sent at one time, and the ids of the tools whose definitions are in it."""

    data: bytes
    tools: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Round:
    """What is shown now, and the events (maybe none) that lead there."""

    shown: Shown
    kinds: tuple[str, ...]
    piece: Piece


def _changed(caller_view: CallerView, last: CallerView | None) -> list[PublishedTool]:
    """The tools of which the stream of `last` may have to be told."""
    known = {} if last is None else last.view.tools
    return [tool for i, tool in caller_view.view.tools.items() if known.get(i) is not tool]


def _made_of(caller_view: CallerView, before: Shown | None) -> _Round:
    after = shown(caller_view)
    if before is None:
        tools = tuple(after[i] for i in sorted(after))
        whole = with_tools(WatchSnapshot(revision=caller_view.revision, tools=()), tools)
        data = encode("snapshot", caller_view.revision, whole)
        return _Round(after, ("snapshot",), Piece(data, after.keys()))
    events = difference(before, after, caller_view.revision)
    told = {i for i in after if before.get(i) is not after[i]}
    return _Round(after, tuple(kind for kind, _ in events), Piece(b"".join(data for _, data in events), told))


class Parts(Protocol):
    """What a stream needs of the registry (`deps.Deps` has it)."""

    @property
    def state(self) -> PolicyState: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def decisions(self) -> DecisionLog: ...

    @property
    def settings(self) -> RegistrySettings: ...

    @property
    def large(self) -> LargeRequests: ...


class ViewStream:
    """Streams what becomes of one identity's view until its token is good no more or somebody stops.

    Args:
        identity: what the token proved.
        agents: verifies the request's Authorization headers again when an issuer's keys change.
        authorization: those headers.
        woken: set when there is something to tell besides.
    """

    def __init__(
        self,
        parts: Parts,
        identity: Identity,
        agents: Authenticator,
        authorization: list[bytes],
        woken: asyncio.Event | None = None,
    ) -> None:
        self._parts = parts
        self._woken = asyncio.Event() if woken is None else woken
        self._identity = identity
        self._agents = agents
        self._authorization = authorization
        self._account = identity.account
        self._keys: int | None = None
        """The version of the keys that the token was verified by."""

    async def run(self, hand_over: Callable[[bytes], Awaitable[None]], left: asyncio.Task[None]) -> None:
        """Hand over events until the token's end, the client's, or the service's.

        Args:
            hand_over: takes the next bytes, also none of them; returns when the reader has room for more.
            left: done when the client has gone.

        Raises:
            Dropped: the reader was too slow. What was handed over is no whole stream.
        """
        metrics, limit = self._parts.metrics, self._parts.settings.limits.watch_send_seconds

        async def room() -> None:
            # the server waits for its reader before it takes something, even nothing: what is handed over next goes
            # out in the moment in which it was decided
            try:
                async with asyncio.timeout(limit):
                    await hand_over(b"")
            except TimeoutError:
                raise Dropped from None

        try:
            async for piece in self._pieces(left, room):
                if len(piece.data) <= _SLICE:
                    await hand_over(piece.data)
                    continue
                async with self._parts.large.sending(self._account, len(piece.data)):
                    for start in range(0, len(piece.data), _SLICE):
                        if start:
                            await room()
                            if not await self._holds(piece):
                                raise Dropped
                        await hand_over(piece.data[start : start + _SLICE])
            await room()
        except (Dropped, TimeoutError) as error:
            metrics.watch_dropped()
            raise Dropped from error

    async def _pieces(
        self, gone: asyncio.Task[None], room: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Piece]:
        parts = self._parts
        while not gone.done():
            await room()
            changed = parts.state.changed
            if parts.state.draining:
                yield self._end("shutting_down")
                return
            if self._identity.expires_at <= parts.clock.now():
                yield self._end("token_expired")
                return
            if not await self._verified():
                yield self._end("invalid_token")
                return
            self._woken.clear()
            found = await self._round(gone)
            if found is None:
                continue
            caller_view, piece = found
            if piece is not None:
                if piece.data:
                    yield piece
                continue  # the view may have changed while that was being sent
            if caller_view.snapshot.policy.is_gone(self._identity):
                yield self._end("invalid_token")
                return
            until = min(caller_view.until, self._identity.expires_at)
            if not await _first(changed, self._woken, parts.clock.sleep_until(until), gone):
                yield Piece(b": keep-alive\n\n")

    def _end(self, reason: str) -> Piece:
        """The last of the stream."""
        raise NotImplementedError

    async def _round(self, gone: asyncio.Task[None]) -> tuple[CallerView, Piece | None] | None:
        """The view, and what has to be told of it since the last round. Its piece None: it is that of the last round.
        None: nothing may be sent, look again."""
        raise NotImplementedError

    async def _verified(self) -> bool:
        """Whether the token would let a request in: asked again whenever an issuer's keys have changed."""
        while self._keys != (version := self._agents.version):
            if (await self._agents.identify(self._authorization)).identity is None:
                return False
            self._keys = version
        return True

    async def _holds(self, piece: Piece) -> bool:
        """Whether the rest of `piece` may still be sent."""
        if not await self._verified() or self._identity.expires_at <= self._parts.clock.now():
            return False
        caller_view = await self._parts.state.caller_view(self._identity)
        return piece.tools <= caller_view.view.tools.keys()


class WatchStream(ViewStream):
    """The view itself: all of it first, then each change."""

    def __init__(
        self, parts: Parts, identity: Identity, agents: Authenticator, authorization: list[bytes]
    ) -> None:
        super().__init__(parts, identity, agents, authorization)
        self._last: CallerView | None = None
        self._before: Shown | None = None

    def _end(self, reason: str) -> Piece:
        return Piece(encode("end", "", b'{"reason":"%s"}' % reason.encode()))

    async def _round(self, gone: asyncio.Task[None]) -> tuple[CallerView, Piece | None] | None:
        found = await self._look()
        if found is None:
            return None
        caller_view, made = found
        if made is None:
            return caller_view, None
        self._last, self._before = caller_view, made.shown
        self._count(caller_view, made)
        return caller_view, made.piece

    async def _look(self) -> tuple[CallerView, _Round | None] | None:
        """The view and what leads to it from the last one, if anything does; None: nothing may be sent, look again."""
        parts, last, before = self._parts, self._last, self._before
        async with parts.state.turn:
            # one stream at a time, and others between two of them: a change wakes all streams at once
            await asyncio.sleep(0)
            caller_view = parts.state.view_at_once(self._identity)
            if caller_view is not None and not is_long(_changed(caller_view, last)):
                if self._keys != self._agents.version or self._identity.expires_at <= parts.clock.now():
                    return None  # the stream ends, and nothing is removed
                return caller_view, None if caller_view is last else _made_of(caller_view, before)
        async with parts.state.large_turn:
            caller_view = await parts.state.caller_view(self._identity)
            if caller_view is last:
                return caller_view, None
            made = await asyncio.to_thread(_made_of, caller_view, before)
        return (caller_view, made) if await self._holds(made.piece) else None

    def _count(self, caller_view: CallerView, made: _Round) -> None:
        metrics = self._parts.metrics
        for kind in made.kinds:
            metrics.watch_event(kind)
        if "snapshot" in made.kinds:
            metrics.discovered(self._identity, "watch")
        if made.kinds:
            self._parts.decisions.listed(Action.WATCH, caller_view)


async def _first(
    changed: asyncio.Event,
    woken: asyncio.Event,
    clock: Coroutine[object, object, None],
    gone: asyncio.Task[None],
) -> bool:
    """Wait for a change, something to tell, the clock or the client's end; False: nothing happened for `KEEP_ALIVE` seconds."""
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(changed.wait()),
        asyncio.create_task(woken.wait()),
        asyncio.create_task(clock),
    ]
    try:
        done, _ = await asyncio.wait([*tasks, gone], timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
