"""Arguments that are written down show no secret that can be told from other text."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.audit.redaction import HIDDEN, redacted

pytestmark = pytest.mark.guarantee

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "key",
    ["password", "db_passwd", "clientSecret", "API-Key", "apikey", "access_token", "token", "privateKey", "Authorization",
     "Cookie", "connectionString", "pin", "session_id"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["hunter2", 1234, ["a", "b"], {"inner": "x"}])
def test_what_stands_under_a_key_of_secrets_is_hidden(key: str, value: Any) -> None:
    assert redacted({"outer": [{key: value, "other": "kept"}]}) == {"outer": [{key: HIDDEN, "other": "kept"}]}


@pytest.mark.parametrize(
    "text",
    [JWT, f"see {JWT} there", "-----BEGIN RSA PRIVATE KEY-----\nMII", "Bearer abcdefghijklmnop", "sk-proj-abcdefghijklmnopqrst",
     "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "github_pat_11ABCDEFG0abcdefghijkl", "glpat-abcdefghijklmnopqrst",
     "xoxb-1234567890-abcdef", "AKIAIOSFODNN7EXAMPLE", "postgres://bob:hunter2@db.example/x", "hvs.abcdefghijklmnopqrstuvwx"],
)  # fmt: skip
def test_what_has_the_form_of_a_credential_is_hidden_under_any_key(text: str) -> None:
    assert redacted({"note": text, "list": [text, "kept"]}) == {"note": HIDDEN, "list": [HIDDEN, "kept"]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"expression": "2 + 3", "max_tokens": 100, "tokens": 5},
        {"url": "https://example.com:8080/a@b", "email": "bob@example.com", "author": "bob"},
        {"title": "How to keep a secret", "keyboard": "de", "secret": True, "password": None},
        {"sha": "d6a9f1c2b3e4d5f60718293a4b5c6d7e8f901234", "uuid": "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"},
    ],
)
def test_ordinary_arguments_stay_as_they_are(arguments: dict[str, Any]) -> None:
    assert redacted(arguments) == arguments


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}])
@pytest.mark.parametrize(
    ("schema", "arguments", "shown"),
    [
        ({"properties": {"word": "MARK"}}, {"word": "x", "n": 1}, {"word": HIDDEN, "n": 1}),
        ({"properties": {"a": {"items": {"properties": {"b": "MARK"}}}}}, {"a": [{"b": 1}]}, {"a": [{"b": HIDDEN}]}),
        ({"properties": {"a": {"prefixItems": [{}, "MARK"]}}}, {"a": ["x", "y"]}, {"a": ["x", HIDDEN]}),
        ({"properties": {"a": {"$ref": "#/$defs/s~1t"}}, "$defs": {"s/t": "MARK"}}, {"a": "x"}, {"a": HIDDEN}),
        ({"allOf": [{"anyOf": [{"properties": {"a": "MARK"}}]}]}, {"a": "x"}, {"a": HIDDEN}),
        ({"if": {"properties": {"a": "MARK"}}}, {"a": "x"}, {"a": HIDDEN}),
        ({"additionalProperties": "MARK", "properties": {"a": {}}}, {"a": 1, "b": 2}, {"a": 1, "b": HIDDEN}),
        ({"patternProperties": {"^x": "MARK"}}, {"xa": 1}, {"xa": HIDDEN}),
    ],
)  # fmt: skip
def test_what_the_schema_says_is_secret_is_hidden(
    mark: dict[str, Any], schema: dict[str, Any], arguments: dict[str, Any], shown: dict[str, Any]
) -> None:
    marked = json.loads(json.dumps(schema).replace('"MARK"', json.dumps(mark)))

    assert redacted(arguments, marked) == shown


def test_schemas_that_refer_to_themselves_or_to_nothing_end() -> None:
    schema = {"$ref": "#", "allOf": [{"$ref": "#/nowhere"}, {"$ref": "https://elsewhere"}, {"$ref": 7}]}

    assert redacted({"a": {"b": 1}}, schema) == {"a": {"b": 1}}


def test_what_is_nested_too_deeply_is_hidden() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]

    assert HIDDEN in json.dumps(redacted({"a": deep}))


@given(JSON, JSON)
def test_any_arguments_and_any_schema_give_something_of_the_same_form(arguments: Any, schema: Any) -> None:
    shown = redacted(arguments, schema)

    assert shown == HIDDEN or type(shown) is type(arguments)
    json.dumps(shown)


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(
    "text", ["eyJ-" * 1024, "a.b-" * 1024, "bearer " * 585, "x://y:" * 680, "sk-" * 1365, "://" * 1365, "-----BEGIN " * 372]
)  # fmt: skip
def test_no_text_of_four_kibibytes_takes_long(text: str) -> None:
    begun = time.thread_time()
    redacted({"a": text})

    assert time.thread_time() - begun < 0.05
