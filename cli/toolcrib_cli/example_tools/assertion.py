"""Verifies the call assertion of a Toolcrib registry. Copy this file into your tool; it needs `pyjwt[crypto]>=2.14`."""

import hashlib
import threading
import time
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jwt

LEEWAY = 5  # seconds by which clocks may differ
CLAIMS = ["iss", "aud", "sub", "sub_iss", "iat", "exp", "jti", "htm", "target_sha256", "content_sha256"]


class CallAssertions:
    """`tools` are the ids of the Tools that this program executes, such as `team-a/rates` or `team-a/*`."""

    def __init__(self, issuer: str, keys: jwt.PyJWKClient, tools: Collection[str]) -> None:
        self._issuer, self._keys, self._tools = issuer, keys, tools
        self._seen: dict[str, float] = {}  # the `jti` of calls to when they end, the oldest first
        self._lock = threading.Lock()

    def verify(
        self, assertion: str, method: str, target: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Who calls (`sub` of the issuer `sub_iss`). jwt.PyJWTError: refuse the call with 401.

        `headers` by lower-case names, needed where arguments fill some: read only those that the claim `fields` names.
        """
        key = self._keys.get_signing_key_from_jwt(assertion)
        options: Any = {"require": CLAIMS, "verify_aud": False}
        claims = jwt.decode(assertion, key, ["ES256"], options, issuer=self._issuer, leeway=LEEWAY)
        if not any(fnmatchcase(str(claims["aud"]), tool) for tool in self._tools):
            raise jwt.InvalidAudienceError("made for another tool")
        sent = (method, _sha256(target.encode()), _sha256(body))
        if sent != (claims["htm"], claims["target_sha256"], claims["content_sha256"]):
            raise jwt.InvalidTokenError("made for another request")
        named, got = claims.get("fields", []), headers or {}
        lines = "".join(f"{name}: {got[name]}\n" for name in named if name in got)
        if named and _sha256(lines.encode()) != claims.get("fields_sha256"):
            raise jwt.InvalidTokenError("made for other header fields")
        with self._lock:
            now = time.time()
            while self._seen and (first := next(iter(self._seen))) and self._seen[first] < now:
                del self._seen[first]
            if claims["jti"] in self._seen:
                raise jwt.InvalidTokenError("used before")
            self._seen[claims["jti"]] = claims["exp"] + LEEWAY
        return claims


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
