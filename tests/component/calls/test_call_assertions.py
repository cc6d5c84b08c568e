"""What a backend is told with each call: an assertion that it verifies with the registry's published keys."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from evil_upstream import Request, response, upstream
from registry_harness import ISSUER, RunningRegistry, binding, running_registry, tool
from suites import examples
from toolcrib.resources.backends import AuthType, Method
from toolcrib.resources.placing import ParameterPlace
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, PublishedParameter, SecretReference
from toolcrib.wire.publish import Credential, Credentials
from toolcrib_cli.example_tools import JWKS_PATH, Address, CallAssertions, keys_at, serving

pytestmark = pytest.mark.anyio

PUBLIC = "https://toolcrib.test"
HEADER = "toolcrib-assertion"
BOT = "system:serviceaccount:team:bot"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def service(path: str = "/run", **fields: Any) -> PublishedBackend:
    return PublishedBackend(
        service_namespace="team", service_name="files", service_port=80, path=path, **fields
    )


@asynccontextmanager
async def running(*published: Any, **fields: Any) -> AsyncIterator[RunningRegistry]:
    """A registry beside the loop of the test: it has one of its own."""
    held = running_registry(*published, assertion={"issuer": PUBLIC}, **fields)
    made = await asyncio.to_thread(held.__enter__)
    try:
        yield made
    finally:
        await asyncio.to_thread(held.__exit__, None, None, None)


def registry(
    port: int, backend: PublishedBackend, **fields: Any
) -> AbstractAsyncContextManager[RunningRegistry]:
    """A registry with the tool `calculator` of the service account team/bot."""
    made = tool("calculator", backend=backend, **fields)
    return running([made], [binding("bot")], backends={"team/files": f"127.0.0.1:{port}"})


async def call(
    made: RunningRegistry, headers: dict[str, str] | None = None, **arguments: Any
) -> httpx.Response:
    """One call, away from the loop of the backend."""
    given_headers = made.auth("team", "bot") | (headers or {})
    return await asyncio.to_thread(
        lambda: made.http.post(made.url + "/tools/calculator", headers=given_headers, json=arguments)
    )


async def verified(
    made: RunningRegistry, request: Request, tools: tuple[str, ...] = ("team/calculator",)
) -> Any:
    """The claims of a request as a tool's author verifies them."""
    verifier = CallAssertions(PUBLIC, keys_at(made.url + JWKS_PATH), tools)
    return await asyncio.to_thread(
        verifier.verify, request.headers[HEADER], request.method, request.target, request.body
    )


def answer(_: Request) -> bytes:
    return response(b'{"ok":true}')


@pytest.mark.parametrize("method", [Method.POST, Method.GET, Method.PUT, Method.DELETE])
async def test_a_service_learns_who_calls_and_that_the_registry_sent_it(method: Method) -> None:
    async with upstream(answer) as up:
        async with registry(up.port, service("/run/{x}", method=method)) as made:
            before = int(time.time())
            assert (await call(made, x="a b", y="ä&=", z=[1, 2])).status_code == 200
            (request,) = up.requests
            claims = await verified(made, request)

    assert (claims["iss"], claims["aud"]) == (PUBLIC, "team/calculator")
    assert (claims["sub"], claims["sub_iss"]) == (BOT, ISSUER)
    assert claims["content_sha256"] == hashlib.sha256(request.body).hexdigest()
    assert claims["target_sha256"] == hashlib.sha256(request.target.encode()).hexdigest()
    assert (claims["htm"], request.method) == (method.value, method.value)
    assert before <= claims["iat"] <= time.time()
    assert 0 < claims["exp"] - claims["iat"] <= 60
    assert set(claims) == {
        "iss", "aud", "sub", "sub_iss", "iat", "exp", "jti", "htm", "target_sha256", "content_sha256",
    }  # fmt: skip


