"""Whether to leave a failing part alone for a while, so that not every request waits for its deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolcrib.telemetry.logs import Trouble

log = logging.getLogger(__name__)
_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 10.0
_TRIAL_SECONDS = 3.0
"""After which another one may try: the one that tried may be gone."""


class Outage:
    """Leaves a part alone after a failure: for half a second, after more of them for up to ten.

    Then one caller tries it; the others go on without it until that one had an answer, so that a part which hangs costs one
    of them its deadline and not each.
    """

    def __init__(self, clock: Callable[[], float], part: str = "a part of search") -> None:
        """`part` is what the log calls it."""
        self._clock = clock
        self._part = part
        self._trouble = Trouble(log)
        self._seconds = 0.0
        self._until = 0.0
        self._trying = False

    @property
    def lasts(self) -> bool:
        """True while the part is left alone."""
        return self._seconds > 0.0 and self._clock() < self._until

    def keeps_away(self) -> bool:
        """Whether the caller should do without the part; False makes it the one that tries, if there is an outage."""
        if self.lasts:
            return True
        if self._seconds > 0.0:
            self._trying = True
            self._until = self._clock() + _TRIAL_SECONDS
        return False

    def failed(self, error: Exception | None = None) -> None:
        """It failed again."""
        why = type(error).__name__ if error is None or not str(error) else str(error)[:300]
        self._trouble.failed("%s is unavailable (%s): searching without it", self._part, why)
        if self.lasts and not self._trying:
            return  # another request of the same outage
        self._trying = False
        self._seconds = min(_LONGEST_SECONDS, self._seconds * 2 or _FIRST_SECONDS)
        self._until = self._clock() + self._seconds

    def over(self) -> None:
        """It answered."""
        self._seconds = 0.0
        self._trying = False
        self._trouble.over("%s is available again", self._part)
