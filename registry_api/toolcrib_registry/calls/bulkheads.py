"""Room for calls, so that slow ones delay nobody else: each backend, binding and caller has a compartment.

    all calls ≤ 1,024
      a backend ≤ 256      and no more than is still free of all
        a binding ≤ 128    and no more than is still free of its backend
          a caller ≤ 64    and no more than is still free of its binding

Who takes all there is gets half; two get a third each; the next one finds room. A call without room waits, behind
those of its own caller alone, for a bounded time and in a bounded number.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_registry.calls.errors import BackendBusy
from toolcrib_registry.limits.charge import ROOM_SECONDS
from toolcrib_registry.limits.shares import Shares
from toolcrib_registry.outbound import hosts
from toolcrib_registry.outbound.errors import EgressRefused

TOGETHER = 1_024
"""Calls in progress at one time, to all backends; a connection each."""
EACH = 256
"""Of those, to one backend."""
WAIT_EACH = 256
"""Calls of one caller, by one binding, that wait for one backend."""
WAIT_TOGETHER = 4_096
RETRY_SECONDS = 1
"""`Retry-After`: nobody knows when a call ends."""

Path = tuple[str, str, str]
"""Backend, binding, caller."""


class Bulkheads:
    """Lets calls in. Used from one event loop only.

    Args:
        together: calls in progress at one time.
        each: of those, to one backend.
        seconds: how long a call waits at most.
    """

    def __init__(self, *, together: int = TOGETHER, each: int = EACH, seconds: float = ROOM_SECONDS) -> None:
        self._together, self._each, self._seconds = together, each, seconds
        self._shares = Shares(together, each, max(1, each // 2), max(1, each // 4))
        self._queues: dict[str, OrderedDict[Path, deque[asyncio.Future[None]]]] = {}
        self.waiting = 0

    @property
    def in_progress(self) -> int:
        """Calls that have been let in and have not ended."""
        return self._shares.held.get((), 0)

    def room(self, tool: PublishedTool, binding: PublishedBinding | None, caller: Identity) -> Room:
        """Room for a call of `tool` by `caller`, on the strength of `binding`."""
        backend = backend_of(tool)
        if backend is None:  # nothing will be sent
            return Room(self, None)
        return Room(self, (backend, "" if binding is None else binding.uid, caller.account))

    async def enter(self, path: Path) -> None:
        """Return when there is room.

        Raises:
            BackendBusy: there was none in time, or too many calls wait.
        """
        queues = self._queues.get(path[0], OrderedDict())
        if path not in queues and self._shares.full(path) is None:  # its own calls come first
            self._shares.take(path)
            return
        if self.waiting >= WAIT_TOGETHER or len(queues.get(path, ())) >= WAIT_EACH:
            raise _busy("too many calls are waiting for it")
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queues.setdefault(path[0], OrderedDict()).setdefault(path, deque()).append(turn)
        self.waiting += 1
        late = loop.call_later(self._seconds, _too_late, turn, self._seconds)
        try:
            await turn
        except BaseException:
            if turn.cancelled() or turn.exception() is not None:
                self._forget(path, turn)
            else:  # given up in the moment in which it came
                self.leave(path)
            raise
        finally:
            late.cancel()

    def leave(self, path: Path) -> None:
        """Give the room back; a call that waits for it gets it."""
        self._shares.leave(path)
        if not self._queues:
            return
        while self._next(path[0]):
            pass
        # those of another backend only where that holds as much as is free of all
        if self._together - self.in_progress <= self._each + 1:
            for backend in list(self._queues):
                while self._next(backend):
                    pass

    def _next(self, backend: str) -> bool:
        """Let a call in that waits for `backend`, if there is room; callers take turns."""
        queues = self._queues.get(backend, OrderedDict())
        for path, queue in list(queues.items()):
            while queue and queue[0].done():  # given up just now
                self._forget(path, queue[0])
            if not queue or self._shares.full(path) is not None:
                continue
            turn = queue[0]
            self._forget(path, turn)
            if path in queues:
                queues.move_to_end(path)
            self._shares.take(path)
            turn.set_result(None)
            return True
        return False

    def _forget(self, path: Path, turn: asyncio.Future[None]) -> None:
        queues = self._queues.get(path[0], OrderedDict())
        queue = queues.get(path, deque())
        if turn not in queue:
            return
        queue.remove(turn)
        self.waiting -= 1
        if not queue:
            del queues[path]
        if not queues:
            del self._queues[path[0]]


class Room:
    """One call's room; entered when there is some, which raises `BackendBusy` where there is none in time."""

    __slots__ = ("_bulkheads", "_path")

    def __init__(self, bulkheads: Bulkheads, path: Path | None) -> None:
        self._bulkheads, self._path = bulkheads, path

    async def __aenter__(self) -> None:
        if self._path is not None:
            await self._bulkheads.enter(self._path)

    async def __aexit__(self, *_: object) -> None:
        if self._path is not None:
            self._bulkheads.leave(self._path)


def backend_of(tool: PublishedTool) -> str | None:
    """What a tool's calls share with those of other tools: the Service and port, or the URL's host and port."""
    backend = tool.backend
    if backend is None:
        return None
    if backend.service_name is not None:
        return f"{backend.service_namespace}/{backend.service_name}:{backend.service_port}"
    if backend.url is None:
        return None
    try:
        place = hosts.split_url(backend.url)
    except EgressRefused:  # it will not be sent; the guard says why
        return None
    return f"{place.host}:{place.port}"


def _busy(why: str) -> BackendBusy:
    return BackendBusy(
        f"The tool's backend is busy: {why}. Retry later, with fewer calls at one time.",
        retry_after=RETRY_SECONDS,
    )


def _too_late(turn: asyncio.Future[None], seconds: float) -> None:
    if not turn.done():
        turn.set_exception(_busy(f"no call to it ended within {seconds:g} s that would have made room"))
