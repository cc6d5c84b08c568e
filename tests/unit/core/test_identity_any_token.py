"""Whatever a token holds, it proves an identity or raises a TokenError: nothing else comes out, and no byte of it is loose."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from suites import examples
from toolcrib.errors import TokenError
from toolcrib.identity import Identity, Issuer, ScopesPolicy, verify
from toolcrib.tokens.claims import Claims

NOW = 1_800_000_000.0
KEY = ec.generate_private_key(ec.SECP256R1())
ISS = "https://login.example"
GOOD: dict[str, Any] = {
    "iss": ISS, "aud": "toolcrib", "sub": "alice", "exp": int(NOW) + 60, "scope": "a:use", "azp": "cli", "groups": ["ops"],
}  # fmt: skip
ISSUERS = [
    Issuer(issuer=ISS, audience=("toolcrib",)),
    Issuer(issuer=ISS, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, accept_id_tokens=True),
    Issuer(issuer=ISS, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
    Issuer(
        issuer=ISS,
        audience=("toolcrib",),
        claims=Claims(client=("aud", "a.b"), groups="realm_access.roles", scopes=("a.b.c", "a")),
    ),
]
NAMES = (
    "iss", "aud", "sub", "exp", "nbf", "iat", "jti", "scope", "scp", "roles", "azp", "client_id", "groups", "typ", "cnf", "nonce",
    "token_use", "events", "hasgroups", "_claim_names", "realm_access", "a", "a.b", "kubernetes.io",
)  # fmt: skip
HEADERS = ("alg", "kid", "typ", "cty", "crit", "b64", "jku", "zip", "x5t", "enc")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([ISS, "toolcrib", "alice", "system:serviceaccount:a:b", "ES256", "JWT", "k", "roles", NOW, NOW + 60]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def token(header: Any, claims: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part(header)}.{part(claims)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(text.encode(), KEY)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def outcome(text: str, issuer: Issuer) -> Identity | None:
    try:
        return verify(text, issuers={ISS: issuer}, keys={ISS: {"k": KEY.public_key()}}, now=NOW)
    except TokenError:
        return None


@examples(300)
@given(
    claims=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5),
    header=st.dictionaries(st.sampled_from(HEADERS), JSON, max_size=2),
    issuer=st.sampled_from(ISSUERS),
)
def test_any_claims_by_the_right_key_are_an_identity_or_an_error_of_ours(
    claims: dict[str, Any], header: dict[str, Any], issuer: Issuer
) -> None:
    found = outcome(token({"alg": "ES256", "kid": "k", **header}, {**GOOD, **claims}), issuer)
    if found is None:
        return
    assert found.issuer == ISS
    assert found.subject
    assert found.expires_at > NOW
    assert found.cluster or not found.subject.startswith("system:")
    assert found.cluster or not any(g.startswith("system:") for g in found.groups)
    assert hash(found.cache_key) is not None
    assert found.policy is ScopesPolicy.BINDINGS or found.scopes is not None


@examples(200)
@given(text=st.text(alphabet="ey.AJ-_=+/ \n%", max_size=60) | st.text(max_size=20))
def test_any_text_is_an_error_of_ours(text: str) -> None:
    assert outcome(text, ISSUERS[0]) is None


def test_no_character_of_a_token_can_be_changed_left_out_or_added() -> None:
    text = token({"alg": "ES256", "kid": "k"}, GOOD)
    assert outcome(text, ISSUERS[0])
    for position, character in enumerate(text):
        for other in ("", character + "A", "A" if character != "A" else "B", chr(ord(character) ^ 1)):
            assert outcome(text[:position] + other + text[position + 1 :], ISSUERS[0]) is None, (
                position,
                other,
            )


@pytest.mark.parametrize("depth", [10, 900, 3_000, 5_900])
def test_depth_is_no_way_to_break_the_reader(depth: int) -> None:
    text = json.dumps(GOOD)[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}"
    encoded = base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
    head = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"k"}').rstrip(b"=").decode()
    signature = jwt.get_algorithm_by_name("ES256").sign(f"{head}.{encoded}".encode(), KEY)
    outcome(f"{head}.{encoded}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}", ISSUERS[0])
