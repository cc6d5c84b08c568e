"""The limit that every agent has on every replica: calls in progress by bindings without a `maxConcurrent`."""

from __future__ import annotations

from toolcrib.identity import Identity


class DefaultLimit:
    """Counts calls in progress, in memory. Used from one event loop only.

    Args:
        most: calls of one agent (issuer and subject) at one time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: dict[tuple[str, str], int] = {}

    def take(self, identity: Identity) -> bool:
        """Whether there is a place; it is held until `give`."""
        key = (identity.issuer, identity.subject)
        held = self._held.get(key, 0)
        if held >= self.most:
            return False
        self._held[key] = held + 1
        return True

    def give(self, identity: Identity) -> None:
        """Free a place."""
        key = (identity.issuer, identity.subject)
        if left := self._held[key] - 1:
            self._held[key] = left
        else:
            del self._held[key]
