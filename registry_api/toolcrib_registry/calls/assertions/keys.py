"""The keys that call assertions are signed with: a folder of two, read again when a file changes.

`signing.pem` signs, `previous.pem` (optional) signed before it; both are published. A replica signs with a new key only
once its file is two minutes old: by then every replica has it and publishes it, so a rotation refuses no call.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jwt.algorithms import ECAlgorithm

from toolcrib_registry.identity.issuer import private_files

log = logging.getLogger(__name__)

SIGNING, PREVIOUS = "signing.pem", "previous.pem"
SETTLE_SECONDS = 120.0
"""Longer than a kubelet takes to bring a changed Secret to its pods (37 to 85 s measured)."""
LOOK_SECONDS = 10.0
MAX_BYTES = 16 * 1024
_HOW = "create one with: openssl ecparam -name prime256v1 -genkey -noout -out signing.pem"


class AssertionKeyError(ValueError):
    """A key file cannot be used; the message says why and shows nothing of it."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key pair. `since` is when its file came, in seconds since the epoch."""

    kid: str
    private: ec.EllipticCurvePrivateKey = field(repr=False)
    jwk: dict[str, str] = field(repr=False)
    since: float = 0.0

    def derived(self, purpose: bytes) -> bytes:
        """A key of 32 bytes for another purpose (RFC 5869)."""
        secret = self.private.private_numbers().private_value.to_bytes(32)
        return HKDF(hashes.SHA256(), 32, salt=None, info=purpose).derive(secret)


@dataclass(frozen=True, slots=True)
class _Pair:
    signing: SigningKey
    previous: SigningKey | None
    files: tuple[Any, ...]


class AssertionKeys:
    """The keys of one replica.

    Args:
        folder: where they are; None: one key of this process's own, which no other replica publishes.
        now: seconds since the epoch.
        elapsed: monotonic seconds.

    Raises:
        AssertionKeyError: `signing.pem` cannot be used.
    """

    def __init__(self, folder: Path | None, now: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._folder, self._now, self._elapsed = folder, now, elapsed
        if folder is None:
            self._pair = _Pair(_key(ec.generate_private_key(ec.SECP256R1()), 0.0), None, ())
        else:
            self._pair = _read(folder)
        self._looked, self._refused = elapsed(), self._pair.files

    def signing(self) -> SigningKey:
        """The key to sign with now."""
        pair = self._current()
        settled = self._now() - pair.signing.since >= SETTLE_SECONDS
        return pair.signing if pair.previous is None or settled else pair.previous

    def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The public halves, as a JSON Web Key Set."""
        pair = self._current()
        return {"keys": [key.jwk for key in (pair.signing, pair.previous) if key is not None]}

    def sealing(self, purpose: bytes) -> tuple[bytes, ...]:
        """Keys of 32 bytes with which replicas seal what comes back to any of them; the first seals, each opens."""
        pair, signing = self._current(), self.signing()
        every = [
            signing,
            *(key for key in (pair.signing, pair.previous) if key is not None and key is not signing),
        ]
        return tuple(key.derived(purpose) for key in every)

    def _current(self) -> _Pair:
        now = self._elapsed()
        if self._folder is not None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look(self._folder)
        return self._pair

    def _look(self, folder: Path) -> None:
        """Take changed files; where they cannot be used the former keys go on."""
        files = _files(folder)
        if files in (self._pair.files, self._refused):
            return
        try:
            self._pair = _read(folder)
        except AssertionKeyError as error:
            self._refused = files
            log.error("%s; keeping the previous keys", error)
        else:
            log.info("assertion keys changed: %s", ", ".join(k["kid"] for k in self.jwks()["keys"]))


def make_private(folder: Path) -> Path:
    """The folder (0700) of a local mode with a key (0600) in it, generated once.

    Raises:
        UnsafePermissions: others can read them.
    """
    private_files.private_folder(folder)
    path = folder / SIGNING
    if private_files.read(path) is None:
        made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        private_files.write(path, made, keep=True)
    private_files.read(folder / PREVIOUS)
    return folder


def _files(folder: Path) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in (SIGNING, PREVIOUS):
        try:
            state = os.stat(folder / name)
        except OSError:
            found.append(None)
        else:
            found.append((state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)


def _read(folder: Path) -> _Pair:
    files = _files(folder)
    signing = _load(folder / SIGNING)
    if signing is None:
        raise AssertionKeyError(f"assertion.keys: {folder / SIGNING} does not exist; {_HOW}")
    previous = _load(folder / PREVIOUS)
    if previous is not None and previous.kid == signing.kid:
        previous = None
    return _Pair(signing, previous, files)


def _load(path: Path) -> SigningKey | None:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            # a Secret's volume gives it to the pod's group; the world is nobody's
            if stat.S_IMODE(found.st_mode) & 0o007:
                raise AssertionKeyError(
                    f"assertion.keys: {path} is readable by everyone; run: chmod 600 {path}"
                )
            content = file.read(MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AssertionKeyError(f"assertion.keys: {path} cannot be read: {error.strerror}") from error
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AssertionKeyError(f"assertion.keys: {path} holds no P-256 private key in PEM; {_HOW}")
    return _key(key, found.st_mtime)


def _key(private: ec.EllipticCurvePrivateKey, since: float) -> SigningKey:
    members = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    required = {name: str(members[name]) for name in ("crv", "kty", "x", "y")}
    # RFC 7638: the digest of the key's required members in their canonical form
    canonical = json.dumps(required, separators=(",", ":"), sort_keys=True).encode()
    kid = urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
    return SigningKey(kid, private, {**required, "use": "sig", "alg": "ES256", "kid": kid}, since)
