"""A token proves an identity, or nothing: every way in which it can be wrong is refused."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from toolcrib.errors import TokenError, TokenMalformed, TokenRejected, UnknownKey
from toolcrib.identity import Claims, Identity, Issuer, ScopesPolicy, check_issuers, verify

NOW = 1_800_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
CLUSTER, OAUTH, LOCAL = "https://cluster.example", "https://login.example", "https://local.example"
ISSUERS = check_issuers(
    [
        Issuer(issuer=CLUSTER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
        Issuer(issuer=OAUTH, audience=("toolcrib", "tools")),
        Issuer(issuer="https://dev.example", audience=("toolcrib",), scopes=ScopesPolicy.TOKEN),
    ]
)
LOCAL_ISSUER = {LOCAL: Issuer(issuer=LOCAL, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True)}
KEYS = {name: {"one": RSA.public_key(), "two": CURVE.public_key()} for name in [*ISSUERS, LOCAL]}
SA = "system:serviceaccount:team-a:bot"


def claims(**changed: Any) -> dict[str, Any]:
    base = {"iss": OAUTH, "aud": "toolcrib", "sub": "alice", "exp": int(NOW) + 60, "scope": "a:use b:use"}
    return {k: v for k, v in {**base, **changed}.items() if v is not ...}


def token(
    *, key: Any = RSA, alg: str = "RS256", headers: dict[str, Any] | None = None, **changed: Any
) -> str:
    return jwt.encode(claims(**changed), key, algorithm=alg, headers={"kid": "one", **(headers or {})})


def raw(header: Any, payload: Any, sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    def part(value: Any) -> bytes:
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=")

    signed = part(header) + b"." + part(payload)
    return (signed + b"." + part(sign(signed))).decode()


def other_spelling(text: str) -> str:
    """The same bytes in other base64, as lenient readers take it: the last character has bits to spare."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]
    assert base64.urlsafe_b64decode(other.split(".")[2] + "==") == base64.urlsafe_b64decode(
        text.split(".")[2] + "=="
    )
    return other


def proven(text: str, now: float = NOW) -> Identity:
    return verify(text, issuers=ISSUERS, keys=KEYS, now=now)


def rsa_sign(data: bytes) -> bytes:
    return jwt.get_algorithm_by_name("RS256").sign(data, RSA)


def test_a_good_token_proves_who_is_asking() -> None:
    found = proven(token(azp="cli", groups=["ops", "system:masters", 5], jti="t1", nbf=int(NOW) - 5))

    assert found == Identity(
        issuer=OAUTH, subject="alice", expires_at=NOW + 60, not_before=NOW - 5, client="cli", user="alice",
        groups=frozenset({"ops"}), scopes=frozenset({"a:use", "b:use"}), policy=ScopesPolicy.INTERSECTION,
    )  # fmt: skip
    assert (found.token_id, found.service_account, found.namespace, found.label) == (
        "t1",
        None,
        None,
        f"{OAUTH}:alice",
    )


def test_a_service_account_of_the_cluster_is_read_from_its_subject() -> None:
    found = proven(token(iss=CLUSTER, sub=SA, scope=..., groups=["admins"]))

    assert found.service_account == ("team-a", "bot")
    assert (found.namespace, found.label, found.cluster) == ("team-a", "team-a/bot", True)
    assert found.groups == {"system:serviceaccounts", "system:serviceaccounts:team-a"}
    assert (found.policy, found.scopes) == (ScopesPolicy.BINDINGS, None)


