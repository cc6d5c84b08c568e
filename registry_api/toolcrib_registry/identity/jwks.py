"""JSON Web Key Sets (RFC 7517) → the public keys that may verify an issuer's tokens. Pure."""

from __future__ import annotations

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from toolcrib.identity import Issuer

MAX_KEYS = 100
MAX_KID = 256
MIN_RSA_BITS = 2_048
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Public members by key type (RFC 7518 §6, RFC 8037). Symmetric keys (`oct`) are not in it, on purpose."""
_ALGORITHMS = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}


class JwksInvalid(Exception):
    """The document is no key set; its content is not repeated."""


def public_keys(document: Any, issuer: Issuer) -> tuple[dict[str, Any], dict[str, Any]]:
    """(key id → public key as PyJWT takes it, key id → the members it was made of).

    Encryption keys, symmetric keys, private keys, unknown types, weak RSA keys and keys for algorithms that the
    issuer's configuration does not accept are left out. A key without an id has the id "".

    Raises:
        JwksInvalid: no key set, or one of more than 100 keys.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise JwksInvalid("the document is not a JSON Web Key Set")
    if len(listed) > MAX_KEYS:
        raise JwksInvalid(f"the key set holds more than {MAX_KEYS} keys")
    keys: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    for entry in listed:
        source = _usable(entry, issuer)
        kid = entry.get("kid", "") if isinstance(entry, dict) else None
        if source is None or not isinstance(kid, str) or len(kid) > MAX_KID or kid in keys:
            continue
        key = _loaded(source)
        if key is not None:
            keys[kid], sources[kid] = key, source
    return keys, sources


def _usable(entry: Any, issuer: Issuer) -> dict[str, str] | None:
    if not isinstance(entry, dict) or "d" in entry or "k" in entry:
        return None
    kind = entry.get("kty")
    if not isinstance(kind, str) or kind not in _PUBLIC:
        return None
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (operations is not None and "verify" not in operations):
        return None
    if "alg" in entry and entry["alg"] not in issuer.algorithms:
        return None
    if not any(a.startswith(_ALGORITHMS[kind]) for a in issuer.algorithms):
        return None
    members = {name: entry.get(name) for name in _PUBLIC[kind]}
    if not all(isinstance(value, str) for value in members.values()):
        return None
    return {"kty": kind, **members}  # type: ignore[dict-item]


def _loaded(source: dict[str, str]) -> Any:
    try:
        key = jwt.PyJWK(source).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return None
    return key
