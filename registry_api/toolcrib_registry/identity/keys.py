"""The port of issuers' public keys: `key_store` fetches them; the local mode and tests hand them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolcrib.identity import KeySet


class Keys(Protocol):
    """The public keys of all issuers."""

    @property
    def keys(self) -> KeySet:
        """What is known now; without the issuers that have never been reached."""
        ...

    @property
    def version(self) -> int:
        """Grows whenever `keys` changes."""
        ...

    def on_change(self, told: Callable[[], None]) -> None:
        """Have `told` called after every growth of `version`, on the event loop."""
        ...

    async def refresh(self, issuer: str) -> bool:
        """Ask `issuer` for its keys, at most once in 30 s; whether anything changed. Never raises."""
        ...
