"""Makes the assertion of one call, and the key set that backends verify it with."""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from toolcrib import entropy
from toolcrib.identity import Identity
from toolcrib_registry.calls.assertions.keys import AssertionKeys

TTL = 60
"""Seconds that an assertion is valid, at most."""
TYPE = "toolcrib-assertion+jwt"
ALGORITHM = "ES256"
_ECDSA = ec.ECDSA(hashes.SHA256())
_URL = bytes.maketrans(b"+/", b"-_")
JWKS_PATH = "/.well-known/jwks.json"


class Assertions:
    """Signs for the calls of one replica.

    It signs on the event loop: a signature takes less time than a thread's turn (`make bench ARGS=assertion`).

    Args:
        issuer: `iss`: the registry's public URL, the same for all replicas.
        keys: what to sign with.
        now: seconds since the epoch.
    """

    def __init__(self, issuer: str, keys: AssertionKeys, now: Callable[[], float]) -> None:
        self.issuer = issuer
        self.keys = keys
        self._now = now

    def made(
        self,
        tool_id: str,
        caller: Identity,
        method: str,
        target: str,
        body: bytes | None,
        fields: Mapping[str, str | None] | None = None,
    ) -> str:
        """One assertion, for one try of one call.

        Args:
            tool_id: `aud`.
            caller: `sub` and `sub_iss`; nothing else of the token goes to the backend.
            method: as sent.
            target: path and query, as sent.
            body: as sent.
            fields: the headers that arguments may fill, by lower-case names, and their values as sent; None: none was.
        """
        key, now = self.keys.signing(), int(self._now())
        claims: dict[str, object] = {
            "iss": self.issuer,
            "aud": tool_id,
            "sub": caller.subject,
            "sub_iss": caller.issuer,
            "iat": now,
            "exp": now + TTL,
            "jti": _base64url(entropy.piece()).decode(),
            "htm": method,
            "target_sha256": hashlib.sha256(target.encode()).hexdigest(),
            "content_sha256": hashlib.sha256(body or b"").hexdigest(),
        }
        if fields:
            named = sorted(fields)
            claims["fields"] = named
            claims["fields_sha256"] = _fields(named, fields)
        signed = _header(key.kid) + _base64url(orjson.dumps(claims))
        r, s = decode_dss_signature(key.private.sign(signed, _ECDSA))
        # RFC 7518 §3.4: both numbers, 32 bytes each, and no DER
        signature = _base64url(r.to_bytes(32) + s.to_bytes(32))
        return (signed + b"." + signature).decode()


def _fields(named: Sequence[str], values: Mapping[str, str | None]) -> str:
    lines = [f"{name}: {value}\n" for name in named if (value := values[name]) is not None]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _base64url(data: bytes) -> bytes:
    """Base64 for URLs without its padding (RFC 7515 §2)."""
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_URL)


@lru_cache(maxsize=8)
def _header(kid: str) -> bytes:
    """The first part of every assertion by this key, with its dot (RFC 7515)."""
    header = orjson.dumps({"alg": ALGORITHM, "kid": kid, "typ": TYPE})
    return _base64url(header) + b"."