async def test_headers_that_arguments_fill_are_signed_with_the_request() -> None:
    names = ("X-Api-Version", "X-Dry-Run")
    parameters = tuple(
        PublishedParameter(argument=n, place=ParameterPlace.HEADER, name=name)
        for n, name in zip("xy", names, strict=True)
    )
    async with upstream(answer) as up:
        async with registry(up.port, service("/run", parameters=parameters)) as made:
            assert (await call(made, x="2022-11")).status_code == 200
            (request,) = up.requests
            verifier = CallAssertions(PUBLIC, keys_at(made.url + JWKS_PATH), ("team/calculator",))

            def verify(headers: dict[str, str] | None) -> Any:
                sent = (request.method, request.target, request.body)
                return verifier.verify(request.headers[HEADER], *sent, headers)

            for other in (
                request.headers | {"x-api-version": "2099-01"},
                request.headers | {"x-dry-run": "true"},
                {name: value for name, value in request.headers.items() if name != "x-api-version"},
                None,
            ):
                with pytest.raises(jwt.PyJWTError, match="other header fields"):
                    await asyncio.to_thread(verify, other)
            claims = await asyncio.to_thread(verify, request.headers)

    assert claims["fields"] == ["x-api-version", "x-dry-run"]
    assert claims["fields_sha256"] == hashlib.sha256(b"x-api-version: 2022-11\n").hexdigest()


@pytest.mark.parametrize(
    ("asked", "by_service", "sent"),
    [(None, True, True), (False, True, False), (None, False, False), (True, False, True)],
)
async def test_it_is_sent_to_services_and_to_urls_only_where_asked(
    asked: bool | None, by_service: bool, sent: bool
) -> None:
    async with upstream(answer) as up:
        place = service() if by_service else PublishedBackend(url=f"{up.url}/run")
        async with registry(up.port, place.model_copy(update={"assertion": asked})) as made:
            assert (await call(made)).status_code == 200
            (request,) = up.requests
            assert (HEADER in request.headers) is sent
            if sent:
                await verified(made, request)


@pytest.mark.parametrize("by_service", [True, False])
@pytest.mark.parametrize("name", ["Toolcrib-Assertion", "toolcrib-assertion", "TOOLCRIB-ASSERTION"])
async def test_an_agents_own_header_never_arrives(by_service: bool, name: str) -> None:
    async with upstream(answer) as up:
        place = service() if by_service else PublishedBackend(url=f"{up.url}/run")
        async with registry(up.port, place) as made:
            await call(made, {name: "forged"}, **{name: "forged"})
            (request,) = up.requests
            assert request.headers.get(HEADER, "") != "forged"
            assert (HEADER in request.headers) is by_service


async def test_a_credential_in_the_assertions_header_is_refused_before_anything_is_sent() -> None:
    secret = SecretReference(namespace="team", name="key", key="k")
    auth = PublishedAuth(type=AuthType.HEADER, header="Toolcrib-Assertion", secret=secret)
    value = Credential(namespace="team", name="key", key="k", hosts=("files",), value="forged")
    async with upstream(answer) as up:
        async with registry(up.port, service(auth=auth)) as made:
            made.admin(
                "POST", "/v1/admin/credentials",
                content=Credentials(epoch=1, credentials=(value,)).model_dump_json(),
            )  # fmt: skip
            assert (await call(made)).json()["code"] == "egress_refused"
        assert up.accepts == 0


async def test_each_try_has_an_assertion_of_its_own() -> None:
    tries = iter([b"", response(b'{"ok":true}')])
    async with upstream(lambda _: next(tries)) as up:
        async with registry(up.port, service(), annotations={"idempotentHint": True}) as made:
            assert (await call(made)).status_code == 200
            first, second = [await verified(made, request) for request in up.requests]

    assert first["jti"] != second["jti"]


async def test_every_call_has_another_jti() -> None:
    async with upstream(answer) as up:
        async with registry(up.port, service()) as made:
            for _ in range(20):
                await call(made)
            found = [jwt.decode(r.headers[HEADER], options={"verify_signature": False}) for r in up.requests]

    assert len({claims["jti"] for claims in found}) == 20


async def test_it_stands_in_no_log_and_in_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def repeats(request: Request) -> bytes:
        sent = request.headers[HEADER]
        return response(b'{"error":"' + sent.encode() + b'"}', status=200 if b"ok" in request.body else 401)

    async with upstream(repeats) as up:
        async with registry(up.port, service()) as made:
            told = [await call(made, say="ok"), await call(made, say="no")]
            signatures = [request.headers[HEADER].rpartition(".")[2] for request in up.requests]
            metrics = await asyncio.to_thread(made.metrics)

    assert [t.json()["code"] for t in told] == ["upstream_protocol", "tool_error"]
    assert len(signatures) == 2
    for signature in signatures:
        assert signature not in caplog.text + metrics + "".join(t.text for t in told)


