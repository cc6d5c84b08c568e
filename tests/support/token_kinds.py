"""Every way in which an identity can be missing, wrong or without grants, as what a request carries.

    for name, kind in KINDS.items():
        sent = kind.make(AGENT)
        httpx.get(url, headers=sent.headers, params=sent.query)

Each bad token is a good one with one thing wrong; `GOOD` has the good ones, so that a refusal means something.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from registry_harness import ISSUER, OPERATOR, keyset
from toolcrib.identity import Issuer, KeySet, ScopesPolicy
from toolcrib.wire.publish import PublishedAccount

LOGIN = "https://login.test"
OTHER = "https://other.test"
SCOPE = "vault:open"
_CURVE = ec.generate_private_key(ec.SECP256R1())
_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_FOREIGN = ec.generate_private_key(ec.SECP256R1())
_FOREIGN_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)

ISSUERS = (
    Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
    Issuer(issuer=LOGIN, audience=("toolcrib",)),
    Issuer(issuer=OTHER, audience=("toolcrib",)),
)
"""The cluster's issuer with two keys, a provider with one, and another provider that is trusted too."""
KEYS: KeySet = {
    ISSUER: {**keyset()[ISSUER], "c1": _CURVE.public_key()},
    LOGIN: {"r1": _RSA.public_key()},
    OTHER: {"r1": _RSA.public_key()},
}


class Outcome(StrEnum):
    """What a registry makes of it."""

    NOBODY = "nobody"  # no token
    REFUSED = "refused"  # a token that proves nothing
    STRANGER = "stranger"  # proven, and may do nothing
    IN_QUERY = "in query"  # a token where logs keep it
    KNOWN = "known"


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a listener or a protected resource admits: the good token's subject and audience, and one that it refuses."""

    subject: str
    audience: str
    other: str


AGENT = Target("system:serviceaccount:team:bot", "toolcrib", "toolcrib-admin")
ADMIN = Target(OPERATOR, "toolcrib-admin", "toolcrib")


@dataclass(frozen=True, slots=True)
class Sent:
    """Headers and query of a request."""

    headers: list[tuple[str, bytes]] = field(default_factory=list)
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """One identity: how to send it, and what each listener makes of it."""

    make: Callable[[Target], Sent]
    agents: Outcome
    admin: Outcome


def part(value: Any) -> str:
    """A part of a compact JWS: bytes as they are, anything else as JSON."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(header: Any, payload: Any, sign: Callable[[bytes], bytes]) -> str:
    """A token of any header and payload, also such as no library would write."""
    text = f"{part(header)}.{part(payload)}"
    return f"{text}.{part(sign(text.encode()))}"


def es256(data: bytes, key: ec.EllipticCurvePrivateKey = _CURVE) -> bytes:
    """A signature, of the cluster's key unless another is given."""
    return jwt.get_algorithm_by_name("ES256").sign(data, key)


def rs256(data: bytes, key: rsa.RSAPrivateKey = _RSA, algorithm: str = "RS256") -> bytes:
    """A signature, of the providers' key unless another is given."""
    return jwt.get_algorithm_by_name(algorithm).sign(data, key)


def bearer(token: str | bytes) -> Sent:
    """As it is usually sent."""
    return Sent([("Authorization", b"Bearer " + (token if isinstance(token, bytes) else token.encode()))])


def account(target: Target, **changed: Any) -> dict[str, Any]:
    """The claims of a good service account token; a callable is given the time, `...` takes a claim away."""
    now = int(time.time())
    name = str(changed.get("sub", target.subject)).rpartition(":")[2]
    good = {
        "iss": ISSUER,
        "aud": [target.audience],
        "sub": target.subject,
        "kubernetes.io": {"serviceaccount": {"name": name, "uid": f"uid-of-{name}"}},
        "iat": now,
        "nbf": now,
        "exp": now + 600,
    }
    return _with(good, now, changed)


def person(target: Target, **changed: Any) -> dict[str, Any]:
    """The claims of a good token of the provider: user alice of group ops, by the client agent."""
    now = int(time.time())
    good = {"iss": LOGIN, "aud": target.audience, "sub": "alice", "azp": "agent", "groups": ["ops"], "scope": SCOPE,
            "iat": now, "exp": now + 600}  # fmt: skip
    return _with(good, now, changed)


def _with(good: dict[str, Any], now: int, changed: dict[str, Any]) -> dict[str, Any]:
    made = {k: v(now) if callable(v) else v for k, v in {**good, **changed}.items()}
    return {k: v for k, v in made.items() if v is not ...}


