"""Memory for the lists of all servers together."""

from __future__ import annotations

from toolcrib_registry.importing.lists import HeldList

MOST = 256 << 20
"""Bytes, as they are kept."""


class Room:
    """Counts what is kept.

    Args:
        most: bytes.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self.used = most, 0

    def replace(self, before: HeldList | None, now: HeldList) -> bool:
        """Keep `now` in the place of `before`; False: there is no room, and `before` is still kept."""
        used = self.used + len(now.packed) - (0 if before is None else len(before.packed))
        if used > self._most:
            return False
        self.used = used
        return True

    def give_back(self, held: HeldList | None) -> None:
        """Give back the room of a list that is no longer kept."""
        self.used -= 0 if held is None else len(held.packed)
