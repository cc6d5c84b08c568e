"""Issuers' keys from real servers and files: rotation, outage, and that callers cannot cause fetches."""

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from evil_upstream import Behaviour, Request, Upstream, drip, endless, response, upstream
from jwks_server import KeyServer, Signer
from realparts.pki import write_server_certificate
from toolcrib.errors import UnknownKey
from toolcrib.identity import Issuer, check_issuers, verify
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.identity.jwks import JwksInvalid, public_keys
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy
from waiting import until

pytestmark = pytest.mark.anyio


class Clock:
    """Monotonic seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def issuer(**fields: Any) -> Issuer:
    return Issuer(**{"issuer": "https://idp.example", "audience": ("toolcrib",), **fields})


@asynccontextmanager
async def store(one: Issuer, clock: Clock | None = None, **options: Any) -> AsyncIterator[KeyStore]:
    async with OutboundHttp(EgressPolicy()) as outbound:
        keys = KeyStore([one], outbound, clock=clock or Clock(), **options)
        await keys.start()
        try:
            yield keys
        finally:
            await keys.close()


def kids(keys: KeyStore, one: Issuer) -> set[str]:
    return set(keys.keys.get(one.issuer, {}))


async def test_a_token_verifies_with_keys_fetched_from_the_issuer() -> None:
    signer = Signer("k1")
    async with upstream(KeyServer(signer)) as up:
        one = issuer(jwks_uri=f"{up.url}/jwks?x=1")
        async with store(one) as keys:
            identity = verify(
                signer.token(one.issuer), issuers=check_issuers([one]), keys=keys.keys, now=time.time()
            )
            assert identity.subject == "me"
            assert up.requests[0].target == "/jwks?x=1"
            assert "authorization" not in up.requests[0].headers


async def test_a_rotated_key_is_found_when_a_token_names_it_and_the_old_one_is_dropped() -> None:
    old, new = Signer("old"), Signer("new")
    server = KeyServer(old)
    async with upstream(server) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one) as keys:
            version = keys.version
            server.keys = [new.jwk]
            with pytest.raises(UnknownKey) as unknown:
                verify(new.token(one.issuer), issuers=check_issuers([one]), keys=keys.keys, now=time.time())
            assert await keys.refresh(unknown.value.issuer)
            assert kids(keys, one) == {"new"}
            assert keys.version > version
            verify(new.token(one.issuer), issuers=check_issuers([one]), keys=keys.keys, now=time.time())


async def test_ten_thousand_unknown_key_ids_cause_one_fetch_in_thirty_seconds() -> None:
    clock = Clock()
    async with upstream(KeyServer(Signer("k"))) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one, clock) as keys:
            assert up.accepts == 1
            answers = await asyncio.gather(*(keys.refresh(one.issuer) for _ in range(5_000)))
            assert not any(answers)
            for _ in range(5_000):
                await keys.refresh(one.issuer)
            assert up.accepts == 2
            clock.now += 29.9
            await keys.refresh(one.issuer)
            assert up.accepts == 2
            clock.now += 0.2
            await keys.refresh(one.issuer)
            assert up.accepts == 3
            assert keys.version == 2


async def test_those_who_come_while_a_fetch_runs_share_its_outcome() -> None:
    old, new = Signer("old"), Signer("new")
    server = KeyServer(old)
    async with upstream(server) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one) as keys:
            server.keys = [old.jwk, new.jwk]
            assert all(await asyncio.gather(*(keys.refresh(one.issuer) for _ in range(50))))
            assert up.accepts == 2


async def test_a_waiter_that_gives_up_takes_the_fetch_from_nobody_and_is_really_cancelled() -> None:
    old, new = Signer("old"), Signer("new")
    server = KeyServer(old)
    async with upstream(server) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one) as keys:
            server.keys = [new.jwk]
            first = asyncio.create_task(keys.refresh(one.issuer))
            second = asyncio.create_task(keys.refresh(one.issuer))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await second


async def test_nobody_fetches_for_an_issuer_that_is_not_trusted() -> None:
    async with upstream(KeyServer(Signer("k"))) as up, store(issuer(jwks_uri=up.url)) as keys:
        assert not await keys.refresh(up.url)
        assert up.accepts == 1


OUTAGES: dict[str, bytes] = {
    "gone": b"",
    "error": response(b'{"keys":[]}', status=500),
    "redirect": response(b"", status=302, headers=("Location: http://127.0.0.1:1/",)),
    "html": response(b"<html>", content_type="text/html"),
    "not a key set": response(b"[]"),
    "keys are no list": response(b'{"keys":{}}'),
    "too large": response(b'{"keys":[' + b" " * 300_000 + b"]}"),
    "too many": response(json.dumps({"keys": [{}] * 101}).encode()),
    "lying length": response(b'{"keys":[]}', length=999),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_a_failed_fetch_never_loses_good_keys(name: str) -> None:
    good = KeyServer(Signer("k"))
    failing = [False]
    async with upstream(lambda r: OUTAGES[name] if failing[0] else good(r)) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one) as keys:
            failing[0] = True
            before = keys.version
            assert not await keys.refresh(one.issuer)
            assert kids(keys, one) == {"k"}
            assert keys.version == before


@pytest.mark.parametrize("behaviour", [drip, endless])
async def test_a_hostile_key_server_costs_bounded_time(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib_registry.identity.key_store.FETCH_SECONDS", 0.2)
    started = time.monotonic()
    async with upstream(raw=behaviour) as up, store(issuer(jwks_uri=up.url)) as keys:
        assert keys.version == 1
    assert time.monotonic() - started < 15


async def test_an_issuer_that_is_down_at_the_start_is_found_soon_without_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcrib_registry.identity.key_store.RETRY_SECONDS", (0.02,))
    server = KeyServer(Signer("k"))
    server.down = True
    async with upstream(server) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one) as keys:  # whose refreshes are five minutes apart
            assert kids(keys, one) == set()
            server.down = False
            await until(lambda: kids(keys, one) == {"k"})


async def test_keys_are_refreshed_from_time_to_time() -> None:
    server = KeyServer(Signer("a"))
    async with upstream(server) as up:
        one = issuer(jwks_uri=up.url)
        async with store(one, refresh_seconds=0.02) as keys:
            server.keys = [Signer("b").jwk]
            await until(lambda: kids(keys, one) == {"b"})


def discovery(document: Callable[[Upstream], dict[str, Any]], signer: Signer, box: list[Upstream]) -> Any:
    def answer(request: Request) -> bytes:
        if request.target.endswith("/.well-known/openid-configuration"):
            return response(json.dumps(document(box[0])).encode())
        return response(json.dumps({"keys": [signer.jwk]}).encode())

    return answer


@pytest.mark.parametrize("suffix", ["", "/", "/realms/x"])
async def test_without_an_address_keys_are_discovered(suffix: str) -> None:
    box: list[Upstream] = []
    document = lambda up: {"issuer": up.url + suffix, "jwks_uri": f"{up.url}/keys"}  # noqa: E731
    async with upstream(discovery(document, Signer("k"), box)) as up:
        box.append(up)
        one = issuer(issuer=up.url + suffix)
        async with store(one) as keys:
            assert kids(keys, one) == {"k"}
            expected = suffix.rstrip("/") + "/.well-known/openid-configuration"
            assert [r.target for r in up.requests] == [expected, "/keys"]


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example", "jwks_uri": "UP/keys"},
        {"jwks_uri": "UP/keys"},
        {"issuer": "UP"},
        {"issuer": "UP", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "UP", "jwks_uri": 7},
    ],
)
async def test_a_discovery_document_of_another_issuer_or_without_keys_is_not_used(
    document: dict[str, Any],
) -> None:
    box: list[Upstream] = []

    def filled(up: Upstream) -> dict[str, Any]:
        return {k: v.replace("UP", up.url) if isinstance(v, str) else v for k, v in document.items()}

    async with upstream(discovery(filled, Signer("k"), box)) as up:
        box.append(up)
        async with store(issuer(issuer=up.url)) as keys:
            assert keys.version == 1
            assert len(up.requests) == 1


async def test_the_configured_ca_and_token_are_used_and_the_token_read_again(tmp_path: Path) -> None:
    write_server_certificate(tmp_path, ("127.0.0.1",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    token = tmp_path / "token"
    token.write_text("first\n")
    clock = Clock()
    async with upstream(KeyServer(Signer("k")), tls=tls) as up:
        async with store(issuer(jwks_uri=up.url)) as keys:
            assert keys.version == 1  # the system does not know this CA
        one = issuer(jwks_uri=up.url, ca_file=str(tmp_path / "ca.crt"), token_file=str(token))
        async with store(one, clock) as keys:
            assert kids(keys, one) == {"k"}
            token.write_text("second")
            await keys.refresh(one.issuer)
        assert [r.headers["authorization"] for r in up.requests] == ["Bearer first", "Bearer second"]


async def test_keys_of_a_file_follow_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_registry.identity.key_store.FILE_SECONDS", 0.02)
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [Signer("a").jwk]}))
    one = issuer(jwks_file=str(file))
    async with store(one) as keys:
        assert kids(keys, one) == {"a"}
        draft = tmp_path / "new"
        draft.write_text(json.dumps({"keys": [Signer("b").jwk]}))
        os.replace(draft, file)
        await until(lambda: kids(keys, one) == {"b"})
        file.write_text("{")
        assert kids(keys, one) == {"b"}


async def test_keys_that_are_known_already_are_never_fetched() -> None:
    async with upstream(KeyServer(Signer("k"))) as up:
        one = issuer(issuer=up.url)
        async with store(one, fixed={one.issuer: {"x": object()}}) as keys:
            assert kids(keys, one) == {"x"}
            assert not await keys.refresh(one.issuer)
            assert up.accepts == 0


def rsa_jwk(bits: int) -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key()
    return dict(jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True))


def test_only_sound_public_signature_keys_are_taken() -> None:
    good = Signer("good").jwk
    private = jwt.algorithms.ECAlgorithm.to_jwk(Signer("p").key, as_dict=True)
    ed = jwt.algorithms.OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    listed = [
        {**good, "kid": "encrypts", "use": "enc"},
        {**good, "kid": "wraps", "key_ops": ["wrapKey"]},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"},
        {"kty": "oct", "kid": "symmetric too"},
        {**private, "kid": "private"},
        {**good, "kid": "hmac", "alg": "HS256"},
        {**good, "kid": "other algorithm", "alg": "ES512"},
        {**good, "kid": "no point", "x": "AA"},
        {**good, "kid": 7},
        {**good, "kid": "k" * 300},
        {**ed, "kid": "not accepted here"},
        {**rsa_jwk(1024), "kid": "weak"},
        {"kty": ["EC"], "kid": "type"},
        "nonsense",
        None,
        {**rsa_jwk(2048), "kid": "rsa"},
        good,
        {**Signer("good").jwk},
    ]
    keys, _ = public_keys({"keys": listed}, issuer())
    assert set(keys) == {"rsa", "good"}
    assert keys["good"].public_numbers() == jwt.PyJWK(good).key.public_numbers()


def test_a_document_that_is_no_key_set_is_refused() -> None:
    for document in (None, [], {}, {"keys": None}, {"keys": [{}] * 101}):
        with pytest.raises(JwksInvalid):
            public_keys(document, issuer())
