"""How long a change takes from being seen to being in effect on every replica."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from toolcrib.wire.publish import Revision


class Propagation:
    """Measures revisions: from the first change that one covers to its confirmation by all replicas.

    Args:
        observe: told the seconds of each revision, once.
        clock: monotonic seconds.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._since: float | None = None
        self._pending: deque[tuple[Revision, float]] = deque(maxlen=10_000)

    def noticed(self) -> None:
        """A change was recorded; called from any thread."""
        if self._since is None:
            self._since = self._clock()

    @property
    def unpublished(self) -> float:
        """Seconds for which the oldest change has not been taken up; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def turned(self, revision: Revision | None) -> None:
        """What was noticed is in `revision`; None: nothing of it had to be published."""
        since, self._since = self._since, None
        if revision is not None and since is not None:
            self._pending.append((revision, since))

    def progressed(self, confirmed_by_all: Callable[[Revision], bool]) -> None:
        """Observe every revision that all replicas have by now."""
        while self._pending and confirmed_by_all(self._pending[0][0]):
            _, since = self._pending.popleft()
            self._observe(self._clock() - since)
