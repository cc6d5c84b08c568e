"""Places in compartments, each within another, so that nobody takes all: calls, followed resources, connections.

A compartment has a bound, and never more than is still free of the one around it. So whoever takes all there is gets
half, two get a third each, and the next one finds a place.
"""

from __future__ import annotations

from functools import lru_cache

Path = tuple[str, ...]
"""The compartments that a place is taken of, the outermost first; that of all has no name."""


class Shares:
    """Counts places. `held` are those in use, by compartment; none that is empty.

    Args:
        bounds: places of all, and of one compartment of each level within.
    """

    def __init__(self, *bounds: int) -> None:
        self._bounds = bounds
        self.held: dict[Path, int] = {}

    def full(self, path: Path) -> int | None:
        """The level whose compartment has no place left, 0 for all together; None: there is a place."""
        free = self._bounds[0]
        for level, compartment in enumerate(_compartments(path)):
            held, most = self.held.get(compartment, 0), min(self._bounds[level], free)
            if held >= most:
                return level
            free = self._bounds[level] - held
        return None

    def take(self, path: Path) -> None:
        """Take a place, also where there is none: ask `full` first."""
        for compartment in _compartments(path):
            self.held[compartment] = self.held.get(compartment, 0) + 1

    def leave(self, path: Path) -> None:
        """Give a place back."""
        for compartment in _compartments(path):
            if left := self.held[compartment] - 1:
                self.held[compartment] = left
            else:
                del self.held[compartment]


@lru_cache(maxsize=1_024)
def _compartments(path: Path) -> tuple[Path, ...]:
    return tuple(path[:length] for length in range(len(path) + 1))
