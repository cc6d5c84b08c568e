"""Leaves a backend alone that fails: calls of it are refused for a moment, then one may try.

closed ──≥ 5 failures, and ≥ half of the calls of 30 s──► open ──10 s──► half open: one call ──success──► closed
                                                            ▲                    └──failure──┐
                                                            └────────────────────────────────┘
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from toolcrib_registry.calls.errors import BackendUnavailable

log = logging.getLogger(__name__)
FAILURES = 5
WINDOW_SECONDS = 30
OPEN_SECONDS = 10.0
_MOST = 4_096
"""Backends that are remembered: those called last."""


@dataclass(slots=True)
class _Breaker:
    seconds: deque[list[int]] = field(default_factory=deque)
    """`[second, calls, failures]`, the latest last."""
    until: float | None = None
    """When one call may try; None: closed."""
    trying: float | None = None
    """When the call that tries began; None: none does."""


class Breakers:
    """One for each backend. Used from one event loop only.

    Args:
        failures: from how many on it opens, if they are half of the calls of 30 s; 0: never.
        open_seconds: for how long a backend is left alone.
        on_open: told each time that one opens.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        open_seconds: float = OPEN_SECONDS,
        on_open: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures, self._open_seconds = failures, open_seconds
        self._on_open, self._clock = on_open, clock
        self._breakers: OrderedDict[str, _Breaker] = OrderedDict()
        self._open: set[str] = set()

    @property
    def open(self) -> int:
        """Backends that are left alone now, or of which one call tries."""
        return len(self._open)

    def refuses(self, backend: str) -> bool:
        """Whether a call would be refused now."""
        breaker = self._breakers.get(backend)
        return breaker is not None and self._left(breaker) is not None

    def enter(self, backend: str) -> bool:
        """Let a call in; True if it is the one that tries a backend that failed.

        Raises:
            BackendUnavailable: the backend is left alone.
        """
        breaker = self._breakers.get(backend)
        if breaker is None or breaker.until is None:
            return False
        left = self._left(breaker)
        if left is not None:
            seconds = max(1, math.ceil(left))
            raise BackendUnavailable(
                f"too many calls of the tool's backend failed, so its circuit breaker is open: retry in {seconds} s. If this"
                " lasts, tell the people who run the backend",
                retry_after=seconds,
            )
        breaker.trying = self._clock()
        return True

    def leave(self, backend: str, answered: bool | None, *, tried: bool) -> None:
        """A call has ended.

        Args:
            backend: its.
            answered: the backend answered, or failed; None: neither can be said.
            tried: it was the one that tries.
        """
        if self._failures == 0 or (answered is None and not tried):
            return
        breaker, now = self._of(backend), self._clock()
        if tried:
            breaker.trying = None
            if answered:
                breaker.until = None
                self._open.discard(backend)
                breaker.seconds.clear()
                log.info("backend %s answers again: its circuit breaker is closed", backend)
            elif answered is False and breaker.until is not None:
                breaker.until = now + self._open_seconds
                self._on_open()
        elif breaker.until is None and self._has_failed(breaker, int(now), failed=not answered):
            breaker.until = now + self._open_seconds
            self._open.add(backend)
            self._on_open()
            log.warning(
                "backend %s fails: its circuit breaker is open, calls are refused for %g s",
                backend,
                self._open_seconds,
            )

    def _left(self, breaker: _Breaker) -> float | None:
        """Seconds for which calls are refused, if they are."""
        if breaker.until is None:
            return None
        now = self._clock()
        left = breaker.until - now
        # a slow call that tries does not keep the others out for longer than the breaker itself
        tried = breaker.trying is not None and now - breaker.trying < self._open_seconds
        return left if left > 0 or tried else None

    def _has_failed(self, breaker: _Breaker, second: int, *, failed: bool) -> bool:
        seconds = breaker.seconds
        if not seconds or seconds[-1][0] != second:
            seconds.append([second, 0, 0])
        seconds[-1][1] += 1
        seconds[-1][2] += failed
        while seconds[0][0] <= second - WINDOW_SECONDS:
            seconds.popleft()
        if not failed:
            return False
        calls, failures = sum(each[1] for each in seconds), sum(each[2] for each in seconds)
        return failures >= self._failures and failures * 2 >= calls

    def _of(self, backend: str) -> _Breaker:
        breaker = self._breakers.get(backend)
        if breaker is None:
            breaker = self._breakers[backend] = _Breaker()
        self._breakers.move_to_end(backend)
        if len(self._breakers) > _MOST:
            self._open.discard(self._breakers.popitem(last=False)[0])
        return breaker
