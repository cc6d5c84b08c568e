"""Long texts by which results are remembered without holding the texts."""

from __future__ import annotations

import hashlib


class Remembered:
    """A text that is known by its digest; `forget` it when the result is there."""

    __slots__ = ("_digest", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._digest = hashlib.sha256(text).digest()

    def forget(self) -> None:
        """Keep the digest alone."""
        self.text = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remembered) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)
