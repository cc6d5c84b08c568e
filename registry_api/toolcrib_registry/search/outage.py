"""Whether to leave a failing part alone for a while, so that not every request waits for its deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolcrib.logs import Trouble

log = logging.getLogger(__name__)
_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 10.0


class Outage:
    """After a failure the part is left alone for half a second, after more of them for up to ten."""

    def __init__(self, clock: Callable[[], float], part: str = "a part of search") -> None:
        """`part` is what the log calls it."""
        self._clock = clock
        self._part = part
        self._trouble = Trouble(log)
        self._seconds = 0.0
        self._until = 0.0

    @property
    def lasts(self) -> bool:
        """True while the part should not be asked."""
        return self._seconds > 0.0 and self._clock() < self._until

    def failed(self, error: Exception | None = None) -> None:
        """It failed again."""
        why = type(error).__name__ if error is None or not str(error) else str(error)[:300]
        self._trouble.failed("%s does not answer (%s): search goes on without it", self._part, why)
        if self.lasts:
            return  # another request of the same outage
        self._seconds = min(_LONGEST_SECONDS, self._seconds * 2 or _FIRST_SECONDS)
        self._until = self._clock() + self._seconds

    def over(self) -> None:
        """It answered."""
        self._seconds = 0.0
        self._trouble.over("%s answers again", self._part)
