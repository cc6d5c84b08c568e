"""Access tokens as Keycloak, Entra, Auth0, Okta and Dex write them, signed for real; and what they mean with `examples/issuers/`.

Shapes by the providers' own documentation: Keycloak's server administration guide, Entra's "Access token claims
reference", Auth0's "Access token profiles", Okta's "OpenID Connect & OAuth 2.0 API", Dex's source.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from toolcrib.identity import Issuer
from toolcrib_registry.settings import from_env

EXAMPLES = Path(__file__).parents[2] / "examples" / "issuers"
TENANT, API = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
APP, PERSON = "a0a0a0a0-b1b1-c2c2-d3d3-e4e4e4e4e4e4", "f5f5f5f5-0606-1717-2828-393939393939"
OPS = "0ps0ps00-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Shape:
    """One token: by which example's issuer, its header and claims (but for the times), and what it says."""

    example: str
    claims: dict[str, Any]
    header: dict[str, Any]
    client: str | None = None
    user: str | None = None
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] | None = frozenset({"vault:open"})


@cache
def issuer(example: str) -> Issuer:
    """The issuer of `examples/issuers/<example>.yaml`, by way of the registry's settings."""
    (one,) = from_env({}, str(EXAMPLES / f"{example}.yaml")).issuers
    return one


