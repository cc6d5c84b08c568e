"""Large requests and answers, so that many of them neither fill the memory nor hold the loop.

A body of small objects takes up to 30 times its bytes once it is parsed, and up to 0.3 s to parse, check and write. So a body from
`LARGE` bytes on needs room from before it is read until its request has been answered: of `TOGETHER` bytes at one time, and
of `EACH` for one caller. And one such body (or answer) is parsed at one time: others wait without holding the loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import chain

LARGE = 16 << 10
TOGETHER = 16 << 20
EACH = 4 << 20
UNREAD_TOGETHER = 128 << 20
UNREAD_EACH = 32 << 20
"""Bytes of large answers that are being sent at one time, and of those to one caller: the oldest of who has the most is cut.
What several callers get at one time counts once, as an equal share of each."""
WAIT_SECONDS = 5.0
RETRY_SECONDS = 1


class NoRoom(Exception):
    """Too many large requests are in progress."""


class LargeRequests:
    """Room and turns for what is large. Used from one event loop only.

    Args:
        together: bytes of bodies in progress at one time.
        each: of those, of one caller; one body at least is always let in.
        seconds: how long a body waits at most.
    """

    def __init__(self, *, together: int = TOGETHER, each: int = EACH, seconds: float = WAIT_SECONDS) -> None:
        self._together, self._each, self._seconds = together, each, seconds
        self._held: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._busy = False
        self._turns: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._unread: dict[str, OrderedDict[asyncio.Timeout, tuple[Hashable, int]]] = {}

    @property
    def held(self) -> int:
        """Bytes of bodies in progress."""
        return self._held.total()

    async def enter(self, account: str, size: int) -> None:
        """Return when there is room for `size` bytes of `account`; `leave` gives it back.

        Raises:
            NoRoom: there was none in time.
        """
        if account not in self._queues and self._fits(account, size):
            self._held[account] += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (size, turn)
        self._queues.setdefault(account, deque()).append(waiting)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # given up in the moment in which it came
                self.leave(account, size)
            else:
                queue = self._queues.get(account, deque())
                if waiting in queue:
                    queue.remove(waiting)
                    if not queue:
                        del self._queues[account]
                self._admit()
            if isinstance(error, TimeoutError):
                raise NoRoom from error
            raise

    def leave(self, account: str, size: int) -> None:
        """Give the room back: it goes to who waits, accounts in turns."""
        self._held[account] -= size
        if not self._held[account]:
            del self._held[account]
        self._admit()

    def _fits(self, account: str, size: int) -> bool:
        mine = self._held[account]
        if not mine:  # anyone who holds nothing needs only what is free of all
            return self.held + size <= max(self._together, size)
        return mine + size <= self._each and self.held + size <= self._together

    def _admit(self) -> None:
        for account in list(self._queues):
            queue = self._queues[account]
            while queue and self._fits(account, queue[0][0]):
                size, turn = queue.popleft()
                if turn.done():
                    continue
                self._held[account] += size
                turn.set_result(None)
                self._queues.move_to_end(account)
            if not queue:
                del self._queues[account]

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Alone among those who take turns; accounts come one after the other."""
        if self._busy:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.setdefault(account, deque()).append(mine)
            try:
                await mine
            except BaseException:
                if mine.done() and not mine.cancelled():
                    self._pass_on()
                raise
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._turns:
            account, queue = next(iter(self._turns.items()))
            mine = queue.popleft()
            if queue:
                self._turns.move_to_end(account)
            else:
                del self._turns[account]
            if not mine.done():
                mine.set_result(None)
                return
        self._busy = False

    @asynccontextmanager
    async def sending(self, account: str, size: int, body: Hashable = None) -> AsyncIterator[None]:
        """While an answer of `size` bytes is sent to `account`: readers that are slow may not fill the memory.

        Args:
            account: who gets it.
            size: bytes.
            body: what names an answer that several get at one time; it lies in memory once.

        Raises:
            TimeoutError: it is cut, since too much waits to be read.
        """
        async with asyncio.timeout(None) as end:
            self._unread.setdefault(account, OrderedDict())[end] = (end if body is None else body, size)
            self._cut(account)
            try:
                yield
            finally:
                self._sent(account, end)

    def _cut(self, account: str) -> None:
        while len(self._unread[account]) > 1 and _distinct(self._unread[account].values()) > UNREAD_EACH:
            self._cut_oldest(account)
        while _distinct(everything := list(self._all())) > UNREAD_TOGETHER:
            readers = Counter(body for body, _ in everything)
            self._cut_oldest(
                max(
                    self._unread,
                    key=lambda most: sum(size / readers[body] for body, size in self._unread[most].values()),
                )
            )

    def _all(self) -> Iterator[tuple[Hashable, int]]:
        return chain.from_iterable(answers.values() for answers in self._unread.values())

    def _cut_oldest(self, account: str) -> None:
        end = next(iter(self._unread[account]))
        self._sent(account, end)
        end.reschedule(asyncio.get_running_loop().time())

    def _sent(self, account: str, end: asyncio.Timeout) -> None:
        answers = self._unread.get(account, OrderedDict())
        answers.pop(end, None)
        if not answers:
            self._unread.pop(account, None)


def _distinct(answers: Iterable[tuple[Hashable, int]]) -> int:
    """Bytes of these answers, of each body once."""
    return sum(dict(answers).values())
