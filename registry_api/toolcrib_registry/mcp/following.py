"""The resources that a client follows, and those of which it has to be told that they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from toolcrib_registry.policy.state import CallerView

MOST = 64
"""Resources that one stream or session follows."""
UNREAD_SECONDS = 300.0
"""For which a session's resources are followed without a stream that tells of them."""


class Followed:
    """Used from one event loop only. `woken` is set when there is something to tell."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self._ends: dict[str, tuple[str, Callable[[], None]]] = {}
        self._updated: dict[str, None] = {}
        self._streams = 0
        self._lapses: asyncio.TimerHandle | None = None

    def __contains__(self, uri: str) -> bool:
        return uri in self._ends

    def __iter__(self) -> Iterator[str]:
        return iter(self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def streaming(self) -> bool:
        """Whether a stream tells of them."""
        return self._streams > 0

    def add(self, uri: str, part_id: str, end: Callable[[], None]) -> None:
        """Follow a resource of what stands for its server's resources, until `end` is called."""
        self.drop(uri)
        self._ends[uri] = part_id, end
        self._lapse_later()

    def drop(self, uri: str) -> None:
        """Follow it no more."""
        self._updated.pop(uri, None)
        if (found := self._ends.pop(uri, None)) is not None:
            found[1]()

    def note(self, uri: str) -> None:
        """It has changed."""
        if uri in self._ends:
            self._updated[uri] = None
            self.woken.set()

    def updated(self, caller_view: CallerView) -> tuple[str, ...]:
        """What the caller, who has this view, is to be told of; what is not visible any more is not followed any more."""
        for uri, (part_id, _) in list(self._ends.items()):
            if part_id not in caller_view.view.parts:
                self.drop(uri)
        return tuple(self._updated)

    def told(self, uris: Iterable[str]) -> None:
        """The caller was told of these."""
        for uri in uris:
            self._updated.pop(uri, None)

    def opened(self) -> None:
        """A stream tells of them from now on."""
        self._streams += 1
        if self._lapses is not None:
            self._lapses.cancel()

    def closed(self) -> None:
        """A stream has ended."""
        self._streams -= 1
        self._lapse_later()

    def close(self) -> None:
        """Follow nothing any more."""
        for uri in list(self._ends):
            self.drop(uri)

    def _lapse_later(self) -> None:
        if self._lapses is not None:
            self._lapses.cancel()
        if not self.streaming and self._ends:
            self._lapses = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self.close)
