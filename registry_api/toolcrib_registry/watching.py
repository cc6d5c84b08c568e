"""`GET /v1/watch`: the caller's view as server-sent events.

The whole view first (`snapshot`), then `added`, `changed`, `removed`; every event is decided when it is sent, because
each round compares the view of that moment with what was sent before. So there is no queue: a slow reader gets the
difference when it reads on, and one that does not read at all is dropped. A grant's expiry emits `removed` by the
clock alone; at the token's `exp` the stream ends (`end`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from starlette.types import Receive, Scope, Send

from toolcrib.identity import Identity
from toolcrib.wire.api import ToolDefinition, WatchRemoved, WatchSnapshot, WatchTool
from toolcrib_registry.deps import Deps
from toolcrib_registry.state import Sight

KEEP_ALIVE = 15.0
"""Seconds between comments on a quiet stream."""
_SLICE = 64 * 1024
"""Bytes handed to the server at one time: it waits for the reader between two of them."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-store"),
    (b"vary", b"Authorization"),
    (b"x-accel-buffering", b"no"),
]

Shown = dict[str, ToolDefinition]


def shown(sight: Sight, last: Sight | None = None, before: Shown | None = None) -> Shown:
    """What the caller sees: definitions under the names that it knows. `before` was made of `last`: reused."""
    known, tools = before or {}, last.view.tools if last else {}
    made: Shown = {}
    for tool_id, tool in sight.view.tools.items():
        name, old = sight.view.listed_name(tool_id), known.get(tool_id)
        same = old is not None and old.name == name and tools.get(tool_id) is tool
        made[tool_id] = old if old is not None and same else ToolDefinition.of(tool, name)
    return made


def difference(before: Shown, after: Shown, revision: str) -> list[tuple[str, bytes]]:
    """Events (type, encoded) that lead from `before` to `after`: removals first."""
    events: list[tuple[str, bytes]] = []
    for tool_id in sorted(before.keys() - after.keys()):
        gone = WatchRemoved(revision=revision, tool_id=tool_id, name=before[tool_id].name)
        events.append(("removed", encode("removed", revision, gone.model_dump_json())))
    for tool_id in sorted(after):
        if before.get(tool_id) == after[tool_id]:
            continue
        kind = "changed" if tool_id in before else "added"
        data = WatchTool(revision=revision, tool=after[tool_id]).model_dump_json()
        events.append((kind, encode(kind, revision, data)))
    return events


def encode(kind: str, revision: str, data: str) -> bytes:
    """One event; JSON has no raw line breaks, so one data line is enough."""
    return f"id: {revision}\nevent: {kind}\ndata: {data}\n\n".encode()


class WatchStream:
    """An ASGI answer that streams one identity's view until its token expires or somebody stops."""

    def __init__(self, deps: Deps, identity: Identity) -> None:
        self._deps = deps
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the token's end, the client's, or the service's."""
        metrics, limit = self._deps.metrics, self._deps.settings.limits.watch_send_seconds
        metrics.stream_opened()
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for piece in self._pieces(gone):
                try:
                    for start in range(0, len(piece), _SLICE):
                        part = piece[start : start + _SLICE]
                        async with asyncio.timeout(limit):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                except TimeoutError:
                    metrics.watch_dropped()
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await send({"type": "http.response.body", "body": b""})
        finally:
            metrics.stream_closed()
            gone.cancel()

    async def _pieces(self, gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
        deps = self._deps
        before: Shown | None = None
        last: Sight | None = None
        while not gone.done():
            changed = deps.state.changed
            if deps.state.closing:
                yield encode("end", "", '{"reason":"shutting_down"}')
                return
            if self._identity.expires_at <= deps.clock.now():
                yield encode("end", "", '{"reason":"token_expired"}')
                return
            sight = deps.state.sight(self._identity)
            if sight is not last:
                after = shown(sight, last, before)
                if before is None:
                    whole = WatchSnapshot(
                        revision=sight.revision, tools=tuple(after[i] for i in sorted(after))
                    )
                    deps.metrics.watch_event("snapshot")
                    deps.metrics.discovered(self._identity, "watch")
                    deps.decisions.listed("watch", sight)
                    yield encode("snapshot", sight.revision, whole.model_dump_json())
                elif events := difference(before, after, sight.revision):
                    for kind, _ in events:
                        deps.metrics.watch_event(kind)
                    deps.decisions.listed("watch", sight)
                    yield b"".join(data for _, data in events)
                before, last = after, sight
                continue  # the view may have changed while that was being sent
            until = min(sight.until, self._identity.expires_at)
            if not await _first(changed, deps.clock.sleep_until(until), gone):
                yield b": keep-alive\n\n"


async def _first(
    changed: asyncio.Event, clock: Coroutine[object, object, None], gone: asyncio.Task[None]
) -> bool:
    """Wait for a change, the clock or the client's end; False: nothing happened for `KEEP_ALIVE` seconds."""
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(changed.wait()),
        asyncio.create_task(clock),
    ]
    try:
        done, _ = await asyncio.wait([*tasks, gone], timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
