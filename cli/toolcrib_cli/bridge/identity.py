"""Where the bridge's bearer tokens come from: minted in the local mode, a file, or a variable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Tokens(Protocol):
    """A source of tokens."""

    def current(self) -> str:
        """The token to use now.

        Raises:
            CliError: there is none now.
        """

    def discard(self) -> None:
        """The registry did not accept the current token."""


class Minted:
    """Tokens of the local mode's issuer: a new one well before the last one ends."""

    def __init__(
        self, mint: Callable[[float], str], *, ttl: float = 3_600.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._mint = mint
        self._ttl = ttl
        self._clock = clock
        self._held = ""
        self._since = self._until = 0.0

    def current(self) -> str:
        """A token with at least a fifth of its time left."""
        now = self._clock()
        # a clock that was set back makes the held token one of the future
        if not self._since <= now < self._until:
            self._held = self._mint(self._ttl)
            self._since, self._until = now, now + self._ttl * 0.8
        return self._held

    def discard(self) -> None:
        """Mint another next time: the issuer's key may have changed."""
        self._until = 0.0


class Read:
    """Tokens that somebody else provides: read again for each request."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def current(self) -> str:
        """What is there now."""
        return self._read()

    def discard(self) -> None:
        """Nothing is kept."""
