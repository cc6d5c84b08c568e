"""The local issuer: what its tokens say, and that its files are private."""

import stat
import threading
import time
from pathlib import Path

import jwt
import pytest

from toolcrib.errors import TokenError
from toolcrib.identity import Identity, ScopesPolicy, check_issuers, verify
from toolcrib_registry.identity.issuer import IssuerError, LocalIssuer
from toolcrib_registry.identity.issuer.errors import KeyDamaged, NotMintable, UnsafePermissions


def identity(issuer: LocalIssuer, token: str, now: float | None = None) -> Identity:
    trusted = check_issuers([issuer.issuer])
    return verify(token, issuers=trusted, keys=issuer.keyset, now=now or time.time())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_service_accounts_token_is_decided_by_bindings(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "data")
    found = identity(issuer, issuer.mint("heist", "planner"))
    assert found.service_account == ("heist", "planner")
    assert (found.policy, found.scopes) == (ScopesPolicy.BINDINGS, None)


def test_a_token_with_scopes_is_decided_by_them_and_an_empty_one_sees_nothing(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "data")
    found = identity(issuer, issuer.mint(None, "anybody", "a:use registry:write"))
    assert (found.policy, found.scopes) == (ScopesPolicy.TOKEN, {"a:use", "registry:write"})
    assert (found.subject, found.service_account) == ("anybody", None)
    nothing = identity(issuer, issuer.mint("heist", "planner", ""))
    assert (nothing.policy, nothing.scopes) == (ScopesPolicy.TOKEN, frozenset())


def test_a_token_ends(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "data", clock=lambda: 1_000.0)
    token = issuer.mint("heist", "planner", ttl=60)
    assert identity(issuer, token, now=1_059).expires_at == 1_060
    with pytest.raises(TokenError):
        identity(issuer, token, now=1_060)


def test_every_token_has_an_id_and_the_standard_times(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "data")
    claims = [jwt.decode(issuer.mint("a", "b"), options={"verify_signature": False}) for _ in range(2)]
    assert claims[0]["jti"] != claims[1]["jti"]
    assert {"iss", "sub", "aud", "iat", "nbf", "exp", "jti"} == set(claims[0])


@pytest.mark.parametrize(
    ("namespace", "name", "scopes", "ttl"),
    [
        (None, "planner", None, 60),
        (None, "system:serviceaccount:heist:planner", "a", 60),
        (None, "system:admin", "a", 60),
        (None, "", "a", 60),
        ("heist", "a:b", None, 60),
        ("heist:x", "a", None, 60),
        ("Heist", "a", None, 60),
        ("heist", "", None, 60),
        ("heist", "a\n", None, 60),
        ("heist", "a", 'a "b', 60),
        ("heist", "a", None, 0),
        ("heist", "a", None, -1),
        ("heist", "a", None, float("nan")),
        ("heist", "a", None, 10**9),
    ],
)
def test_a_name_that_could_be_taken_for_another_is_not_minted(
    tmp_path: Path, namespace: str | None, name: str, scopes: str | None, ttl: float
) -> None:
    issuer = LocalIssuer.open(tmp_path / "data")
    with pytest.raises(NotMintable):
        issuer.mint(namespace, name, scopes, ttl)


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = LocalIssuer.open(folder)
    second = LocalIssuer.open(folder)
    assert identity(second, first.mint("a", "b")).service_account == ("a", "b")
    assert mode(folder) == 0o700
    assert [mode(p) for p in folder.iterdir()] == [0o600]


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    kids: list[str] = []

    def start() -> None:
        kids.extend(next(iter(LocalIssuer.open(tmp_path / "data").keyset.values())))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kids) == 8
    assert len(set(kids)) == 1


@pytest.mark.parametrize(("name", "bits"), [(".", 0o750), ("issuer.pem", 0o640), ("issuer.pem", 0o604)])
def test_files_that_others_can_read_are_refused_with_the_remedy(tmp_path: Path, name: str, bits: int) -> None:
    folder = tmp_path / "data"
    LocalIssuer.open(folder)
    (folder / name).chmod(bits)
    with pytest.raises(UnsafePermissions, match=r"chmod [67]00"):
        LocalIssuer.open(folder)


def test_a_key_file_that_is_a_link_or_damaged_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    LocalIssuer.open(folder)
    key = folder / "issuer.pem"
    key.write_bytes(b"damaged")
    with pytest.raises(KeyDamaged, match=r"issuer\.pem"):
        LocalIssuer.open(folder)
    key.rename(tmp_path / "elsewhere")
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IssuerError):
        LocalIssuer.open(folder)


def test_client_secrets_are_made_at_first_use_kept_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    one, other = LocalIssuer.open(folder), LocalIssuer.open(folder)
    secret = one.client_secret("heist", "planner")
    assert len(secret) >= 43
    assert other.client_secret("heist", "planner") == secret
    assert other.client_secret("heist", "hacker") != secret
    assert one.check_secret("heist/planner", secret) == ("heist", "planner")
    assert one.check_secret("heist/planner", secret + "x") is None
    assert one.check_secret("heist/hacker", secret) is None
    assert one.check_secret("heist/nobody", secret) is None
    assert all(mode(p) == 0o600 for p in folder.iterdir())
    (folder / "clients.json").chmod(0o644)
    with pytest.raises(UnsafePermissions):
        one.check_secret("heist/planner", secret)


def test_secrets_made_at_once_are_all_kept(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "data")
    made: dict[int, str] = {}

    def make(i: int) -> None:
        made[i] = issuer.client_secret("heist", f"agent-{i}")

    threads = [threading.Thread(target=make, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {i: issuer.client_secret("heist", f"agent-{i}") for i in range(12)} == made
