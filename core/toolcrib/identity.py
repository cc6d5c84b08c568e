"""Who is asking: issuers, and the identity that a verified token proves.

Pure: keys and the time are passed in. An unknown key is reported, never fetched here. (RFC 7519, RFC 8725;
DESIGN §3, Issuers.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import jwt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toolcrib.errors import TokenMalformed, TokenRejected, UnknownKey
from toolcrib.telemetry import labels
from toolcrib.tokens import claims as reading
from toolcrib.tokens import reader
from toolcrib.tokens.claims import Claims

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
NOT_BEFORE_LEEWAY = 30.0
"""Seconds by which an issuer's clock may run ahead (`nbf`, `iat`). Expiry gets no leeway."""

KeySet = Mapping[str, Mapping[str, Any]]
"""issuer → key id → public key, as PyJWT takes it."""


class ScopesPolicy(StrEnum):
    """Where scopes come from; DESIGN §3."""

    BINDINGS = "bindings"
    INTERSECTION = "intersection"
    TOKEN = "token"
    LOCAL = "local"  # no scope claim: bindings; with one: token (of its token endpoint: intersection). Only the local issuer.


class Issuer(BaseModel):
    """One token issuer that the registry trusts, and how far."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str = Field(
        min_length=1,
        description="The `iss` of its tokens, compared exactly. With cluster and token_file it may be left out: it is then that token's.",
    )
    audience: tuple[str, ...] = Field(
        min_length=1, description="Accepted `aud` values; never the API server's own."
    )
    jwks_uri: str | None = Field(
        default=None, description="URL of its public keys. Absent: found by OpenID discovery."
    )
    jwks_file: str | None = Field(
        default=None, description="A file with its public keys, read at start and when it changes."
    )
    ca_file: str | None = Field(default=None, description="CA bundle for fetching keys.")
    token_file: str | None = Field(
        default=None, description="Bearer token for fetching keys (the API server wants one)."
    )
    algorithms: tuple[str, ...] = Field(
        default=("RS256", "ES256"), description="Accepted signature algorithms."
    )
    scopes: ScopesPolicy = Field(
        default=ScopesPolicy.INTERSECTION, description="bindings, intersection or token."
    )
    cluster: bool = Field(default=False, description="Whether this is the cluster's service-account issuer.")
    claims: Claims = Field(default=Claims(), description="Claim names.")
    accept_id_tokens: bool = Field(
        default=False,
        description="Accept ID tokens as access tokens. For Dex, whose access tokens are ID tokens. Risk: "
        "any service that a client of this audience sends an ID token to can act as its user.",
    )

    exchange_url: str | None = Field(
        default=None,
        pattern=r"^https?://[!-~]+$",
        description="Its token endpoint, where tokens of callers may be exchanged for tokens of backends (RFC 8693). Absent: its "
        "tokens are never sent anywhere.",
    )
    exchange_parameters: dict[str, str] = Field(
        default={}, description="Further fields of the exchange, such as Dex's `connector_id`."
    )

    @property
    def keys_over_http(self) -> bool:
        """Whether its keys, or the document that says where they are, are fetched without TLS."""
        return self.jwks_file is None and (self.jwks_uri or self.issuer).lower().startswith("http:")

    @property
    def closed_audiences(self) -> frozenset[str]:
        """The API server's own, as far as they are known: every pod's default token has one of them."""
        own = {"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local"}
        return frozenset(own | {self.issuer} if self.cluster else own)

    @field_validator("algorithms")
    @classmethod
    def _only_asymmetric(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [a for a in value if a not in ASYMMETRIC]
        if wrong or not value:
            raise ValueError(
                f"algorithms must be asymmetric ({', '.join(ASYMMETRIC)}), not {', '.join(wrong) or 'empty'}"
            )
        return value

    @model_validator(mode="after")
    def _audience_is_ours(self) -> Issuer:
        taken = self.closed_audiences.intersection(self.audience)
        if taken:
            raise ValueError(
                f"audience {sorted(taken)} is the API server's own, so every pod's default token would be "
                "accepted. Use another one, such as toolcrib"
            )
        return self


def check_issuers(issuers: Iterable[Issuer]) -> dict[str, Issuer]:
    """Issuers by `iss`.

    Raises:
        ValueError: two issuers share one `iss`, or two are marked as the cluster's.
    """
    by_name: dict[str, Issuer] = {}
    for issuer in issuers:
        if issuer.issuer in by_name:
            raise ValueError(f"two issuers have the same iss: {issuer.issuer}")
        by_name[issuer.issuer] = issuer
    if sum(i.cluster for i in by_name.values()) > 1:
        raise ValueError("two issuers have cluster: true; only one can")
    return by_name


@dataclass(frozen=True, slots=True)
class Identity:
    """What a verified token says."""

    issuer: str
    subject: str
    expires_at: float
    not_before: float | None = None
    """The later of `nbf` and `iat`: nothing is valid before it was made."""
    client: str | None = None
    user: str | None = None
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] | None = None
    policy: ScopesPolicy = ScopesPolicy.BINDINGS
    cluster: bool = False
    account_uid: str | None = None
    """UID of the ServiceAccount that the token was made for, where it says so."""
    token_id: str | None = field(default=None, compare=False)
    # made once: each request asks for them ten times
    service_account: tuple[str, str] | None = field(init=False, repr=False, compare=False)
    """(namespace, name) of a cluster service account, else None."""
    label: str = field(init=False, repr=False, compare=False)
    """The name in metrics and logs: `namespace/name` of a cluster's account, else `issuer:subject`."""
    account: str = field(init=False, repr=False, compare=False)
    """Issuer and subject: calls and room are shared out by it."""
    cache_key: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    """Everything a decision about this identity depends on, but for the clock."""

    def __post_init__(self) -> None:
        account = _service_account(self.subject) if self.cluster else None
        label = labels.of_account(*account) if account else labels.of_subject(self.issuer, self.subject)
        key = (
            self.issuer,
            self.subject,
            self.client,
            self.user,
            self.groups,
            self.scopes,
            str(self.policy),  # an enum's hash is written in Python
            self.cluster,
            self.account_uid,
        )
        for name, value in (
            ("service_account", account),
            ("label", label),
            ("account", f"{self.issuer} {self.subject}"),
            ("cache_key", key),
        ):
            object.__setattr__(self, name, value)

    @property
    def namespace(self) -> str | None:
        """The caller's own namespace, where it has one."""
        account = self.service_account
        return account[0] if account else None

    @property
    def tenant(self) -> str:
        """Namespace of the caller, or its issuer where it has none: callers of one tenant share a tenant's places."""
        return self.namespace or self.issuer


