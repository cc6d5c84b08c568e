"""Turns at something that serves a bounded number at once: accounts take them one after the other.

A caller with a thousand requests at once delays only its own: the next account's first comes before its second.
How many wait is bounded, of one account and together, and so is for how long. What waits here is no sign that the
store of counters is away.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque

from toolcrib_registry.limits.counters import CountersBusy


class Turns:
    """Hands out turns. Used from one event loop only.

    Args:
        at_once: how many have a turn at one time.
        each: how many of one account wait at most.
        together: how many wait at most.
        seconds: for how long at most.
    """

    def __init__(
        self, at_once: int, *, each: float = math.inf, together: float = math.inf, seconds: float = math.inf
    ) -> None:
        self._free = at_once
        self._each, self._together, self._seconds = each, together, seconds
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting = 0

    async def take(self, account: str) -> None:
        """Return when it is the turn of one question of `account`, which `give` ends.

        Raises:
            CountersBusy: too many wait, or it took too long.
        """
        if self._free:  # then nobody waits
            self._free -= 1
            return
        if self._waiting >= self._together or len(self._queues.get(account, ())) >= self._each:
            raise CountersBusy("too many calls are waiting to be counted")
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queues.setdefault(account, deque()).append(turn)
        self._waiting += 1
        late = None if self._seconds == math.inf else loop.call_later(self._seconds, _too_late, turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled() or turn.exception() is not None:
                self._forget(account, turn)
            else:  # given up in the moment in which it came
                self.give()
            raise
        finally:
            if late is not None:
                late.cancel()

    def give(self) -> None:
        """End a turn: it is the next account's."""
        while self._queues:
            account, queue = next(iter(self._queues.items()))
            turn = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues.move_to_end(account)
            else:
                del self._queues[account]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, account: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(account, deque())
        if turn in queue:
            queue.remove(turn)
            self._waiting -= 1
            if not queue:
                del self._queues[account]


def _too_late(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(CountersBusy("this call waited too long to be counted"))
