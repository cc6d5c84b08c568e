"""When a server is asked again: pure."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib.wire.imports import ServerOutcome

SOONEST = 5.0
"""Seconds for which a list is kept at least, whatever the server says of it."""
LOCAL = 1.0
"""Seconds between two looks at what this replica itself lacks or refuses: no server is asked."""
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
_ALLOWANCE = 20.0
_REFILL = 0.5
_BYTES_A_LOOK = 256 << 10
_SETTLED = (ServerOutcome.TRANSPORT_UNSUPPORTED, ServerOutcome.TOO_LARGE)


def after_list(every: float, ttl_ms: int | None) -> float:
    """Seconds to the next look.

    A list that is said to last shorter than `every` is read again sooner; none lasts longer, since a server could hide
    its changes otherwise.
    """
    if not ttl_ms:  # 0: it should not be kept at all
        return every
    return min(every, max(ttl_ms / 1000, SOONEST))


def after_failure(
    outcome: ServerOutcome, every: float, failures: int, retry_after: int | None, dice: float
) -> float:
    """Seconds to the next look after `failures` in a row.

    Args:
        outcome: of the last.
        every: seconds between two looks.
        failures: in a row, this one included.
        retry_after: what the server asks for: it is never asked sooner.
        dice: from 0 to 1.
    """
    if not outcome.asked:
        return LOCAL
    wait = (
        every if outcome in _SETTLED else min(every, LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 20))
    )
    return max(wait * (1 + 0.1 * dice), retry_after or 0)


class Allowance:
    """How often one server's notices may cause a look: some at once, then one in a while, large lists less often.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left, self._at = _ALLOWANCE, clock()

    def wait(self) -> float:
        """Seconds until a look is allowed; 0: now."""
        self._refill()
        return max(0.0, (1.0 - self._left) / _REFILL)

    def spend(self, size: int) -> None:
        """A look because of a notice brought `size` bytes."""
        self._refill()
        self._left -= 1.0 + size / _BYTES_A_LOOK

    def _refill(self) -> None:
        now = self._clock()
        self._left, self._at = min(_ALLOWANCE, self._left + (now - self._at) * _REFILL), now