def _service_account(subject: str) -> tuple[str, str] | None:
    if not subject.startswith("system:serviceaccount:"):
        return None
    parts = subject.split(":")
    return (parts[2], parts[3]) if len(parts) == 4 and parts[2] and parts[3] else None


def verify(token: str, *, issuers: Mapping[str, Issuer], keys: KeySet, now: float) -> Identity:
    """The identity that `token` proves at `now`.

    Args:
        token: a compact JWS, without the word Bearer.
        issuers: by `iss`, as `check_issuers` returns them.
        keys: the public keys known now.
        now: seconds since the epoch.

    Raises:
        TokenMalformed: unreadable, or a header that is never accepted.
        TokenRejected: issuer, algorithm, signature, audience, time or subject is wrong.
        UnknownKey: the key id is not in `keys`; fetching the issuer's keys once may help.
    """
    unverified = reader.read(token)
    header = unverified.header
    claimed = unverified.claims.get("iss")
    issuer = issuers.get(claimed) if isinstance(claimed, str) else None
    if issuer is None:
        raise TokenRejected("the token's issuer is not trusted here")
    if header.get("alg") not in issuer.algorithms:
        raise TokenRejected("the token's algorithm is not accepted")
    _check(token, issuer, _key(header, issuer, keys))
    unverified.refuse_other_kinds(id_tokens=issuer.accept_id_tokens)
    return _identity(unverified.claims, issuer, now)