def account_token(target: Target, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """A token by the cluster's key; a header of `...` is left out."""
    return signed(_with({"alg": "ES256", "kid": "c1"}, 0, header or {}), account(target, **changed), es256)


def person_token(target: Target, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """A token by the provider's key."""
    return signed(_with({"alg": "RS256", "kid": "r1"}, 0, header or {}), person(target, **changed), rs256)


def _text(text: str | bytes) -> Kind:
    raw = text if isinstance(text, bytes) else text.encode()
    return Kind(lambda _: Sent([("Authorization", raw)]), Outcome.REFUSED, Outcome.REFUSED)


def _bad(make: Callable[[Target], str]) -> Kind:
    return Kind(lambda t: bearer(make(t)), Outcome.REFUSED, Outcome.REFUSED)


def _account(header: dict[str, Any] | None = None, **changed: Any) -> Kind:
    return _bad(lambda t: account_token(t, header, **changed))


def _person(header: dict[str, Any] | None = None, **changed: Any) -> Kind:
    return _bad(lambda t: person_token(t, header, **changed))


def _stranger(make: Callable[[Target], str], admin: Outcome = Outcome.REFUSED) -> Kind:
    return Kind(lambda t: bearer(make(t)), Outcome.STRANGER, admin)


def _unknown_account(name: str) -> Kind:
    subject = f"system:serviceaccount:team:{name}"
    return _stranger(lambda t: account_token(t, sub=subject), admin=Outcome.STRANGER)


def _gone(name: str) -> Kind:
    """A bound service account that is not there any more; the admin listener knows none but its own."""
    return Kind(_unknown_account(name).make, Outcome.REFUSED, Outcome.STRANGER)


def _several(*headers: Callable[[Target], str]) -> Kind:
    def make(target: Target) -> Sent:
        return Sent([("Authorization", f"Bearer {one(target)}".encode()) for one in headers])

    return Kind(make, Outcome.REFUSED, Outcome.REFUSED)


def _hmac(secret: bytes, **header: Any) -> Kind:
    return _bad(
        lambda t: signed(
            {"alg": "HS256", "kid": "r1", **header},
            person(t),
            lambda d: hmac.new(secret, d, hashlib.sha256).digest(),
        )
    )


def _payload(change: Callable[[str], str]) -> Kind:
    """The good payload's text, changed and signed by the right key."""
    return _bad(
        lambda t: signed({"alg": "ES256", "kid": "c1"}, change(json.dumps(account(t))).encode(), es256)
    )


def _tampered(target: Target) -> str:
    head, _, signature = account_token(target, sub="system:serviceaccount:team:nobody").split(".")
    return f"{head}.{part(account(target))}.{signature}"


def _as_json(target: Target) -> str:
    return json.dumps(
        dict(zip(("protected", "payload", "signature"), account_token(target).split("."), strict=True))
    )


def _in_query(name: str) -> Kind:
    return Kind(lambda t: Sent(query={name: account_token(t)}), Outcome.IN_QUERY, Outcome.NOBODY)


def _in_query_too(target: Target) -> Sent:
    return Sent(bearer(account_token(target)).headers, {"access_token": "x"})


def _public(encoding: serialization.Encoding) -> bytes:
    return _RSA.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def _jwk() -> dict[str, Any]:
    return dict(jwt.algorithms.RSAAlgorithm.to_jwk(_RSA.public_key(), as_dict=True))


_EVIL = "https://evil.test/keys"
KINDS: dict[str, Kind] = {
    # no identity
    "none": Kind(lambda _: Sent(), Outcome.NOBODY, Outcome.NOBODY),
    "an empty header": _text(""),
    "Bearer without a token": _text("Bearer"),
    "Bearer and blanks": _text("Bearer    "),
    "the token without Bearer": Kind(lambda t: Sent([("Authorization", account_token(t).encode())]), Outcome.REFUSED, Outcome.REFUSED),
    "the scheme Token": Kind(lambda t: Sent([("Authorization", f"Token {account_token(t)}".encode())]), Outcome.REFUSED, Outcome.REFUSED),
    "the scheme Basic": Kind(
        lambda t: Sent([("Authorization", b"Basic " + base64.b64encode(f"bot:{account_token(t)}".encode()))]),
        Outcome.REFUSED, Outcome.REFUSED),
    "two Authorization headers": _several(account_token, account_token),
    "a good header after a bad one": _several(lambda _: "x", account_token),
    "two tokens in one header": _bad(lambda t: f"{account_token(t)} {account_token(t)}"),
    "two tokens with a comma": _bad(lambda t: f"{account_token(t)},{account_token(t)}"),
    "the query's access_token": _in_query("access_token"),
    "the query's token": _in_query("token"),
    "the query's Authorization": _in_query("Authorization"),
    "the query beside a good header": Kind(_in_query_too, Outcome.IN_QUERY, Outcome.KNOWN),
    # no token
    "unreadable": _bad(lambda _: "not.a.token"),
    "opaque": _bad(lambda _: "2YotnFZFEjr1zCsicMWpAA"),
    "bytes beyond ASCII": Kind(lambda t: bearer(account_token(t).encode() + b"\xc3\xa9"), Outcome.REFUSED, Outcome.REFUSED),
    "17 kB": _account(pad="x" * 17_000),
    "a header that is a list": _bad(lambda t: signed([], account(t), es256)),
    "a payload that is a list": _bad(lambda t: signed({"alg": "ES256", "kid": "c1"}, [account(t)], es256)),
    "a payload nested 5,000 deep": _bad(lambda t: signed({"alg": "ES256", "kid": "c1"}, b"[" * 5_000 + b"]" * 5_000, es256)),
    "a claim nested 3,000 deep": _payload(lambda p: p[:-1] + ', "x": ' + "[" * 3_000 + "]" * 3_000 + "}"),
    "a claim that stands twice": _payload(lambda p: '{"sub": "system:serviceaccount:team:nobody", ' + p[1:]),
    "a header that stands twice": _bad(lambda t: signed(b'{"alg":"none","alg":"ES256","kid":"c1"}', account(t), es256)),
    "half a character": _payload(lambda p: p[:-1] + ', "name": "\\ud800"}'),
    "padding": _bad(lambda t: account_token(t) + "=="),
    "encrypted": _bad(lambda t: f"{part({'alg': 'RSA-OAEP', 'enc': 'A256GCM'})}.a.b.c.d"),
    "JSON instead of compact": _bad(_as_json),
    # a signature that proves nothing
    "forged with another key": _bad(lambda t: signed({"alg": "ES256", "kid": "c1"}, account(t), lambda d: es256(d, _FOREIGN))),
    "forged with another RSA key": _bad(lambda t: signed({"alg": "RS256", "kid": "r1"}, person(t), lambda d: rs256(d, _FOREIGN_RSA))),
    "a tampered payload": _bad(_tampered),
    "no signature": _bad(lambda t: account_token(t).rsplit(".", 1)[0] + "."),
    "a signature of zeros": _bad(lambda t: signed({"alg": "ES256", "kid": "c1"}, account(t), lambda _: bytes(64))),
    "alg none": _bad(lambda t: signed({"alg": "none"}, account(t), lambda _: b"")),
    "alg None with a key id": _bad(lambda t: signed({"alg": "None", "kid": "c1"}, account(t), lambda _: b"")),
    "no alg": _bad(lambda t: signed({"kid": "c1"}, account(t), es256)),
    "HS256 with the public key as PEM": _hmac(_public(serialization.Encoding.PEM)),
    "HS256 with the public key as DER": _hmac(_public(serialization.Encoding.DER)),
    "HS256 with the public key as JWK": _hmac(json.dumps(_jwk()).encode()),
    "HS256 with an empty secret": _hmac(b""),
    "HS256 said to be RS256": _hmac(_public(serialization.Encoding.PEM), alg="RS256"),
    "the algorithm of another key": _bad(lambda t: signed({"alg": "RS256", "kid": "c1"}, account(t), rs256)),
    "an algorithm that is not accepted": _bad(lambda t: signed({"alg": "RS512", "kid": "r1"}, person(t), lambda d: rs256(d, algorithm="RS512"))),
    "an unknown key id": _account({"kid": "nine"}),
    "no key id where there are several keys": _account({"kid": ...}),
    "a key id that is null": _person({"kid": None}),
    "a key id that is a path": _account({"kid": "../../dev/null"}),
    "a key id that is a number": _account({"kid": 1}),
    "the header jku": _account({"jku": _EVIL}),
    "the header jwk": _bad(lambda t: signed({"alg": "RS256", "kid": "r1", "jwk": _jwk()}, person(t), rs256)),
    "the header x5u": _account({"x5u": _EVIL}),
    "the header x5c": _account({"x5c": ["MIIB"]}),
    "the header crit": _account({"crit": ["exp"], "exp": 1}),
    "the header zip": _account({"zip": "DEF"}),
    "the header b64": _account({"b64": False}),
    # not meant for here, or for now
    "expired": _account(exp=lambda now: now - 1),
    "not valid yet": _account(nbf=lambda now: now + 60),
    "made in the future": _account(iat=lambda now: now + 60),
    "no expiry": _account(exp=...),
    "an expiry that is text": _account(exp=lambda now: str(now + 600)),
    "an expiry that is true": _account(exp=True),
    "an expiry that is a list": _account(exp=lambda now: [now + 600]),
    "an expiry that is not a number": _account(exp=float("nan")),
    "an infinite expiry": _account(exp=float("inf")),
    "a negative expiry": _account(exp=-1),
    "an expiry of 1e300": _account(exp=1e300),
    "an untrusted issuer": _account(iss="https://evil.test"),
    "an issuer with a slash more": _account(iss=ISSUER + "/"),
    "no issuer": _account(iss=...),
    "an issuer that is a list": _account(iss=[ISSUER]),
    "another audience": _account(aud="somebody-else"),
    "the API server's own audience": _account(aud=["https://kubernetes.default.svc.cluster.local", ISSUER]),
    "the audience of the other listener": _bad(lambda t: account_token(t, aud=t.other)),
    "an audience that only starts alike": _bad(lambda t: account_token(t, aud=t.audience + "2")),
    "no audience": _account(aud=...),
    "no subject": _account(sub=...),
    "an empty subject": _account(sub=""),
    "a subject that is a list": _bad(lambda t: account_token(t, sub=[t.subject])),
    # other kinds of tokens
    "an ID token with a nonce": _person(nonce="n"),
    "an ID token with at_hash": _person(at_hash="h"),
    "an ID token with c_hash": _person(c_hash="h"),
    "an ID token of Keycloak": _person(typ="ID"),
    "an ID token of Cognito": _person(token_use="id"),
    "a refresh token": _person(typ="Refresh"),
    "a logout token": _person({"typ": "logout+jwt"}, events={}),
    "a DPoP proof": _person({"typ": "dpop+jwt"}),
    "bound to a key of its client": _person(cnf={"jkt": "x"}),
    "too many groups to name": _person(groups=..., _claim_names={"groups": "src1"}),
    # another issuer's words
    "a service account by another issuer": _bad(lambda t: person_token(t, sub=t.subject)),
    "the operator by another issuer": _person(sub=OPERATOR),
    "a system user by another issuer": _person(sub="system:admin"),
    "a system user by the cluster": _account(sub="system:masters"),
    "a person by the cluster": _account(sub="alice"),
    "user, group and client of another issuer": _stranger(lambda t: person_token(t, iss=OTHER)),
    "the cluster's groups by another issuer": _stranger(
        lambda t: person_token(t, sub="mallory", azp="x", groups=["system:serviceaccounts", "system:serviceaccounts:team"])),
    "the key of one issuer for another": _bad(lambda t: signed({"alg": "ES256", "kid": "c1"}, person(t), es256)),
    # accounts that are gone
    "a deleted service account": _gone("deleted"),
    "a service account made anew": _gone("anew"),
    "a bound service account without its UID": Kind(
        lambda t: bearer(account_token(t, None, **{"kubernetes.io": ...})), Outcome.REFUSED, Outcome.KNOWN),
    # good tokens without grants
    "an unknown subject": _unknown_account("nobody"),
    "a revoked binding": _unknown_account("revoked"),
    "a grant that is over": _unknown_account("expired"),
    "a grant that has not begun": _unknown_account("early"),
    "a grant that is denied": _unknown_account("denied"),
    "a suspended agent's account": _unknown_account("stopped"),
    "a suspended agent's client": _stranger(lambda t: person_token(t, azp="stopped")),
    "a suspended agent's user": _stranger(lambda t: person_token(t, sub="stopped")),
    "a grant of scopes that no tool has": _unknown_account("elsewhere"),
    "no scope claim where scopes count": _stranger(lambda t: person_token(t, scope=...)),
    "empty scopes": _stranger(lambda t: person_token(t, scope="")),
    "scopes that are a mapping": _stranger(lambda t: person_token(t, scope={SCOPE: True})),
    "other scopes": _stranger(lambda t: person_token(t, scope="vault:close registry:admin registry:write")),
    "scopes without a binding": _stranger(lambda t: person_token(t, sub="mallory", azp="x", groups=[])),
    "a client that is no text": _stranger(lambda t: person_token(t, sub="mallory", azp=["agent", "x"], client_id="agent", groups=[])),
}  # fmt: skip

ACCOUNTS = (
    *(PublishedAccount(namespace="team", name=n, uid=f"uid-of-{n}") for n in ("bot", "expired", "early", "denied", "elsewhere", "stopped")),
    PublishedAccount(namespace="team", name="anew", uid="uid-of-the-new-one"),
)  # fmt: skip
"""The service accounts that there are; those of `KINDS` have the UID `uid-of-NAME` in their tokens."""

GOOD: dict[str, Callable[[Target], Sent]] = {
    "a service account": lambda t: bearer(account_token(t)),
    "bearer in small letters": lambda t: Sent([("authorization", f"bearer {account_token(t)}".encode())]),
    "a user": lambda t: bearer(person_token(t, azp="x", groups=[])),
    "a client": lambda t: bearer(person_token(t, sub="mallory", groups=[])),
    "a group": lambda t: bearer(person_token(t, sub="mallory", azp="x")),
    "an access token by RFC 9068": lambda t: bearer(person_token(t, {"typ": "at+jwt"})),
    "no key id where there is one key": lambda t: bearer(person_token(t, {"kid": ...})),
}
"""Agents that see the tool."""
