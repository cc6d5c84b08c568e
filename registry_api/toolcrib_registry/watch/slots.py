"""How many watch streams there are, together and of one subject.

A place is taken in the moment in which a stream begins: requests that come together cannot exceed a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from toolcrib.identity import Identity
from toolcrib_registry.metrics.recorder import Metrics


class TooManyStreams(Exception):
    """No stream can be opened now: the subject's own or all together have reached their bound."""


class WatchSlots:
    """The open watch streams. Used from one event loop only.

    Args:
        metrics: shows how many there are.
        most: at one time.
        each: of one subject at one time, so that nobody takes the others' places.
    """

    def __init__(self, metrics: Metrics, *, most: int, each: int) -> None:
        self._metrics, self._most, self._each = metrics, most, each
        self._of: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, identity: Identity) -> Iterator[None]:
        """One stream's time.

        Raises:
            TooManyStreams: nothing is held.
        """
        subject = (identity.issuer, identity.subject)
        if self._of.get(subject, 0) >= self._each or self._of.total() >= self._most:
            raise TooManyStreams
        self._of[subject] += 1
        self._metrics.stream_opened()
        try:
            yield
        finally:
            self._metrics.stream_closed()
            self._of[subject] -= 1
            if not self._of[subject]:
                del self._of[subject]