def _key(header: Mapping[str, Any], issuer: Issuer, keys: KeySet) -> Any:
    known = keys.get(issuer.issuer, {})
    if "kid" not in header:
        if len(known) == 1:
            return next(iter(known.values()))
        raise UnknownKey(issuer.issuer, None)
    kid = header["kid"]
    if not isinstance(kid, str):
        raise TokenMalformed("the token's key id is not a string")
    if kid not in known:
        raise UnknownKey(issuer.issuer, kid)
    return known[kid]


def _check(token: str, issuer: Issuer, key: Any) -> None:
    """Signature, audience and issuer, and that the claims which count are there."""
    try:
        jwt.decode(
            token,
            key,
            algorithms=list(issuer.algorithms),
            audience=list(issuer.audience),
            issuer=issuer.issuer,
            # times are compared with the `now` that was passed in, so that decisions can be replayed
            options={
                "require": ["exp", "iss", "aud", "sub"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except jwt.InvalidAudienceError as error:
        raise TokenRejected("the token is for another audience") from error
    except jwt.MissingRequiredClaimError as error:
        raise TokenRejected(f"the token lacks the claim {error.claim}") from error
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise TokenRejected("the token's signature does not verify") from error


def _identity(claims: Mapping[str, Any], issuer: Issuer, now: float) -> Identity:
    expires = reading.time(claims, "exp")
    if expires is None or expires <= now:
        raise TokenRejected("the token has expired")
    starts = [t for t in (reading.time(claims, name) for name in ("nbf", "iat")) if t is not None]
    not_before = max(starts, default=None)
    if not_before is not None and not_before > now + NOT_BEFORE_LEEWAY:
        raise TokenRejected("the token is not valid yet")
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject:
        raise TokenRejected("the token's subject is not a string")
    account = issuer.cluster and subject.startswith("system:serviceaccount:")
    if subject.startswith("system:") and not account:
        raise TokenRejected(
            "system: subjects are accepted only from the cluster's issuer, and only for service accounts"
        )
    if issuer.cluster and not account and issuer.scopes is not ScopesPolicy.LOCAL:
        raise TokenRejected("the token's subject is not a service account")
    mapping = issuer.claims
    if not account:
        mapping.refuse_distributed(claims)
    scopes, policy = mapping.scopes_of(claims), issuer.scopes
    if policy is ScopesPolicy.LOCAL:
        # a token that an agent got itself (it names its client) can narrow what bindings grant, never widen it
        chosen = ScopesPolicy.INTERSECTION if account and "client_id" in claims else ScopesPolicy.TOKEN
        policy = ScopesPolicy.BINDINGS if scopes is None else chosen
    identity = Identity(
        issuer=issuer.issuer,
        subject=subject,
        expires_at=expires,
        not_before=not_before,
        client=mapping.client_of(claims),
        user=mapping.user_of(claims),
        groups=_implied_groups(subject) if account else mapping.groups_of(claims),
        scopes=None if policy is ScopesPolicy.BINDINGS else scopes or frozenset(),
        policy=policy,
        cluster=account,
        account_uid=reading.account_uid(claims) if account else None,
        token_id=reading.text(claims.get("jti")),
    )
    if account and identity.service_account is None:
        raise TokenRejected("the token's subject is not a service account")
    return identity


def _implied_groups(subject: str) -> frozenset[str]:
    """The groups of a service account, as the API server implies them."""
    namespace = subject.split(":")[2] if subject.count(":") == 3 else ""
    return frozenset({"system:serviceaccounts", f"system:serviceaccounts:{namespace}"})
