"""Makes the assertion of one call, and the key set that backends verify it with."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
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

    def made(self, tool_id: str, caller: Identity, method: str, target: str, body: bytes | None) -> str:
        """One assertion, for one try of one call.

        Args:
            tool_id: `aud`.
            caller: `sub` and `sub_iss`; nothing else of the token goes to the backend.
            method: as sent.
            target: path and query, as sent.
            body: as sent.
        """
        key, now = self.keys.signing(), int(self._now())
        claims = {
            "iss": self.issuer,
            "aud": tool_id,
            "sub": caller.subject,
            "sub_iss": caller.issuer,
            "iat": now,
            "exp": now + TTL,
            "jti": urlsafe_b64encode(entropy.piece()).rstrip(b"=").decode(),
            "htm": method,
            "target_sha256": hashlib.sha256(target.encode()).hexdigest(),
            "content_sha256": hashlib.sha256(body or b"").hexdigest(),
        }
        signed = _header(key.kid) + urlsafe_b64encode(orjson.dumps(claims)).rstrip(b"=")
        r, s = decode_dss_signature(key.private.sign(signed, _ECDSA))
        # RFC 7518 §3.4: both numbers, 32 bytes each, and no DER
        signature = urlsafe_b64encode(r.to_bytes(32) + s.to_bytes(32)).rstrip(b"=")
        return (signed + b"." + signature).decode()


@lru_cache(maxsize=8)
def _header(kid: str) -> bytes:
    """The first part of every assertion by this key, with its dot (RFC 7515)."""
    header = orjson.dumps({"alg": ALGORITHM, "kid": kid, "typ": TYPE})
    return urlsafe_b64encode(header).rstrip(b"=") + b"."