@cache
def key() -> rsa.RSAPrivateKey:
    """The key of all of them."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token(shape: Shape, *, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """The token, signed; a claim of `...` is left out."""
    now = int(time.time())
    claims = {"iss": issuer(shape.example).issuer, "iat": now, "exp": now + 300, **shape.claims, **changed}
    kept = {k: v for k, v in claims.items() if v is not ...}
    return jwt.encode(kept, key(), algorithm="RS256", headers={**shape.header, **(header or {}), "kid": "k"})


_JWT = {"typ": "JWT"}
_ENTRA = {"typ": "JWT", "x5t": "i6lGk3FZzxRcUb2C3nEQ7syHJlY"}
_V2 = {
    "aud": API,
    "aio": "E2ZgYPj…",
    "rh": "0.AAAA.",
    "tid": TENANT,
    "uti": "X",
    "ver": "2.0",
    "sub": PERSON,
    "oid": PERSON,
}
_V1 = {"aud": "api://toolcrib", "aio": "E2Zg", "appidacr": "1", "idp": f"https://sts.windows.net/{TENANT}/", "rh": "0.A",
       "tid": TENANT, "uti": "X", "ver": "1.0"}  # fmt: skip
_KEYCLOAK = {
    "jti": "trrtcc:1",
    "typ": "Bearer",
    "acr": "1",
    "allowed-origins": ["/*"],
    "scope": "profile email",
}

SHAPES: dict[str, Shape] = {
    "Keycloak, a client on its own": Shape(
        "keycloak", header=_JWT, client="agent", user="0c0c-service",
        claims=_KEYCLOAK | {
            "aud": ["toolcrib", "account"], "sub": "0c0c-service", "azp": "agent", "client_id": "agent",
            "realm_access": {"roles": ["offline_access", "default-roles-agents"]},
            "resource_access": {"toolcrib": {"roles": ["vault:open"]}, "account": {"roles": ["view-profile"]}},
            "preferred_username": "service-account-agent", "clientHost": "10.0.0.1", "clientAddress": "10.0.0.1",
        }),
    "Keycloak, a user": Shape(
        "keycloak", header=_JWT, client="agent", user=PERSON, groups=frozenset({"/team-a/ops"}),
        claims=_KEYCLOAK | {
            "aud": "toolcrib", "sub": PERSON, "azp": "agent", "sid": "s1", "session_state": "s1", "groups": ["/team-a/ops"],
            "realm_access": {"roles": ["admin"]}, "resource_access": {"toolcrib": {"roles": ["vault:open"]}},
            "preferred_username": "alice", "email": "alice@example.com", "email_verified": True,
        }),
    "Keycloak before 25, a user whose client sent a nonce": Shape(
        "keycloak", header=_JWT, client="agent", user=PERSON,
        claims=_KEYCLOAK | {
            "aud": "toolcrib", "sub": PERSON, "azp": "agent", "nonce": "n-1",
            "resource_access": {"toolcrib": {"roles": ["vault:open"]}},
        }),
    "Keycloak, a user without a role of ours": Shape(
        "keycloak", header=_JWT, client="agent", user=PERSON, scopes=frozenset(),
        claims=_KEYCLOAK | {"aud": "toolcrib", "sub": PERSON, "azp": "agent", "realm_access": {"roles": ["vault:open"]}}),
    "Entra v2, an application": Shape(
        "entra-v2", header=_ENTRA, client=APP, user=PERSON,
        claims=_V2 | {"azp": APP, "azpacr": "1", "idtyp": "app", "roles": ["vault:open"]}),
    "Entra v2, a user": Shape(
        "entra-v2", header=_ENTRA, client=APP, user=PERSON, groups=frozenset({OPS}),
        claims=_V2 | {"azp": APP, "azpacr": "0", "scp": "vault:open", "sub": "pairwise", "name": "Alice",
                      "preferred_username": "alice@example.com", "groups": [OPS], "roles": ["Task.Approver"]}),
    "Entra v2, an application without a role": Shape(
        "entra-v2", header=_ENTRA, client=APP, user=PERSON, scopes=frozenset(), claims=_V2 | {"azp": APP, "idtyp": "app"}),
    "Entra v1, an application": Shape(
        "entra-v1", header=_ENTRA, client=APP, user=PERSON,
        claims=_V1 | {"appid": APP, "oid": PERSON, "sub": PERSON, "idtyp": "app", "roles": ["vault:open"]}),
    "Entra v1, a user": Shape(
        "entra-v1", header=_ENTRA, client=APP, user=PERSON, groups=frozenset({OPS}),
        claims=_V1 | {"appid": APP, "oid": PERSON, "sub": "pairwise", "scp": "vault:open", "groups": [OPS],
                      "upn": "alice@example.com", "unique_name": "alice@example.com", "amr": ["pwd", "mfa"]}),
    "Auth0, an application": Shape(
        "auth0", header=_JWT, client="Xq9", user="Xq9@clients",
        claims={"aud": "https://toolcrib.example.com", "sub": "Xq9@clients", "azp": "Xq9", "gty": "client-credentials",
                "scope": "vault:open", "permissions": ["vault:open"]}),
    "Auth0, a user": Shape(
        "auth0", header=_JWT, client="Xq9", user="auth0|5f7c8ec7", groups=frozenset({"ops"}),
        claims={"aud": ["https://toolcrib.example.com", "https://example.eu.auth0.com/userinfo"], "sub": "auth0|5f7c8ec7",
                "azp": "Xq9", "scope": "openid vault:open", "https://toolcrib.example.com/groups": ["ops"]},
        scopes=frozenset({"openid", "vault:open"})),
    "Auth0, by the RFC 9068 profile": Shape(
        "auth0", header={"typ": "at+jwt"}, client="Xq9", user="auth0|5f7c8ec7",
        claims={"aud": "https://toolcrib.example.com", "sub": "auth0|5f7c8ec7", "client_id": "Xq9", "jti": "j", "scope": "vault:open"}),
    "Okta, a service": Shape(
        "okta", header={}, client="0oa1", user=None,
        claims={"ver": 1, "jti": "AT.1", "aud": "api://toolcrib", "cid": "0oa1", "sub": "0oa1", "scp": ["vault:open"]}),
    "Okta, a user": Shape(
        "okta", header={}, client="0oa1", user="00u1", groups=frozenset({"Everyone", "ops"}),
        claims={"ver": 1, "jti": "AT.2", "aud": "api://toolcrib", "cid": "0oa1", "uid": "00u1", "sub": "alice@example.com",
                "auth_time": 1, "scp": ["openid", "vault:open"], "groups": ["Everyone", "ops"]},
        scopes=frozenset({"openid", "vault:open"})),
    "Dex, a client": Shape(
        "dex", header={}, client="agent", user="CgVhZ2VudA", scopes=None,
        claims={"aud": ["toolcrib", "agent"], "azp": "agent", "sub": "CgVhZ2VudA", "at_hash": "h", "jti": "j"}),
    "Dex, a user": Shape(
        "dex", header={}, client="agent", user="CgNhYmMSBWxvY2Fs", groups=frozenset({"ops"}), scopes=None,
        claims={"aud": ["toolcrib", "agent"], "azp": "agent", "sub": "CgNhYmMSBWxvY2Fs", "at_hash": "h", "nonce": "n",
                "email": "alice@example.com", "email_verified": True, "groups": ["ops"]}),
}  # fmt: skip
"""What is accepted."""

ID_TOKENS: dict[str, Shape] = {
    "Keycloak": Shape("keycloak", header=_JWT, claims={
        "aud": "toolcrib", "azp": "toolcrib", "typ": "ID", "sub": PERSON, "at_hash": "h",
        "resource_access": {"toolcrib": {"roles": ["vault:open"]}}}),
    "Entra v2": Shape("entra-v2", header=_ENTRA, claims=_V2 | {"nonce": "n", "name": "Alice", "roles": ["vault:open"]}),
    "Entra v1": Shape("entra-v1", header=_ENTRA, claims=_V1 | {"nonce": "n", "sub": PERSON, "oid": PERSON, "roles": ["vault:open"]}),
    "Auth0": Shape("auth0", header=_JWT, claims={
        "aud": "https://toolcrib.example.com", "sub": "auth0|5f7c8ec7", "nonce": "n", "sid": "s", "scope": "vault:open"}),
    "Okta": Shape("okta", header={}, claims={
        "aud": "api://toolcrib", "ver": 1, "jti": "ID.1", "amr": ["pwd"], "idp": "00o1", "at_hash": "h", "sub": "00u1", "scp": ["vault:open"]}),
}  # fmt: skip
"""ID tokens, had they the registry's audience."""
