"""Whether to leave a failing part alone for a while, so that not every request waits for its deadline."""

from __future__ import annotations

from collections.abc import Callable

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 10.0


class Outage:
    """After a failure the part is left alone for half a second, after more of them for up to ten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._until = 0.0

    @property
    def lasts(self) -> bool:
        """True while the part should not be asked."""
        return self._seconds > 0.0 and self._clock() < self._until

    def failed(self) -> None:
        """It failed again."""
        if self.lasts:
            return  # another request of the same outage
        self._seconds = min(_LONGEST_SECONDS, self._seconds * 2 or _FIRST_SECONDS)
        self._until = self._clock() + self._seconds

    def over(self) -> None:
        """It answered."""
        self._seconds = 0.0
