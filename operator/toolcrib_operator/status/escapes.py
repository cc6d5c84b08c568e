"""Tools that left a deny: edited, or deleted and created again, so that a binding that denied them does not any more.

What moved is known at the moment it is published, so nothing is kept of the tools that stay. A status remembers what was
found (`kinds.reach.DenialHistory`), so a restart forgets nothing of it. Not seen: what changed while no operator ran, and a
tool that comes back under another object name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from toolcrib import authorizer
from toolcrib.authorizer import Policy
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.reach import MOST_ESCAPED
from toolcrib_operator.kinds.records import Records
from toolcrib_operator.objects import Ref
from toolcrib_operator.timers import wait_any

log = logging.getLogger(__name__)

MOST_QUEUED = 20_000
"""Moves that wait to be looked at; further ones are dropped, and a line in the log says so."""

Move = tuple[PublishedTool, PublishedTool]
"""A tool before and after: its name, server or scopes differ."""


class Escapes:
    """Looks at moved tools in a thread, beside publishing, and remembers at most 16 for each binding's generation."""

    def __init__(self, records: Records, on_found: Callable[[Ref], None] = lambda ref: None) -> None:
        """`on_found` is told of each binding that a tool has escaped from."""
        self._records, self._on_found = records, on_found
        self._queue: deque[tuple[Sequence[Move], Policy]] = deque()
        self._queued = 0
        self._wake = asyncio.Event()

    def moved(self, moves: Sequence[Move], policy: Policy) -> None:
        """These tools have changed, under these bindings."""
        if not moves:
            return
        if self._queued + len(moves) > MOST_QUEUED:
            log.warning("skipped %d changed tools: whether they escaped a deny is unknown", len(moves))
            return
        self._queue.append((moves, policy))
        self._queued += len(moves)
        self._wake.set()

    def of(self, binding: PublishedBinding) -> tuple[str, ...]:
        """The ids of tools that this generation of the binding denied and no longer did when they changed."""
        record = self._records.get(_ref(binding))
        uid, generation, ids = (None, None, {}) if record is None else record.escaped or (None, None, {})
        return tuple(ids) if (uid, generation) == (binding.uid, binding.generation) else ()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            await wait_any((self._wake, stop))
            self._wake.clear()
            while self._queue and not stop.is_set():
                moves, policy = self._queue.popleft()
                self._queued -= len(moves)
                for binding, tool_id in await asyncio.to_thread(_left, moves, policy):
                    self._note(binding, tool_id)

    def _note(self, binding: PublishedBinding, tool_id: str) -> None:
        record = self._records.get(ref := _ref(binding))
        if record is None:  # it has gone meanwhile
            return
        ids = dict.fromkeys(self.of(binding))
        if len(ids) < MOST_ESCAPED:
            ids[tool_id] = None
        record.escaped = (binding.uid, binding.generation, ids)
        self._on_found(ref)


def _ref(binding: PublishedBinding) -> Ref:
    key = f"{binding.namespace}/{binding.name}" if binding.namespace else binding.name
    return Ref(binding.kind, key)


def _left(moves: Sequence[Move], policy: Policy) -> list[tuple[PublishedBinding, str]]:
    deniers = authorizer.deniers(policy)
    found = []
    for before, after in moves:
        now = deniers(after)
        found += [(b, after.tool_id) for uid, b in deniers(before).items() if uid not in now]
    return found
