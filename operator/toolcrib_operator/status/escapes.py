"""Tools that left a deny: edited, or deleted and created again, so that a binding that denied them does not any more.

What moved is known at the moment it is published, so nothing is kept of the tools that stay. A status remembers what was
found (`kinds.statuses.DenialHistory`), so a restart forgets nothing of it. Not seen: what changed while no operator ran, and a
tool that comes back under another object name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from toolcrib import authorizer
from toolcrib.authorizer import Policy
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.timers import wait
from toolcrib_operator.world import Ref

log = logging.getLogger(__name__)

MOST_ESCAPED = 16
"""Tools that are named of one binding."""
MOST_QUEUED = 20_000
"""Moves that wait to be looked at; further ones are dropped, and a line in the log says so."""

Move = tuple[PublishedTool, PublishedTool]
"""A tool before and after: its name, server or scopes differ."""


class Escapes:
    """Looks at moved tools in a thread, beside publishing, and remembers at most 16 for each binding's generation."""

    def __init__(self, on_found: Callable[[Ref], None] = lambda ref: None) -> None:
        """`on_found` is told of each binding that a tool has escaped from."""
        self._on_found = on_found
        self._found: dict[str, tuple[int, dict[str, None]]] = {}
        self._queue: deque[tuple[Sequence[Move], Policy]] = deque()
        self._queued = 0
        self._wake = asyncio.Event()

    def moved(self, moves: Sequence[Move], policy: Policy) -> None:
        """These tools have changed, under these bindings."""
        if not moves:
            return
        if self._queued + len(moves) > MOST_QUEUED:
            log.warning(
                "%d changed tools are not looked at: whether they left a deny is not told", len(moves)
            )
            return
        self._queue.append((moves, policy))
        self._queued += len(moves)
        self._wake.set()

    def of(self, binding: PublishedBinding) -> tuple[str, ...]:
        """The ids of tools that this generation of the binding denied and no longer did when they changed."""
        generation, ids = self._found.get(binding.uid, (None, {}))
        return tuple(ids) if generation == binding.generation else ()

    def forget(self, uids: Iterable[str]) -> None:
        """These bindings are gone."""
        for uid in uids:
            self._found.pop(uid, None)

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            if not await wait(self._wake, 0.5):
                continue
            self._wake.clear()
            while self._queue and not stop.is_set():
                moves, policy = self._queue.popleft()
                self._queued -= len(moves)
                for binding, tool_id in await asyncio.to_thread(_left, moves, policy):
                    self._note(binding, tool_id)

    def _note(self, binding: PublishedBinding, tool_id: str) -> None:
        generation, ids = self._found.get(binding.uid, (None, {}))
        if generation != binding.generation:
            ids = {}
        if len(ids) < MOST_ESCAPED:
            ids[tool_id] = None
        self._found[binding.uid] = (binding.generation, ids)
        key = f"{binding.namespace}/{binding.name}" if binding.namespace else binding.name
        self._on_found(Ref(binding.kind, key))


def _left(moves: Sequence[Move], policy: Policy) -> list[tuple[PublishedBinding, str]]:
    deniers = authorizer.deniers(policy)
    found = []
    for before, after in moves:
        now = deniers(after)
        found += [(b, after.tool_id) for uid, b in deniers(before).items() if uid not in now]
    return found
