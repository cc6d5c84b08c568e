"""When a server that has stopped telling of changes is asked again to do so: pure."""

from __future__ import annotations

LASTING = 30.0
"""Seconds after which a stream that ends counts as one that worked."""


def until_heard(failures: int, *, refused: bool, too_fast: bool) -> float:
    """Seconds until a server is asked again to tell of changes.

    Args:
        failures: in a row.
        refused: it offers none.
        too_fast: it told of too many.
    """
    if refused:
        return 600.0
    first = 15.0 if too_fast else 0.5
    return min(first * 2.0 ** min(failures, 20), 600.0 if too_fast else 60.0)
