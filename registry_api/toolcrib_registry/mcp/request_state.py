"""The state that a tool wants back with the answer to its question, sealed.

It means something only to the same caller, for the same call, for ten minutes. (MCP 2026-07-28, Multi Round-Trip
Requests: servers must verify it.)
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Protocol

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.errors import InvalidArguments

SECONDS = 600
PURPOSE = b"toolcrib mcp request state 1"
MOST = 64 * 1024
"""Characters of a sealed state."""
_NONCE = 12


class StateRefused(InvalidArguments):
    """A state that was not sealed here for this call, or too long ago."""

    def __init__(self) -> None:
        super().__init__("requestState is not valid for this call, or has expired")


class StateTooLarge(Exception):
    """A tool's state that could not be given back."""


class Keys(Protocol):
    """Keys that all replicas have (`calls.assertions.keys`)."""

    def sealing(self, purpose: bytes) -> tuple[bytes, ...]:
        """The first seals, each opens."""
        ...


def about(caller: Identity, tool: PublishedTool, arguments: dict[str, Any]) -> bytes:
    """What a state belongs to: the caller, the tool and its route, and the arguments."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return orjson.dumps([caller.issuer, caller.subject, tool.tool_id, tool.route_digest, digest])


class SealedStates:
    """Seals and opens states.

    Args:
        keys: of all replicas.
        now: seconds since the epoch.
    """

    def __init__(self, keys: Keys, now: Callable[[], float]) -> None:
        self._keys, self._now = keys, now

    def sealed(self, state: str, belongs: bytes) -> str:
        """`state`, readable and changeable by replicas alone.

        Raises:
            StateTooLarge: it would be refused when it comes back.
        """
        nonce, text = os.urandom(_NONCE), orjson.dumps([self._now() + SECONDS, state])
        made = AESGCM(self._keys.sealing(PURPOSE)[0]).encrypt(nonce, text, belongs)
        sealed = urlsafe_b64encode(nonce + made).decode()
        if len(sealed) > MOST:
            raise StateTooLarge
        return sealed

    def opened(self, sealed: str, belongs: bytes) -> str:
        """What was sealed.

        Raises:
            StateRefused: it was not sealed here for this, or longer than ten minutes ago.
        """
        try:
            raw = urlsafe_b64decode(sealed) if len(sealed) <= MOST else b""
        except ValueError:
            raise StateRefused from None
        if urlsafe_b64encode(raw).decode() != sealed:  # Python's decoder ignores what follows the padding
            raise StateRefused
        for key in self._keys.sealing(PURPOSE):
            try:
                until, state = orjson.loads(AESGCM(key).decrypt(raw[:_NONCE], raw[_NONCE:], belongs))
            except (InvalidTag, ValueError):
                continue
            if until < self._now():
                break
            return str(state)
        raise StateRefused
