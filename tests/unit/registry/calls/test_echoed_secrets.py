"""A secret that comes back in an answer is found in every form that services write by themselves, and costs little to look for."""

import base64
import json
import string
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suites import examples
from toolcrib_registry.calls.backends.http.response import judged
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import CallError, ToolError, UpstreamProtocol
from toolcrib_registry.outbound.messages import OutboundResponse

PRINTABLE = string.ascii_letters + string.digits + string.punctuation
TOKENS = st.text(st.sampled_from(PRINTABLE), min_size=5, max_size=80)
PASSWORDS = st.text(
    st.characters(min_codepoint=33, exclude_categories=("Cs", "Cc", "Cn", "Zs", "Zl", "Zp")),
    min_size=5,
    max_size=40,
)
AROUND = st.binary(max_size=9)


def _every(text: str, form: str) -> str:
    return "".join("".join(form.format(byte) for byte in char.encode()) for char in text)


def _utf16(text: str, form: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(form.format(int.from_bytes(units[i : i + 2])) for i in range(0, len(units), 2))


def _in_base64(encode: Callable[[bytes], bytes], pad: bool) -> Callable[[str, bytes, bytes], str]:
    def made(secret: str, before: bytes, after: bytes) -> str:
        text = encode(before + secret.encode() + after).decode()
        return text if pad else text.rstrip("=")

    return made


FORMS: dict[str, Callable[[str, bytes, bytes], str]] = {
    "as it is": lambda s, a, b: f"Bearer {s}!",
    "base64": _in_base64(base64.b64encode, True),
    "base64 without padding": _in_base64(base64.b64encode, False),
    "base64 for URLs": _in_base64(base64.urlsafe_b64encode, True),
    "base64 for URLs without padding": _in_base64(base64.urlsafe_b64encode, False),
    "base64 in lines": _in_base64(base64.encodebytes, True),
    "base64 percent-encoded": lambda s, a, b: quote(base64.b64encode(a + s.encode() + b).decode(), safe=""),
    "hex": lambda s, a, b: (a + s.encode() + b).hex(),
    "hex in capitals": lambda s, a, b: (a + s.encode() + b).hex().upper(),
    "hex with colons": lambda s, a, b: (a + s.encode() + b).hex(":"),
    "hex with blanks": lambda s, a, b: (a + s.encode() + b).hex(" "),
    "percent": lambda s, a, b: quote(s, safe=""),
    "percent, paths": lambda s, a, b: quote(s),
    "percent, all of it": lambda s, a, b: _every(s, "%{:02X}"),
    "percent in small letters": lambda s, a, b: _every(s, "%{:02x}"),
    "JSON": lambda s, a, b: json.dumps(s, ensure_ascii=False)[1:-1],
    "JSON in ASCII": lambda s, a, b: json.dumps(s)[1:-1],
    "JSON with slashes escaped": lambda s, a, b: json.dumps(s)[1:-1].replace("/", "\\/"),
    "JSON, all of it": lambda s, a, b: _utf16(s, "\\u{:04x}"),
    "JSON, all of it in capitals": lambda s, a, b: _utf16(s, "\\u{:04X}"),
    "JSON in JSON": lambda s, a, b: json.dumps(json.dumps(s))[1:-1],
}


def _texts(form: str) -> dict[str, Callable[[str], bytes]]:
    """Bodies that hold the form."""
    plain = {"text": lambda text: f"you sent {text}, x".encode()}
    if form.startswith("JSON"):
        return plain | {"with other letters": lambda text: f'{{"ü": "{text}"}}'.encode()}
    return plain | {
        "in JSON": lambda text: json.dumps({"got": [text]}).encode(),
        "in JSON, with other letters": lambda text: json.dumps({"ü": text}, ensure_ascii=False).encode(),
        "in JSON of PHP": lambda text: json.dumps({"got": text}).replace("/", "\\/").encode(),
    }


@pytest.mark.parametrize("form", FORMS)
@examples(60)
@given(secret=st.one_of(TOKENS, PASSWORDS), before=AROUND, after=AROUND, data=st.data())
def test_a_secret_is_found_in_every_form(
    form: str, secret: str, before: bytes, after: bytes, data: st.DataObject
) -> None:
    body = data.draw(st.sampled_from(sorted(_texts(form).items())))[1](FORMS[form](secret, before, after))

    assert Secrets.of([secret]).repeated_in(body), body


@examples(300)
@given(secret=st.text(st.sampled_from(PRINTABLE), min_size=8, max_size=60), body=st.binary(max_size=400))
def test_an_answer_without_it_is_not_withheld(secret: str, body: bytes) -> None:
    assert not Secrets.of([secret]).repeated_in(body.replace(secret.encode()[:4], b""))


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, -1)])
@pytest.mark.parametrize("form", [f for f in FORMS if "base64" not in f])
def test_a_part_of_it_is_not_it(form: str, cut: slice) -> None:
    secret = "Kj3/+x-9_Zq~7&Ab"

    assert not Secrets.of([secret]).repeated_in(FORMS[form](secret[cut], b"", b"").encode())


def test_what_is_shorter_than_chance_is_not_looked_for() -> None:
    assert not Secrets.of(["", "a", "abc"]).repeated_in(b"a abc")
    assert Secrets.of(["abcd"]).repeated_in(b"xabcdx")


NASTY = {
    "rows": json.dumps([{"id": i, "text": "lorem ipsum dolor sit amet"} for i in range(40_000)]).encode(),
    "escapes": b"\\u0041",
    "broken escapes": b"\\u00",
    "broken escapes among letters": "é\\u00".encode(),
    "slashes": b"\\/",
    "backslashes": b"\\",
    "surrogates": b"\\ud83d\\ude00",
    "percents": b"%",
    "percent-encoded": b"%41",
    "broken among percent-encoded": b"%41%4",
    "base64": base64.b64encode(bytes(range(256)) * 16),
    "almost it": b"s3cret-toke",
    "blanks": b" \n",
}


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("piece", NASTY)
def test_looking_costs_less_than_a_microsecond_for_a_byte(piece: str) -> None:
    part = NASTY[piece]
    body = (part * ((4 << 20) // len(part) + 1))[: 4 << 20]
    secrets = Secrets.of(["s3cret-token", "u:long-password", "long-password", "x" * 86])
    started = time.thread_time()
    secrets.repeated_in(body)

    assert (time.thread_time() - started) / len(body) < 1e-6


@pytest.mark.parametrize("status", [200, 201, 299, 400, 401, 422, 499, 500, 503, 302])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_of_any_status_shows_nothing_of_it(form: str, status: int) -> None:
    secret = 's3cret/"tok+en"'
    text = FORMS[form](secret, b"u:", b"!")
    body = f'{{"got": "{text}"}}'.encode() if form.startswith("JSON") else json.dumps({"got": text}).encode()
    answer = OutboundResponse(status, {"content-type": "application/json"}, body)
    with pytest.raises(CallError) as refused:
        judged(answer, limits=CallBounds(), elapsed=0.0, secrets=(secret,))

    if status < 300:
        assert isinstance(refused.value, UpstreamProtocol)
        assert "withheld" in refused.value.detail
    assert "upstream" not in refused.value.extra
    assert text not in str(refused.value) + str(refused.value.extra)


def test_a_refusal_without_it_is_shown() -> None:
    answer = OutboundResponse(422, {"content-type": "application/json"}, b'{"why": "no"}')
    with pytest.raises(ToolError) as refused:
        judged(answer, limits=CallBounds(), elapsed=0.0, secrets=("s3cret-token",))

    assert refused.value.extra["upstream"] == {"why": "no"}
