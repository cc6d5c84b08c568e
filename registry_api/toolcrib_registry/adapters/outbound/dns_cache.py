"""Host names and their addresses: looked up once for all who wait, kept for seconds, given up after one second.

    call ──┐
    call ──┼─ Names ── first try ────────────── no answer …… (kept, should it still come)
    call ──┘             └─ 0.5 s later: second try ── answer → all three go on

An answer is kept for its TTL and 30 s at most; with a TTL of 0 it serves those who waited for it and nobody else. What
was found is judged by the guard each time it is used, not when it was found (`outbound_http`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

KEEP_SECONDS = 30.0
"""For how long an answer is used at most, whatever its TTL."""
REFUSED_SECONDS = 2.0
"""For how long a name that was not found, or not in time, is not looked up again."""
LOOKUP_SECONDS = 1.0
"""How long a lookup takes at most, both tries together."""
AGAIN_SECONDS = 0.5
"""When the second try begins, unless the first failed before: one packet may be lost."""
TRIES = 4
"""Tries for one name that may wait for an answer, those of earlier lookups included."""
MOST = 4_096
"""Names that are remembered."""


class NotFound(OSError):
    """The name has no address, or nobody said so in time; the message says which."""


class Absent(NotFound):
    """The name has no address that can be used: asking again at once brings nothing else."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a try found."""

    addresses: tuple[str, ...]
    """IP addresses, as text."""
    ttl: float
    """For how many seconds the name server lets it be used."""


Resolve = Callable[[str, int], Awaitable[Answer]]
"""One try, (host, port) → addresses; raises OSError."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a lookup brought, and until when it is used."""

    until: float
    addresses: tuple[str, ...] = ()
    problem: str = ""


class Names:
    """Looks names up. Used from one event loop only.

    Args:
        resolve: one try; may take long.
        clock: monotonic seconds, for how long answers are kept.
        again: seconds until the second try.
        seconds: seconds until a lookup is given up.
    """

    def __init__(
        self,
        resolve: Resolve,
        *,
        clock: Callable[[], float] = time.monotonic,
        again: float = AGAIN_SECONDS,
        seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self._resolve, self._clock = resolve, clock
        self._again, self._seconds = again, seconds
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lookups: dict[str, asyncio.Future[_Known]] = {}
        self._tries: dict[str, set[asyncio.Future[Answer]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, host: str, port: int = 0) -> list[str]:
        """The addresses of `host`; anyone who asks while it is being looked up gets the same answer.

        Raises:
            NotFound: it has none, or there was no answer in time.
        """
        known = self._fresh(host)
        if known is None:
            # a caller who gives up must not end the lookup of the others
            known = await asyncio.shield(self._lookup(host, port))
        if known.problem:
            raise NotFound(known.problem)
        return list(known.addresses)

    def begin(self, host: str, port: int = 0) -> None:
        """Look `host` up, unless it is known or being looked up, for a call that will ask soon."""
        if self._fresh(host) is None:
            self._lookup(host, port)

    async def close(self) -> None:
        """Give up all lookups."""
        tasks: list[asyncio.Future[Any]] = [
            *self._tasks,
            *(one for several in self._tries.values() for one in several),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiting in self._lookups.values():
            waiting.cancel()
        self._lookups.clear()

    def _fresh(self, host: str) -> _Known | None:
        known = self._known.get(host)
        return known if known is not None and self._clock() < known.until else None

    def _lookup(self, host: str, port: int) -> asyncio.Future[_Known]:
        waiting = self._lookups.get(host)
        if waiting is None:
            waiting = self._lookups[host] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._look_up(host, port, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return waiting

    async def _look_up(self, host: str, port: int, waiting: asyncio.Future[_Known]) -> None:
        """Two tries at most, until one of them, or one of an earlier lookup, brings an answer."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        problem = f"the name server did not respond within {self._seconds:g} s"
        pending: set[asyncio.Future[Any]] = set()
        for until in (now + self._again, now + self._seconds):
            pending |= self._try(host, port)
            while not waiting.done() and (left := until - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    {*pending, waiting}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                pending -= done
                failed = next((e for one in done if one is not waiting and (e := one.exception())), None)
                if failed is not None:
                    problem = str(failed)
                    if isinstance(failed, Absent):
                        self._settle(host, problem=problem)
                        return
                    if not pending:
                        break  # the second try need not wait for its time, and there is no third
            if waiting.done():
                return
        self._settle(host, problem=problem)

    def _try(self, host: str, port: int) -> set[asyncio.Future[Any]]:
        """Begin one; none where too many wait already: one of those may answer."""
        tries = self._tries.setdefault(host, set())
        if len(tries) >= TRIES:
            return set()
        task = asyncio.ensure_future(self._resolve(host, port))
        tries.add(task)
        task.add_done_callback(lambda done: self._tried(host, done))
        return {task}

    def _tried(self, host: str, done: asyncio.Future[Answer]) -> None:
        tries = self._tries.get(host, set())
        tries.discard(done)
        if not tries:
            self._tries.pop(host, None)
        # an answer that comes too late for its own lookup still serves the next one
        if not done.cancelled() and done.exception() is None:
            self._settle(host, done.result())

    def _settle(self, host: str, answer: Answer | None = None, problem: str = "") -> None:
        if answer is None or not answer.addresses:
            known = _Known(self._clock() + REFUSED_SECONDS, problem=problem or "the name has no address")
        else:
            known = _Known(self._clock() + min(answer.ttl, KEEP_SECONDS), answer.addresses)
        self._known[host] = known
        self._known.move_to_end(host)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        waiting = self._lookups.pop(host, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(known)
