"""Protected resources: what is said of them to a client without a good token."""

from typing import Any

import pytest

from toolcrib.identity import Issuer
from toolcrib_registry.clock import SystemClock
from toolcrib_registry.identity import resources
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.identity.resources import ProtectedResource

BASE = "https://crib.example"
LOGIN = "https://login.example"
METADATA = f'resource_metadata="{BASE}/.well-known/oauth-protected-resource/mcp"'


def resource(path: str = "/mcp", **told: Any) -> ProtectedResource:
    issuers = (Issuer(issuer=LOGIN, audience=("toolcrib",)),)
    keys = KeyStore(issuers, None, fixed={LOGIN: {}})  # type: ignore[arg-type]
    return resources.make(BASE, issuers, keys, SystemClock(), **told)[path]


@pytest.mark.parametrize(
    ("error", "scopes", "challenge"),
    [
        (None, (), f"Bearer {METADATA}"),
        (None, ("a:use", "b:use"), f'Bearer {METADATA}, scope="a:use b:use"'),
        ("invalid_token", ("a:use",), f'Bearer error="invalid_token", {METADATA}, scope="a:use"'),
    ],
)
def test_a_challenge_says_where_to_log_in(error: str | None, scopes: tuple[str, ...], challenge: str) -> None:
    found = resource(authorization_servers=(LOGIN,), scopes=scopes)

    assert found.challenge(error) == challenge


@pytest.mark.parametrize(
    ("error", "challenge"),
    [(None, 'Bearer realm="toolcrib"'), ("invalid_token", 'Bearer realm="toolcrib", error="invalid_token"')],
)
def test_where_nobody_can_log_in_nothing_starts_a_login(error: str | None, challenge: str) -> None:
    found = resource(scopes=("a:use",))

    assert found.challenge(error) == challenge
    assert found.metadata() is None


def test_a_challenge_may_ask_for_other_scopes() -> None:
    found = resource(authorization_servers=(LOGIN,), scopes=("a:use",))

    assert found.challenge("insufficient_scope", ("b:use",)) == (
        f'Bearer error="insufficient_scope", {METADATA}, scope="b:use"'
    )


def test_what_stands_in_quotes_ends_none() -> None:
    assert resources.challenge('a"b\\c', realm=None) == r'Bearer error="a\"b\\c"'


def test_a_challenge_describes_what_is_wrong_in_the_characters_that_a_description_may_have() -> None:
    found = resources.challenge("invalid_token", description='the "claim"\r\nis \\ ü', realm=None)

    assert found == 'Bearer error="invalid_token", error_description="the ?claim???is ? ?"'
    assert len(resources.challenge("invalid_token", description="x" * 1000)) < 300


def test_metadata_names_the_resource_and_leaves_out_what_there_is_not() -> None:
    found = resource("/mcp/direct", authorization_servers=(LOGIN,)).metadata()

    assert found == {
        "resource": f"{BASE}/mcp/direct",
        "resource_name": "Toolcrib",
        "authorization_servers": [LOGIN],
        "bearer_methods_supported": ["header"],
    }
