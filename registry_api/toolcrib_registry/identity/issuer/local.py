"""The local issuer: it stands in for the cluster's, with a key pair of its own folder (DESIGN §3, Issuers)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from toolcrib import names
from toolcrib.identity import Issuer, KeySet, ScopesPolicy
from toolcrib_registry.identity.issuer import private_files
from toolcrib_registry.identity.issuer.clients import ClientSecrets
from toolcrib_registry.identity.issuer.errors import KeyDamaged, NotMintable

ISSUER = "https://toolcrib.local"
AUDIENCE = "toolcrib"
ALGORITHM = "ES256"
KEY_FILE = "issuer.pem"
MAX_TTL = 366 * 86_400.0
MAX_SCOPES = 64
TTL = 3_600
"""Seconds that a client's token is valid."""
_BARE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}")


class LocalIssuer:
    """Mints and proves identities of one folder. Make it with `open`."""

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, clients: ClientSecrets, clock: Callable[[], float]
    ) -> None:
        self._key = key
        self._clients = clients
        self._clock = clock
        self._kid = _thumbprint(key.public_key())

    @classmethod
    def open(cls, folder: Path, clock: Callable[[], float] = time.time) -> LocalIssuer:
        """The issuer of this folder; its key is generated once.

        Args:
            folder: made 0700 if need be.
            clock: seconds since the epoch.

        Raises:
            UnsafePermissions: the folder or the key can be read by others.
            KeyDamaged: the key file holds no key of ours.
        """
        private_files.private_folder(folder)
        path = folder / KEY_FILE
        content = private_files.read(path)
        if content is None:
            private_files.write(path, _new_key(), keep=True)
            content = private_files.read(path)
        try:
            key = serialization.load_pem_private_key(content or b"", password=None)
        except (ValueError, TypeError) as error:
            raise KeyDamaged(
                f"{path} is not a key; remove it to create a new one (existing tokens become invalid)"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise KeyDamaged(
                f"{path} is not a P-256 key; remove it to create a new one (existing tokens become invalid)"
            )
        return cls(key, ClientSecrets(folder), clock)

    @property
    def issuer(self) -> Issuer:
        """How the registry trusts it."""
        return Issuer(
            issuer=ISSUER,
            audience=(AUDIENCE,),
            algorithms=(ALGORITHM,),
            scopes=ScopesPolicy.LOCAL,
            cluster=True,
        )

    @property
    def keyset(self) -> KeySet:
        """Its public key, as `identity.verify` and `KeyStore(fixed=…)` take it."""
        return {ISSUER: {self._kid: self._key.public_key()}}

    def mint(
        self,
        namespace: str | None,
        name: str,
        scopes: str | None = None,
        ttl: float = 3_600.0,
        *,
        audience: str = AUDIENCE,
        client: str | None = None,
    ) -> str:
        """A token, valid from now for `ttl` seconds.

        Args:
            namespace: of the service account `name`; None only with `scopes`, and then `name` is the subject.
            name: of the service account, or any name.
            scopes: space-separated; None: bindings decide; an empty string sees nothing.
            ttl: seconds, at most 366 days.
            audience: other than the registry's own only for its admin channel.
            client: the client that asked for it at the token endpoint; its `scopes` then only narrow its bindings.

        Raises:
            NotMintable: a name or scope that is none, or a ttl out of bounds.
        """
        now = self._clock()
        if not 0 < ttl <= MAX_TTL:
            raise NotMintable("ttl must be more than 0 and at most 366 days")
        claims: dict[str, object] = {
            "iss": ISSUER,
            "sub": _subject(namespace, name, scopes),
            "aud": audience,
            "iat": int(now),
            "nbf": int(now),
            "exp": now + ttl if ttl < 1 else int(now + ttl),
            "jti": secrets.token_urlsafe(16),
        }
        if client is not None:
            claims["client_id"] = client
        if scopes is not None:
            claims["scope"] = " ".join(_scopes(scopes))
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self._kid})

    def client_secret(self, namespace: str, name: str) -> str:
        """The secret of the client `namespace/name` for the token endpoint, generated at first use.

        Raises:
            NotMintable: not the name of a service account.
            UnsafePermissions: the file can be read by others.
        """
        _subject(namespace, name, None)
        return self._clients.secret(f"{namespace}/{name}")

    def check_secret(self, client_id: str, secret: str) -> tuple[str, str] | None:
        """(namespace, name) of the client, if that is its secret."""
        namespace, _, name = client_id.partition("/")
        return (namespace, name) if self._clients.matches(client_id, secret) else None


@dataclass(frozen=True, slots=True)
class ClientTokens:
    """What clients get tokens by, at `POST /oauth/token`.

    Attributes:
        issuer: mints the tokens and knows the clients' secrets.
        granted: (namespace, name) → the scopes that bindings grant this service account now.
        ttl: seconds a token is valid.
    """

    issuer: LocalIssuer
    granted: Callable[[str, str], set[str]]
    ttl: int = TTL


def _subject(namespace: str | None, name: str, scopes: str | None) -> str:
    if namespace is None:
        if scopes is None:
            raise NotMintable(
                "a name without a namespace needs --scopes: bindings grant to namespace/name only"
            )
        if not _BARE_NAME.fullmatch(name):
            raise NotMintable(f"{name!r} is not a valid name: use letters, digits and _ . @ -")
        return name
    if not re.fullmatch(names.DNS_LABEL[1:-1], namespace):
        raise NotMintable(f"{namespace!r} is not a valid namespace: use lower-case letters, digits and -")
    if len(name) > 253 or not re.fullmatch(names.DNS_SUBDOMAIN[1:-1], name):
        raise NotMintable(
            f"{name!r} is not a valid name of a service account: use lower-case letters, digits, - and ."
        )
    return f"system:serviceaccount:{namespace}:{name}"


def _scopes(text: str) -> list[str]:
    scopes = list(dict.fromkeys(text.split()))
    wrong = [s for s in scopes if not re.fullmatch(names.SCOPE[1:-1], s)]
    if wrong or len(scopes) > MAX_SCOPES:
        raise NotMintable(
            f"{wrong[0]!r} is not a valid scope: write it as in calculator:use"
            if wrong
            else f"more than {MAX_SCOPES} scopes"
        )
    return scopes


def _new_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _thumbprint(key: ec.EllipticCurvePublicKey) -> str:
    """RFC 7638: the digest of the key's required members in their canonical form."""
    numbers = key.public_numbers()

    def coordinate(value: int) -> str:
        return base64.urlsafe_b64encode(value.to_bytes(32, "big")).rstrip(b"=").decode()

    members = {"crv": "P-256", "kty": "EC", "x": coordinate(numbers.x), "y": coordinate(numbers.y)}
    canonical = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