WRONG: dict[str, tuple[str, type[TokenError]]] = {
    "nothing": ("", TokenMalformed),
    "noise": ("not a token", TokenMalformed),
    "dots": ("..", TokenMalformed),
    "half a character": ("\ud800.a.b", TokenMalformed),
    "20,000 characters": ("a" * 20_000, TokenMalformed),
    "a real one of 20,000 characters": (token(pad="x" * 15_000), TokenMalformed),
    "a header that is a list": (raw([], claims()), TokenMalformed),
    "a payload that is a list": (raw({"alg": "RS256", "kid": "one"}, [], rsa_sign), TokenMalformed),
    "a payload that is no JSON": (raw({"alg": "RS256", "kid": "one"}, b"{", rsa_sign), TokenMalformed),
    "a payload nested 5,000 deep": (
        raw({"alg": "RS256", "kid": "one"}, b"[" * 5_000 + b"]" * 5_000, rsa_sign), TokenMalformed),
    "alg none": (raw({"alg": "none", "kid": "one"}, claims()), TokenRejected),
    "alg None": (raw({"alg": "None", "kid": "one"}, claims()), TokenRejected),
    "no alg": (raw({"kid": "one"}, claims(), rsa_sign), TokenRejected),
    "an alg that is a list": (raw({"alg": ["RS256"], "kid": "one"}, claims(), rsa_sign), TokenRejected),
    "HS256 with the public key as secret": (
        raw({"alg": "HS256", "kid": "one"}, claims(), lambda d: hmac.new(PEM, d, hashlib.sha256).digest()),
        TokenRejected,
    ),
    "an algorithm that is not configured": (token(alg="RS512"), TokenRejected),
    "the algorithm of another key": (token(key=CURVE, alg="ES256"), TokenRejected),
    "another key": (token(key=OTHER), TokenRejected),
    "no signature": (token().rsplit(".", 1)[0] + ".", TokenRejected),
    "a changed payload": (
        ".".join([token().split(".")[0], token(sub="bob").split(".")[1], token().split(".")[2]]), TokenRejected),
    "an unknown key id": (token(headers={"kid": "nine"}), UnknownKey),
    "no key id where there are two keys": (raw({"alg": "RS256"}, claims(), rsa_sign), UnknownKey),
    "a key id that is a number": (raw({"alg": "RS256", "kid": 1}, claims(), rsa_sign), TokenMalformed),
    "another issuer": (token(iss="https://attacker.example"), TokenRejected),
    "an issuer with a slash more": (token(iss=OAUTH + "/"), TokenRejected),
    "an issuer that is a list": (raw({"alg": "RS256", "kid": "one"}, claims(iss=[OAUTH]), rsa_sign), TokenRejected),
    "no issuer": (token(iss=...), TokenRejected),
    "another audience": (token(aud="other"), TokenRejected),
    "other audiences": (token(aud=["other", "toolcrib2"]), TokenRejected),
    "no audience": (token(aud=...), TokenRejected),
    "an empty audience": (token(aud=[]), TokenRejected),
    "an audience that is a number": (raw({"alg": "RS256", "kid": "one"}, claims(aud=5), rsa_sign), TokenRejected),
    "the audience of another issuer": (token(iss=CLUSTER, sub=SA, aud="tools"), TokenRejected),
    "expired this moment": (token(exp=int(NOW)), TokenRejected),
    "no expiry": (token(exp=...), TokenRejected),
    "an expiry that is null": (token(exp=None), TokenRejected),
    "an expiry that is text": (raw({"alg": "RS256", "kid": "one"}, claims(exp="never"), rsa_sign), TokenRejected),
    "an expiry that is true": (raw({"alg": "RS256", "kid": "one"}, claims(exp=True), rsa_sign), TokenRejected),
    "an expiry that is a list": (raw({"alg": "RS256", "kid": "one"}, claims(exp=[1]), rsa_sign), TokenRejected),
    "an expiry in a million years": (token(exp=10**15), TokenRejected),
    "an expiry of 400 digits": (token(exp=10**400), TokenRejected),
    "an expiry of 5,000 digits": (
        raw({"alg": "RS256", "kid": "one"},
            json.dumps(claims(exp=0)).replace(": 0", ": 1" + "0" * 5_000).encode(), rsa_sign), TokenMalformed),
    "an infinite expiry": (raw({"alg": "RS256", "kid": "one"}, claims(exp=float("inf")), rsa_sign), TokenMalformed),
    "an expiry that is not a number": (
        raw({"alg": "RS256", "kid": "one"}, claims(exp=float("nan")), rsa_sign), TokenMalformed),
    "an expiry of 1e300": (token(exp=1e300), TokenRejected),
    "a negative expiry": (token(exp=-1), TokenRejected),
    "made only later": (token(iat=int(NOW) + 31), TokenRejected),
    "made in a far future, valid long since": (token(iat=int(NOW) + 10**8, nbf=0, exp=int(NOW) + 10**9), TokenRejected),
    "a time of making that is text": (token(iat="now"), TokenRejected),
    "a claim that stands twice": (
        raw({"alg": "RS256", "kid": "one"}, json.dumps(claims()).replace("{", '{"sub":"bob",').encode(), rsa_sign),
        TokenMalformed),
    "a nested member that stands twice": (
        raw({"alg": "RS256", "kid": "one"}, json.dumps(claims(x=0)).replace('"x": 0', '"x":{"a":1,"a":1}').encode(), rsa_sign),
        TokenMalformed),
    "a header member that stands twice": (
        raw(b'{"alg":"RS256","alg":"RS256","kid":"one"}', claims(), rsa_sign), TokenMalformed),
    "half a character in a claim": (raw({"alg": "RS256", "kid": "one"}, claims(email="\ud800"), rsa_sign), TokenMalformed),
    "padding": (token() + "==", TokenMalformed),
    "a line break within": (token()[:-3] + "\n" + token()[-3:], TokenMalformed),
    "bits to spare in the signature": (other_spelling(token()), TokenMalformed),
    "five parts, encrypted": ("a.b.c.d.e", TokenMalformed),
    "the type of a logout token": (token(headers={"typ": "logout+jwt"}), TokenRejected),
    "the type of a security event": (token(headers={"typ": "secevent+jwt"}), TokenRejected),
    "the type of a DPoP proof": (token(headers={"typ": "dpop+jwt"}), TokenRejected),
    "a type that is no text": (raw({"alg": "RS256", "kid": "one", "typ": 5}, claims(), rsa_sign), TokenRejected),
    "a logout token of an older Keycloak": (token(events={"http://schemas.openid.net/event/backchannel-logout": {}}), TokenRejected),
    "a refresh token of Keycloak": (token(typ="Refresh"), TokenRejected),
    "bound to a key of its client": (token(cnf={"jkt": "x"}), TokenRejected),
    "an ID token with a nonce": (token(nonce="n"), TokenRejected),
    "an ID token with at_hash": (token(at_hash="h"), TokenRejected),
    "an ID token with c_hash": (token(c_hash="h"), TokenRejected),
    "an ID token of Keycloak": (token(typ="ID"), TokenRejected),
    "an ID token of Cognito": (token(token_use="id"), TokenRejected),
    "an ID token that claims to be access": (token(headers={"typ": "at+jwt"}, typ="ID"), TokenRejected),
    "groups to be fetched elsewhere": (token(_claim_names={"groups": "s"}, _claim_sources={"s": {"endpoint": "https://x"}}), TokenRejected),
    "too many groups to name": (token(hasgroups=True), TokenRejected),
    "groups that are no names": (token(groups={"ops": True}), TokenRejected),
    "valid only later": (token(nbf=int(NOW) + 31), TokenRejected),
    "a start that is text": (raw({"alg": "RS256", "kid": "one"}, claims(nbf="now"), rsa_sign), TokenRejected),
    "no subject": (token(sub=...), TokenRejected),
    "an empty subject": (token(sub=""), TokenRejected),
    "a subject that is a number": (raw({"alg": "RS256", "kid": "one"}, claims(sub=7), rsa_sign), TokenRejected),
    "a service account by another issuer": (token(sub=SA), TokenRejected),
    "a system user by another issuer": (token(sub="system:admin"), TokenRejected),
    "a system user by the cluster": (token(iss=CLUSTER, sub="system:node:a"), TokenRejected),
    "a person by the cluster": (token(iss=CLUSTER, sub="alice"), TokenRejected),
    "a service account without name": (token(iss=CLUSTER, sub="system:serviceaccount:ns:"), TokenRejected),
    "a service account without namespace": (token(iss=CLUSTER, sub="system:serviceaccount::bot"), TokenRejected),
    "a service account with too many parts": (
        token(iss=CLUSTER, sub="system:serviceaccount:ns:bot:x"), TokenRejected),
    "a service account with too few parts": (token(iss=CLUSTER, sub="system:serviceaccount:ns"), TokenRejected),
    **{
        f"the header {name}": (token(headers={name: value}), TokenMalformed)
        for name, value in {
            "crit": ["exp"], "jku": "https://attacker.example", "x5u": "https://attacker.example", "x5c": ["a"],
            "jwk": {"kty": "oct", "k": "AA"}, "zip": "DEF",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(("text", "error"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_token_is_refused_and_never_repeated(text: str, error: type[TokenError]) -> None:
    with pytest.raises(error) as refused:
        proven(text)

    assert len(str(refused.value)) < 150
    assert len(text) < 30 or text not in str(refused.value)


def test_a_token_is_good_until_its_last_moment() -> None:
    text = token(exp=int(NOW) + 1)

    assert proven(text, NOW + 0.999).expires_at == NOW + 1
    with pytest.raises(TokenRejected, match="expired"):
        proven(text, NOW + 1)


@pytest.mark.parametrize(
    ("changed", "start"), [({"nbf": 30}, 30), ({"iat": 30}, 30), ({"nbf": -5, "iat": 5}, 5)]
)
def test_an_issuers_clock_may_run_ahead_by_half_a_minute(changed: dict[str, int], start: int) -> None:
    assert proven(token(**{k: int(NOW) + v for k, v in changed.items()})).not_before == NOW + start


def test_a_subject_that_is_no_string_is_named_as_the_problem() -> None:
    with pytest.raises(TokenRejected, match="subject"):
        proven(raw({"alg": "RS256", "kid": "one"}, claims(sub=7), rsa_sign))


def test_a_single_key_needs_no_key_id() -> None:
    text = raw({"alg": "RS256"}, claims(), rsa_sign)

    found = verify(text, issuers=ISSUERS, keys={OAUTH: {"only": RSA.public_key()}}, now=NOW)

    assert found.subject == "alice"


def test_an_unknown_key_names_the_issuer_to_ask() -> None:
    with pytest.raises(UnknownKey) as refused:
        verify(token(), issuers=ISSUERS, keys={}, now=NOW)

    assert (refused.value.issuer, refused.value.kid) == (OAUTH, "one")


def test_a_key_of_one_issuer_proves_nothing_for_another() -> None:
    keys = {CLUSTER: {"one": OTHER.public_key()}, OAUTH: {"one": RSA.public_key()}}

    with pytest.raises(TokenRejected):
        verify(token(iss=CLUSTER, sub=SA), issuers=ISSUERS, keys=keys, now=NOW)


def test_the_bindings_policy_ignores_what_the_token_says_of_scopes() -> None:
    assert proven(token(iss=CLUSTER, sub=SA, scope="registry:admin")).scopes is None


@pytest.mark.parametrize(
    ("scope", "policy", "scopes"),
    [
        (..., ScopesPolicy.BINDINGS, None),
        ("", ScopesPolicy.TOKEN, set()),
        ("a:use", ScopesPolicy.TOKEN, {"a:use"}),
        (None, ScopesPolicy.TOKEN, set()),
    ],
)
@pytest.mark.parametrize("subject", [SA, "anybody"])
def test_the_local_issuer_lets_bindings_decide_unless_the_token_has_scopes(
    subject: str, scope: Any, policy: ScopesPolicy, scopes: set[str] | None
) -> None:
    found = verify(
        token(iss=LOCAL, sub=subject, scope=scope), issuers=LOCAL_ISSUER, keys=KEYS, now=NOW
    )  # fmt: skip

    assert (found.policy, found.scopes) == (policy, scopes)
    assert found.service_account == (("team-a", "bot") if subject == SA else None)


@pytest.mark.parametrize(
    ("headers", "changed"),
    [
        ({"typ": "at+jwt"}, {"nonce": "n"}),
        ({"typ": "application/AT+JWT"}, {}),
        ({"typ": "JWT"}, {"typ": "Bearer", "nonce": "n"}),
        ({"typ": "JWT"}, {"token_use": "access"}),
        ({"typ": None}, {"x5t": "not a header"}),
        ({"x5t": "thumbprint of the key"}, {}),
    ],
)
def test_tokens_that_say_they_are_access_tokens_pass(
    headers: dict[str, Any], changed: dict[str, Any]
) -> None:
    assert proven(token(headers=headers, **changed)).subject == "alice"


def test_id_tokens_pass_where_the_issuer_knows_no_others_but_nothing_else_does() -> None:
    dex = {OAUTH: Issuer(issuer=OAUTH, audience=("toolcrib",), accept_id_tokens=True)}
    for marks in ({"nonce": "n", "at_hash": "h"}, {"typ": "ID"}):
        assert verify(token(**marks), issuers=dex, keys=KEYS, now=NOW).subject == "alice"
    for marks in ({"events": {}}, {"typ": "Refresh"}, {"cnf": {}}):
        with pytest.raises(TokenRejected):
            verify(token(**marks), issuers=dex, keys=KEYS, now=NOW)


def test_elliptic_keys_work_too() -> None:
    assert proven(token(key=CURVE, alg="ES256", headers={"kid": "two"})).subject == "alice"


def test_two_issuers_with_one_name_are_refused() -> None:
    one = Issuer(issuer=OAUTH, audience=("a",))

    with pytest.raises(ValueError, match="two issuers have the same iss"):
        check_issuers([one, Issuer(issuer=OAUTH, audience=("b",))])


def test_two_clusters_are_refused() -> None:
    with pytest.raises(ValueError, match="cluster"):
        check_issuers([Issuer(issuer=i, audience=("a",), cluster=True) for i in (CLUSTER, OAUTH)])


@pytest.mark.parametrize("algorithms", [(), ("none",), ("HS256",), ("RS256", "HS512"), ("rs256",)])
def test_an_issuer_takes_asymmetric_algorithms_only(algorithms: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="asymmetric"):
        Issuer(issuer=OAUTH, audience=("a",), algorithms=algorithms)


@pytest.mark.parametrize(
    "audience", [(), ("https://kubernetes.default.svc",), ("toolcrib", CLUSTER), ("https://kubernetes.default.svc.cluster.local",)]
)  # fmt: skip
def test_the_api_servers_own_audience_is_refused(audience: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="audience"):
        Issuer(issuer=CLUSTER, audience=audience, cluster=True)


@pytest.mark.parametrize("issuer", [OAUTH, "https://dev.example"])
@pytest.mark.parametrize(
    ("scope", "scopes"), [("a:use b:use", {"a:use", "b:use"}), ("", set()), (..., set())]
)
def test_where_scopes_count_a_token_without_any_has_none(issuer: str, scope: Any, scopes: set[str]) -> None:
    assert proven(token(iss=issuer, scope=scope)).scopes == scopes


def test_what_stands_where_is_the_issuers_own() -> None:
    mapped = {OAUTH: Issuer(issuer=OAUTH, audience=("toolcrib",), claims=Claims(client=("appid",), user="oid", groups=None))}  # fmt: skip
    text = token(appid="app", oid="o-1", azp="x", groups=["ops"], hasgroups=True)

    found = verify(text, issuers=mapped, keys=KEYS, now=NOW)

    assert (found.client, found.user, found.groups) == ("app", "o-1", frozenset())
