"""Keeps an agent's tools current in the background: a live stream says when to ask, and asking says what.

The stream is a hint, never the truth: each event only causes a discovery (`GET /` with its ETag), so what an agent
has is always one whole answer of the registry. Two threads: one reads the stream and marks, one discovers; a burst
of events costs one discovery. Without a stream the second polls.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolcrib_runner.errors import RunnerError
from toolcrib_runner.ports import Registry

log = logging.getLogger(__name__)

CLOSE_WITHIN = 6.0
"""Seconds that `close` waits for the threads."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a follower asks, in seconds."""

    first_retry: float = 0.2
    """After the first failure; doubled with each further one."""
    longest_retry: float = 10.0
    """The ceiling of the doubling: a registry that comes back is noticed within about this."""
    poll: float = 5.0
    """Between discoveries while there is no live stream."""
    settle: float = 1.0
    """After an event, ask once more: with several replicas, the one that answered may have lagged behind."""
    safety: float = 60.0
    """Between discoveries while the stream is open and silent."""

    def retry(self, failures: int, chance: float) -> float:
        """How long to wait after so many failures in a row; `chance` in [0, 1) spreads many agents out."""
        ceiling = min(self.longest_retry, self.first_retry * float(1 << min(failures - 1, 16)))
        return ceiling * (0.5 + chance / 2)


class Follower:
    """Runs `refresh` when it may be worth it, until closed. `refresh` raises a RunnerError where it fails."""

    def __init__(
        self,
        registry: Registry,
        refresh: Callable[[], object],
        *,
        name: str,
        connected: Callable[[bool], object] = lambda _: None,
        pace: Pace = Pace(),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._refresh = refresh
        self._connected = connected
        self._pace = pace
        self._chance = chance
        self._stopped = threading.Event()
        self._marked = threading.Event()
        self._live = False
        self._threads = [
            threading.Thread(target=self._read, name=f"toolcrib-watch-{name}", daemon=True),
            threading.Thread(target=self._discover, name=f"toolcrib-discover-{name}", daemon=True),
        ]

    def start(self, *, discovered: bool) -> None:
        """Begin; `discovered` says whether there has been a successful discovery already."""
        if not discovered:
            self._marked.set()
        for thread in self._threads:
            thread.start()

    def nudge(self) -> None:
        """Discover soon: something else than the stream hints at a change."""
        self._marked.set()

    def close(self) -> None:
        """Stop both threads and wait until they have ended."""
        self._stopped.set()
        self._marked.set()
        self._registry.interrupt()
        deadline = time.monotonic() + CLOSE_WITHIN
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                # Bounded: a thread that waits for a silent registry's answer ends with its timeout, as a daemon.
                thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self) -> None:
        """Follow the stream; reconnect for ever."""
        failures = 0
        while not self._stopped.is_set():
            try:
                with self._registry.watch() as events:
                    self._set_live(True)
                    for _ in events:
                        failures = 0
                        self._marked.set()
                failures += 1
            except RunnerError as error:
                failures += 1
                log.debug("no live stream: %s", error)
            except Exception:
                failures += 1
                log.exception("the live stream failed in an unexpected way")
            finally:
                self._set_live(False)
            self._stopped.wait(self._pace.retry(failures, self._chance()))

    def _set_live(self, live: bool) -> None:
        if live != self._live:
            self._live = live
            self._connected(live)
            # What changed while there was no stream is found by asking; and polling starts or ends here.
            self._marked.set()

    def _discover(self) -> None:
        """Discover when marked, again a moment later, and now and then in any case."""
        failures, again = 0, 0.0
        wait = 0.0 if self._marked.is_set() else self._pace.poll
        while not self._stopped.is_set():
            marked = self._marked.wait(wait)
            if self._stopped.is_set():
                return
            self._marked.clear()
            try:
                self._refresh()
                failures = 0
            except RunnerError:
                failures += 1
            except Exception:
                failures += 1
                log.exception("a discovery failed in an unexpected way")
            now = time.monotonic()
            if failures:
                wait = self._pace.retry(failures, self._chance())
                # While the registry is away, marks of a stream that comes and goes must not defeat the backoff.
                self._stopped.wait(wait)
                self._marked.set()
                continue
            wait = self._pace.safety if self._live else self._pace.poll * (0.75 + self._chance() / 2)
            if marked:
                again = now + self._pace.settle
            if again > now:
                wait = min(wait, again - now)
