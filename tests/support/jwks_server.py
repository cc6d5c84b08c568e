"""An issuer's key pairs, and what serves their public halves: `evil_upstream.upstream(KeyServer(Signer("k1")))`."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from evil_upstream import Request, response


class Signer:
    """A key pair, and tokens by it."""

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key as an entry of a key set."""
        public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**public, "kid": self.kid, "use": "sig", "alg": "ES256"}

    def token(self, iss: str, *, kid: str | None = None, **claims: Any) -> str:
        """A good token for the audience toolcrib; `kid`: under another key's id."""
        good = {"iss": iss, "aud": "toolcrib", "sub": "me", "exp": time.time() + 60, "scope": "a"}
        return jwt.encode({**good, **claims}, self.key, algorithm="ES256", headers={"kid": kid or self.kid})


class KeyServer:
    """Serves whatever `keys` holds now, or is down; `answer` (bytes of a whole response) goes before both."""

    def __init__(self, *signers: Signer) -> None:
        self.keys: list[Any] = [s.jwk for s in signers]
        self.down = False
        self.answer: bytes | None = None

    def __call__(self, request: Request) -> bytes:
        """The response to any request."""
        if self.answer is not None:
            return self.answer
        return b"" if self.down else response(json.dumps({"keys": self.keys}).encode())