async def test_the_keys_are_public_cacheable_and_never_private() -> None:
    async with running(publish=False) as made:
        url = made.url + JWKS_PATH
        answered = await asyncio.to_thread(made.http.get, url)
        with_bad_token = await asyncio.to_thread(
            lambda: made.http.get(url, headers={"Authorization": "Bearer x"})
        )

    assert answered.status_code == 200
    assert answered.json() == with_bad_token.json()
    assert "max-age=60" in answered.headers["cache-control"]
    for key in answered.json()["keys"]:
        assert set(key) == {"kty", "crv", "x", "y", "use", "alg", "kid"}


# ------------------------------------------------------------------------------------------- what tools refuse


class Keys:
    """A registry's keys without a registry."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())

    def get_signing_key_from_jwt(self, token: str) -> jwt.PyJWK:
        public = jwt.algorithms.ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return jwt.PyJWK(public | {"alg": "ES256"})


KEYS = Keys()
SENT = ("POST", "/run?x=1", b'{"a":1}')


def claims_of(sent: tuple[str, str, bytes] = SENT, **changes: Any) -> dict[str, Any]:
    now = int(time.time())
    method, target, body = sent
    whole = {
        "iss": PUBLIC, "aud": "team/calculator", "sub": BOT, "sub_iss": ISSUER, "iat": now, "exp": now + 60,
        "jti": hashlib.sha256(repr((now, changes)).encode()).hexdigest(), "htm": method,
        "target_sha256": hashlib.sha256(target.encode()).hexdigest(), "content_sha256": hashlib.sha256(body).hexdigest(),
    }  # fmt: skip
    return {name: value for name, value in (whole | changes).items() if value is not ...}


def verifier(*tools: str) -> CallAssertions:
    return CallAssertions(PUBLIC, KEYS, tools or ("team/calculator",))  # type: ignore[arg-type]


def signed(claims: dict[str, Any], key: Any = None, algorithm: str = "ES256") -> str:
    return jwt.encode(claims, key or KEYS.private, algorithm)


def test_what_the_registry_sends_is_taken_once() -> None:
    checker, token = verifier("team/*"), signed(claims_of())
    assert checker.verify(token, *SENT)["sub"] == BOT

    with pytest.raises(jwt.PyJWTError, match="used before"):
        checker.verify(token, *SENT)


@pytest.mark.parametrize("name", sorted(claims_of()))
def test_each_claim_is_needed(name: str) -> None:
    with pytest.raises(jwt.PyJWTError):
        verifier().verify(signed(claims_of(**{name: ...})), *SENT)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.test"},
        {"aud": "evil/calculator"},
        {"aud": "team/calculator/x"},
        {"aud": ["team/calculator"]},
        {"exp": -30},
        {"iat": 300, "exp": 360},
        {"htm": "GET"},
        {"content_sha256": hashlib.sha256(b"").hexdigest()},
    ],
    ids=str,
)
def test_what_was_made_for_another_purpose_is_refused(changes: dict[str, Any]) -> None:
    now = int(time.time())
    changes = {name: now + value if name in ("iat", "exp") else value for name, value in changes.items()}
    with pytest.raises(jwt.PyJWTError):
        verifier().verify(signed(claims_of(**changes)), *SENT)


@examples(200)
@given(
    st.tuples(
        st.sampled_from(["GET", "POST", "post"]),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12).map(lambda t: "/" + t),
        st.binary(max_size=12),
    )
)
def test_it_holds_for_no_other_request(other: tuple[str, str, bytes]) -> None:
    token = signed(claims_of())
    if other != SENT:
        with pytest.raises(jwt.PyJWTError):
            verifier().verify(token, *other)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        signed(claims_of(), ec.generate_private_key(ec.SECP256R1())),
        signed(claims_of(), "k" * 64, "HS256"),
        jwt.encode(claims_of(), None, "none"),
    ],
    ids=["empty", "text", "three parts", "another key", "symmetric", "none"],
)
def test_what_no_key_of_the_registry_signed_is_refused(token: str) -> None:
    with pytest.raises(jwt.PyJWTError):
        verifier().verify(token, *SENT)


def test_used_ones_are_forgotten_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = verifier()
    for number in range(50):
        checker.verify(signed(claims_of(jti=str(number))), *SENT)
    assert len(checker._seen) == 50
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 66)
    checker._seen["later"] = now() + 1_000
    fresh = claims_of(jti="new", iat=int(now() + 66), exp=int(now() + 126))
    monkeypatch.setattr(jwt.api_jwt, "datetime", Later)
    checker.verify(signed(fresh), *SENT)

    assert set(checker._seen) == {"later", "new"}


class Later(jwt.api_jwt.datetime):  # type: ignore[misc,name-defined]
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)


# ------------------------------------------------------------------------------------------- the example tools


@pytest.fixture
async def guarded() -> AsyncIterator[tuple[Address, RunningRegistry]]:
    """The example tools behind a registry, as one tool of it."""
    async with running(publish=False) as keys_only:
        checker = CallAssertions(PUBLIC, keys_at(keys_only.url + JWKS_PATH), ["team/*"])
        async with serving(assertions=checker) as address:
            keys_only.publish(
                [
                    tool(
                        "calculator",
                        backend=PublishedBackend(url=f"{address.url}/tools/calculator", assertion=True),
                    )
                ],
                [binding("bot")],
            )
            yield address, keys_only


async def test_the_example_tools_answer_the_registry(guarded: tuple[Address, RunningRegistry]) -> None:
    _, made = guarded
    answered = await call(made, expression="6 * 7")

    assert answered.status_code == 200, answered.text
    assert answered.json()["result"] == 42


async def test_the_example_tools_refuse_callers_that_bypass_the_registry(
    guarded: tuple[Address, RunningRegistry],
) -> None:
    address, _ = guarded
    async with httpx.AsyncClient(base_url=address.url, trust_env=False) as direct:
        for given_headers, code in (
            ({}, "assertion_required"),
            ({HEADER: "x"}, "assertion_refused"),
            ({HEADER: signed(claims_of())}, "assertion_refused"),
        ):
            for path in ("/tools/calculator", "/tools/echo", "/tools/echo/some-tool"):
                refused = await direct.post(path, json={"expression": "1"}, headers=given_headers)
                assert (refused.status_code, refused.json()["code"]) == (401, code)
        assert (await direct.get("/healthz")).status_code == 200


async def test_the_example_tools_refuse_a_replayed_call() -> None:
    seen: list[Request] = []
    async with running(publish=False) as made:
        checker = CallAssertions(PUBLIC, keys_at(made.url + JWKS_PATH), ["team/*"])
        async with (
            serving(assertions=checker) as address,
            upstream(lambda r: seen.append(r) or answer(r)) as up,
        ):
            # who sits on the way, or a replica of the backend: it sees the whole request
            made.publish(
                [
                    tool(
                        "calculator",
                        backend=PublishedBackend(url=f"{up.url}/tools/calculator", assertion=True),
                    )
                ],
                [binding("bot")],
            )
            await call(made, expression="6 * 7")
            headers = {k: v for k, v in seen[0].headers.items() if k in (HEADER, "content-type")}
            async with httpx.AsyncClient(base_url=address.url, trust_env=False) as direct:
                codes = [
                    (
                        await direct.post("/tools/calculator", content=seen[0].body, headers=headers)
                    ).status_code
                    for _ in range(3)
                ]

    assert codes == [200, 401, 401]


async def test_example_tools_that_cannot_fetch_the_keys_refuse_and_say_so() -> None:
    async with upstream(lambda _: response(b"no", status=500)) as up:
        checker = CallAssertions(PUBLIC, keys_at(up.url + JWKS_PATH), ["team/*"])
        async with serving(assertions=checker) as address:
            async with httpx.AsyncClient(base_url=address.url, trust_env=False) as direct:
                refused = await direct.post("/tools/echo", json={}, headers={HEADER: signed(claims_of())})

    assert (refused.status_code, refused.json()["code"]) == (503, "keys_unavailable")
