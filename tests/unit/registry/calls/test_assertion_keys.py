"""The keys of call assertions: which signs, which are published, what is refused, and how they change."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from published import bot
from toolcrib_registry.calls.assertions import keys
from toolcrib_registry.calls.assertions.keys import AssertionKeyError, AssertionKeys
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.identity.issuer.errors import UnsafePermissions

START = 1_800_000_000.0
LONG_AGO = START - 86_400


def pem(private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None, sec1: bool = True) -> bytes:
    """A key as `openssl ecparam -genkey` and helm write it."""
    form = serialization.PrivateFormat.TraditionalOpenSSL if sec1 else serialization.PrivateFormat.PKCS8
    made = private or ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write(folder: Path, name: str, content: bytes, since: float = LONG_AGO) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o440)
    os.utime(path, (since, since))


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return START + self.at

    def elapsed(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Callable[[], AssertionKeys]:
    return lambda: AssertionKeys(tmp_path, clock.now, clock.elapsed)


def published(held: AssertionKeys) -> list[str]:
    return [key["kid"] for key in held.jwks()["keys"]]


@pytest.mark.parametrize("sec1", [True, False], ids=["SEC 1", "PKCS 8"])
def test_a_key_in_the_folder_signs_and_its_public_half_verifies(
    tmp_path: Path, clock: Clock, opened: Callable[[], AssertionKeys], sec1: bool
) -> None:
    write(tmp_path, keys.SIGNING, pem(sec1=sec1))
    held = opened()
    token = Assertions("https://x.example", held, clock.now).made("a/b", bot(), "POST", "/", b"")
    (key,) = jwt.PyJWKSet.from_dict(held.jwks()).keys

    assert jwt.get_unverified_header(token) == {
        "alg": "ES256", "kid": key.key_id, "typ": "toolcrib-assertion+jwt",
    }  # fmt: skip
    assert jwt.decode(
        token, key, ["ES256"], audience="a/b", options={"verify_exp": False, "verify_iat": False}
    )


def test_nothing_private_is_published_or_shown(tmp_path: Path, opened: Callable[[], AssertionKeys]) -> None:
    write(tmp_path, keys.SIGNING, pem())
    held = opened()
    (key,) = held.jwks()["keys"]

    assert set(key) == {"kty", "crv", "x", "y", "use", "alg", "kid"}
    assert "private" not in repr(held.signing()).lower()


def test_a_new_key_signs_once_its_file_is_two_minutes_old_and_both_are_published(
    tmp_path: Path, clock: Clock, opened: Callable[[], AssertionKeys]
) -> None:
    first, second = pem(), pem()
    write(tmp_path, keys.SIGNING, first)
    held = opened()
    former = held.signing().kid
    clock.at = 5
    write(tmp_path, keys.PREVIOUS, first, clock.now())
    write(tmp_path, keys.SIGNING, second, clock.now())
    clock.at = 20

    assert held.signing().kid == former
    assert len(published(held)) == 2
    restarted = opened()
    assert restarted.signing().kid == former
    clock.at = 126
    assert held.signing().kid == restarted.signing().kid != former
    assert former in published(held)


def test_without_a_former_key_a_new_one_signs_at_once(
    tmp_path: Path, clock: Clock, opened: Callable[[], AssertionKeys]
) -> None:
    write(tmp_path, keys.SIGNING, pem(), clock.now())

    assert published(opened()) == [opened().signing().kid]


def test_a_file_that_becomes_useless_leaves_the_former_keys_in_use(
    tmp_path: Path, clock: Clock, opened: Callable[[], AssertionKeys], caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, keys.SIGNING, pem())
    held = opened()
    before = held.signing().kid
    write(tmp_path, keys.SIGNING, b"nothing")
    for clock.at in (20, 40, 60):
        assert held.signing().kid == before

    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert "keeping the previous keys" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist; create one with: openssl ecparam"),
        (b"", "no P-256 private key"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "no P-256 private key"),
        (pem(rsa.generate_private_key(65537, 2048)), "no P-256 private key"),
    ],
    ids=["none", "empty", "P-384", "RSA"],
)
def test_a_folder_without_a_usable_key_is_refused_with_the_remedy(
    tmp_path: Path, opened: Callable[[], AssertionKeys], content: bytes | None, said: str
) -> None:
    if content is not None:
        write(tmp_path, keys.SIGNING, content)

    with pytest.raises(AssertionKeyError, match=said):
        opened()


@pytest.mark.parametrize("mode", [0o444, 0o442, 0o441])
def test_a_key_that_everybody_reaches_is_refused(
    tmp_path: Path, opened: Callable[[], AssertionKeys], mode: int
) -> None:
    write(tmp_path, keys.SIGNING, pem())
    (tmp_path / keys.SIGNING).chmod(mode)

    with pytest.raises(AssertionKeyError, match="chmod 600"):
        opened()


def test_the_local_modes_key_is_made_once_and_private(tmp_path: Path) -> None:
    folder = keys.make_private(tmp_path / "assertion")
    made = (folder / keys.SIGNING).read_bytes()
    keys.make_private(folder)

    assert stat.S_IMODE((folder / keys.SIGNING).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / keys.SIGNING).read_bytes() == made
    (folder / keys.SIGNING).chmod(0o640)
    with pytest.raises(UnsafePermissions):
        keys.make_private(folder)
