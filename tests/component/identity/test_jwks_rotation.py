"""Issuers' keys as tokens meet them: rotated, gone, slow and malicious, while good tokens go on working."""

import asyncio
import gc
import hashlib
import hmac
import json
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives import serialization

from evil_upstream import (
    Behaviour,
    Request,
    Upstream,
    drip,
    drip_headers,
    endless,
    response,
    silent,
    upstream,
)
from jwks_server import KeyServer, Signer
from registry_harness import ManualClock
from token_kinds import part, signed
from toolcrib.identity import Issuer
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.identity.authenticator import Asker, Authenticator
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy
from waiting import until

pytestmark = pytest.mark.anyio
ISSUER = "https://idp.example"


@dataclass
class Registry:
    """What a request goes through: the cache of verified tokens, the keys, and their server."""

    authenticator: Authenticator
    keys: KeyStore
    up: Upstream
    clock: ManualClock
    seconds: list[float] = field(default_factory=list)

    async def identify(self, token: str) -> Asker:
        """Who the token stands for; how long that took is kept."""
        start = time.perf_counter()
        asker = await self.authenticator.identify([f"Bearer {token}".encode()])
        self.seconds.append(time.perf_counter() - start)
        return asker

    async def good(self, token: str) -> bool:
        """Whether it is accepted."""
        return (await self.identify(token)).identity is not None

    async def refused(self, token: str) -> bool:
        """Whether it is not."""
        return not await self.good(token)


@asynccontextmanager
async def registry(
    server: Callable[[Request], bytes] | None = None,
    *,
    raw: Behaviour | None = None,
    refresh_seconds: float = 300.0,
) -> AsyncIterator[Registry]:
    clock = ManualClock()
    async with upstream(server, raw=raw) as up, OutboundHttp(EgressPolicy()) as outbound:
        one = Issuer(issuer=ISSUER, audience=("toolcrib",), jwks_uri=up.url)
        keys = KeyStore([one], outbound, clock=clock.elapsed, refresh_seconds=refresh_seconds)
        await keys.start()
        try:
            yield Registry(Authenticator([one], keys, clock), keys, up, clock)
        finally:
            await keys.close()


async def test_a_rotation_with_overlap_refuses_nobody_and_ends_the_old_key_with_its_leaving() -> None:
    old, new = Signer("old"), Signer("new")
    server = KeyServer(old)
    async with registry(server, refresh_seconds=0.05) as made:
        seen, unseen, fresh = old.token(ISSUER), old.token(ISSUER, jti="2"), new.token(ISSUER)
        assert await made.good(seen)
        server.keys = [old.jwk, new.jwk]
        assert await made.good(fresh), "at first use"
        before = made.up.accepts
        while made.up.accepts < before + 3:  # over some refreshes
            assert await made.good(seen)
            assert await made.good(fresh)
            await asyncio.sleep(0.005)
        assert await made.good(unseen), "the old key's tokens work until it leaves the set"
        server.keys = [new.jwk]
        await until(lambda: made.refused(seen))
        assert not await made.good(old.token(ISSUER, jti="3"))
        assert await made.good(fresh)
        assert await made.good(new.token(ISSUER, jti="4"))


async def test_a_rotation_without_overlap_is_seen_by_the_first_new_token_and_ends_the_old_ones_with_it() -> (
    None
):
    old, new = Signer("old"), Signer("new")
    server = KeyServer(old)
    async with registry(server) as made:  # whose refreshes are five minutes apart
        seen = old.token(ISSUER)
        assert await made.good(seen)
        server.keys = [new.jwk]
        assert await made.good(seen)
        assert all(await asyncio.gather(*(made.good(new.token(ISSUER, jti=str(n))) for n in range(20))))
        assert made.up.accepts == 2
        assert not await made.good(seen), "it was in the cache of verified tokens"
        assert not await made.good(old.token(ISSUER, jti="2"))


async def test_a_new_key_under_an_old_id_takes_its_place() -> None:
    old, new = Signer("k"), Signer("k")
    server = KeyServer(old)
    async with registry(server, refresh_seconds=0.03) as made:
        token = old.token(ISSUER)
        assert await made.good(token)
        server.keys = [new.jwk]
        await until(lambda: made.refused(token))
        assert await made.good(new.token(ISSUER))


