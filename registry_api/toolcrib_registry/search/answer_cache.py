"""Answers given lately, so that a request that is repeated is not searched again.

An answer is kept for one view (the very object: another grant, tool, date or snapshot makes another view), one request
with all its parameters, and one state of the index. It is dropped with its view, and never kept where it is degraded or
where the index changed while it was made. While some vectors may still come from the store there is no such state:
what was answered is good for half a second, counted from when it was asked.

Requests that are equal at the same time are searched once; anyone who gives up does not end it for the others.
Used from one event loop only.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from toolcrib_registry.search.searcher import Answer
from toolcrib_registry.search.visible import Visible

BYTES = 16 << 20
"""Estimated, of all answers together."""
SECONDS = 0.5
"""How long an answer is good while vectors may still come."""
_ANSWER, _HIT = 1_000, 500

_Key: TypeAlias = tuple[int, Hashable, int | None]


@dataclass(slots=True)
class _Kept:
    view: weakref.ref[Visible]
    answer: Answer
    since: float
    weight: int


@dataclass(slots=True)
class _Flight:
    view: Visible
    task: asyncio.Future[Answer]
    since: float


class AnswerCache:
    """Keeps answers within a bound of bytes, the latest used."""

    def __init__(
        self, *, bytes_: int = BYTES, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bytes, self._seconds, self._clock = bytes_, seconds, clock
        self._kept: dict[_Key, _Kept] = {}
        self._of_view: dict[int, set[_Key]] = {}
        self._flights: dict[_Key, _Flight] = {}
        self._gone: deque[int] = deque()
        """Views that nobody holds any more; a thread may be the last to let go of one."""
        self.weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def answer(
        self,
        view: Visible,
        request: Hashable,
        state: Callable[[], int | None],
        make: Callable[[], Awaitable[Answer]],
    ) -> Answer:
        """The answer kept for `request` in `view`, else what `make` gives.

        Args:
            request: everything that the answer depends on but the view and the index.
            state: names the state of the index; None where it does not tell.
        """
        self._sweep()
        key, now = (id(view), request, state()), self._clock()
        kept = self._kept.get(key)
        if kept is not None and kept.view() is view and self._good(key, kept.since, now):
            self._kept[key] = self._kept.pop(key)
            return kept.answer
        flight = self._flights.get(key)
        if flight is None or not self._good(key, flight.since, now):
            flight = _Flight(view, asyncio.ensure_future(make()), now)
            self._flights[key] = flight
            flight.task.add_done_callback(lambda task: self._landed(key, flight, task, state))
        return await asyncio.shield(flight.task)

    def _good(self, key: _Key, since: float, now: float) -> bool:
        return key[2] is not None or now - since < self._seconds

    def _landed(
        self, key: _Key, flight: _Flight, task: asyncio.Future[Answer], state: Callable[[], int | None]
    ) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        if not answer.degraded and state() == key[2]:
            self._keep(key, flight, answer)

    def _keep(self, key: _Key, flight: _Flight, answer: Answer) -> None:
        self._sweep()
        self._drop(key)
        # an answer holds its entries, also after a snapshot has let go of them
        weight = _ANSWER + 2 * len(repr(key[1])) + sum(_HIT + len(h.entry.description) for h in answer.hits)
        if weight > self._bytes:
            return
        number = key[0]
        if number not in self._of_view:
            self._of_view[number] = set()
            weakref.finalize(flight.view, self._gone.append, number).atexit = False
        self._of_view[number].add(key)
        self._kept[key] = _Kept(weakref.ref(flight.view), answer, flight.since, weight)
        self.weight += weight
        while self.weight > self._bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.weight -= kept.weight
            self._of_view[key[0]].discard(key)

    def _sweep(self) -> None:
        while self._gone:
            number = self._gone.popleft()
            for key in list(self._of_view.get(number, ())):
                self._drop(key)
            self._of_view.pop(number, None)