async def attacked(made: Registry, bad: list[str], good: list[str]) -> None:
    """Good tokens, seen and unseen ones, in the midst of bad ones."""
    asked = [asyncio.create_task(made.authenticator.identify([f"Bearer {token}".encode()])) for token in bad]
    await asyncio.sleep(0)
    for token in good:
        assert await made.good(token)
    assert not [asker for asker in await asyncio.gather(*asked) if asker.identity is not None]


@pytest.mark.parametrize("away", [pytest.param("down", marks=pytest.mark.long), "silent"])
async def test_ten_thousand_unknown_key_ids_while_the_keys_are_out_of_reach_cost_good_tokens_nothing(
    away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer, stranger = Signer("k1"), Signer("unknown")
    server = KeyServer(signer)
    hanging = away == "silent"

    async def raw(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.down and hanging:
            await silent(reader, writer)
        writer.write(b"" if server.down else response(json.dumps({"keys": server.keys}).encode()))
        await writer.drain()

    async with registry(raw=raw) as made:
        good = [signer.token(ISSUER, jti=str(n)) for n in range(50)]
        # one signature does: an unknown id is refused before it is looked at
        _, payload, signature = stranger.token(ISSUER).split(".")
        bad = [f"{part({'alg': 'ES256', 'kid': f'k{n}x'})}.{payload}.{signature}" for n in range(10_000)]
        server.down = True
        monkeypatch.setattr("toolcrib_registry.identity.key_store.FETCH_SECONDS", 0.5)
        for chunk in range(10):
            if chunk == 9:
                tracemalloc.start()
            await attacked(made, bad[chunk * 1_000 :][:1_000], good)
            if chunk == 0:
                assert statistics.median(made.seconds) < 0.1, (
                    "who has a good token does not wait for the fetch"
                )
        for _ in range(2):
            await asyncio.sleep(0)  # the loop lets go of what it has woken
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert made.up.accepts == 2, "the start's, and one for all of them"
        assert grown < 300_000, f"{grown} bytes are kept of a thousand tokens that were refused"
        made.clock.advance(30.1)
        assert not await made.good(bad[0])
        assert made.up.accepts == 3
        server.down = False
        monkeypatch.setattr("toolcrib_registry.identity.key_store.FETCH_SECONDS", 30.0)
        made.clock.advance(30.1)
        server.keys.append(stranger.jwk)
        assert await made.good(stranger.token(ISSUER)), "and when they are back, its key is found"
        assert made.up.accepts == 4


@pytest.mark.parametrize("behaviour", [drip, drip_headers, endless, silent])
async def test_a_key_server_that_never_ends_costs_one_fetch_of_bounded_time(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Signer("k1")
    calls = 0

    async def raw(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await behaviour(reader, writer)
        writer.write(response(json.dumps({"keys": [signer.jwk]}).encode()))
        await writer.drain()

    async with registry(raw=raw) as made:
        monkeypatch.setattr("toolcrib_registry.identity.key_store.FETCH_SECONDS", 0.3)
        token = signer.token(ISSUER)
        waiting = asyncio.create_task(made.identify(Signer("unknown").token(ISSUER)))
        await asyncio.sleep(0)
        assert await made.good(token)
        async with asyncio.timeout(15):
            refused = await waiting
        assert (refused.identity, refused.unknown) == (None, False)
        assert await made.good(token)
        assert made.up.accepts == 2


def _document(*keys: object) -> bytes:
    return response(json.dumps({"keys": list(keys)}).encode())


BROKEN = {
    "an error": response(b"{}", status=503),
    "a page": response(b"<html>maintenance</html>", content_type="text/html"),
    "an empty body": response(b""),
    "no key set": response(b'{"error":"x"}'),
    "no list": response(b'{"keys":{"k1":{}}}'),
    "nested 100,000 deep": response(b'{"keys":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "too large": response(b'{"keys":[' + b" " * 300_000 + b"]}"),
    "2,000 keys": _document(*({"kty": "EC", "kid": str(n)} for n in range(2_000))),
    "cut": response(b'{"keys":[{"kty":"EC"', length=2_000),
    "not UTF-8": response(b'{"keys":["\xff"]}'),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_document_that_is_no_key_set_takes_no_key_away(name: str) -> None:
    signer = Signer("k1")
    server = KeyServer(signer)
    async with registry(server) as made:
        assert await made.good(signer.token(ISSUER))
        server.answer = BROKEN[name]
        assert not await made.good(Signer("unknown").token(ISSUER))
        assert made.up.accepts == 2
        assert await made.good(signer.token(ISSUER, jti="2"))


async def test_a_symmetric_key_in_the_set_verifies_nothing_and_takes_nobodys_place() -> None:
    signer, other = Signer("k1"), Signer("k2")
    server = KeyServer(signer)
    async with registry(server) as made:
        secret = {"kty": "oct", "k": part(b"s" * 32), "alg": "HS256"}
        server.keys = [{**secret, "kid": "k1"}, {**secret, "kid": "h1"}, signer.jwk, other.jwk]
        assert await made.good(other.token(ISSUER)), "the set has been read"
        assert set(made.keys.keys[ISSUER]) == {"k1", "k2"}
        assert await made.good(signer.token(ISSUER))
        for alg in ("HS256", "ES256"):
            for kid in ("h1", "k1"):
                assert not await made.good(signed({"alg": alg, "kid": kid}, _claims(), _hs256(b"s" * 32)))
        public = signer.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        assert not await made.good(signed({"alg": "HS256", "kid": "k1"}, _claims(), _hs256(public)))


def _claims() -> dict[str, object]:
    return {"iss": ISSUER, "aud": "toolcrib", "sub": "me", "exp": int(time.time()) + 60, "scope": "a"}


def _hs256(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


async def test_of_two_keys_with_one_id_the_first_counts_and_the_second_proves_nothing() -> None:
    first, second, other = Signer("k1"), Signer("k1"), Signer("k2")
    server = KeyServer(first)
    async with registry(server) as made:
        server.keys = [first.jwk, second.jwk, other.jwk]
        assert await made.good(other.token(ISSUER))
        assert await made.good(first.token(ISSUER))
        assert not await made.good(second.token(ISSUER))


async def test_a_set_that_is_emptied_revokes_all_its_tokens() -> None:
    signer = Signer("k1")
    server = KeyServer(signer)
    async with registry(server, refresh_seconds=0.03) as made:
        token = signer.token(ISSUER)
        assert await made.good(token)
        server.keys = []
        await until(lambda: made.refused(token))
        assert not (await made.identify(token)).unknown, "a refusal: its issuer has been heard"


async def test_a_discovery_document_that_begins_to_speak_of_another_issuer_is_not_followed() -> None:
    signer, thief = Signer("k1"), Signer("stolen")
    state = {"issuer": "", "signer": signer}

    def answer(request: Request) -> bytes:
        if request.target.startswith("/.well-known/"):
            return response(
                json.dumps({"issuer": state["issuer"], "jwks_uri": f"{state['own']}/keys"}).encode()
            )
        return _document(state["signer"].jwk)  # type: ignore[attr-defined]

    clock = ManualClock()
    async with upstream(answer) as up, OutboundHttp(EgressPolicy()) as outbound:
        state |= {"issuer": up.url, "own": up.url}
        one = Issuer(issuer=up.url, audience=("toolcrib",))
        keys = KeyStore([one], outbound, clock=clock.elapsed)
        await keys.start()
        made = Registry(Authenticator([one], keys, clock), keys, up, clock)
        assert await made.good(signer.token(up.url))
        state |= {"issuer": "https://evil.example", "signer": thief}
        assert not await made.good(thief.token(up.url))
        assert await made.good(signer.token(up.url, jti="2"))
        await keys.close()


async def test_the_clock_ends_a_remembered_token_at_its_expiry_and_skew_is_bounded() -> None:
    signer = Signer("k1")
    async with registry(KeyServer(signer)) as made:
        now = made.clock.now()
        token = signer.token(ISSUER, exp=now + 10)
        assert await made.good(token)
        made.clock.advance(9.9)
        assert await made.good(token)
        made.clock.advance(0.1)
        assert not await made.good(token), "no leeway: neither from the cache nor anew"
        now = made.clock.now()
        for claim in ("nbf", "iat"):
            assert await made.good(signer.token(ISSUER, exp=now + 99, **{claim: now + 29}))
            assert not await made.good(signer.token(ISSUER, exp=now + 99, **{claim: now + 31}))
        assert await made.good(signer.token(ISSUER, exp=now + 99, iat=0)), "however old, until it expires"
