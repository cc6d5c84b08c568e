"""A call as a backend sees it: what is sent, how it authenticates, what comes back."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evil_upstream import Request, Upstream, response, upstream
from published import bot
from published import tool as published_tool
from toolcrib.errors import EpochFenced
from toolcrib.resources.backends import AuthType, Method
from toolcrib.version import __version__
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, SecretReference
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import (
    CallError,
    CredentialPending,
    InvalidArguments,
    NoBackend,
    Refused,
    ToolError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamUnreachable,
)
from toolcrib_registry.outbound.guard import EgressPolicy

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The loop of tests and the loop that `serve` runs on."""
    return "asyncio", {"use_uvloop": request.param}


REFERENCE = SecretReference(namespace="heist", name="files-key", key="token")


def tool(
    schema: dict[str, Any] | None = None, hints: dict[str, bool] | None = None, **backend: Any
) -> PublishedTool:
    backend = {"service_namespace": "heist", "service_name": "files", "service_port": 80, **backend}
    return published_tool(
        "heist/reader",
        input_schema=schema or {"type": "object"},
        annotations=hints or {},
        backend=PublishedBackend(**backend),
    )


def credential(value: str, *hosts: str) -> CredentialStore:
    store = CredentialStore()
    one = Credential(namespace="heist", name="files-key", key="token", hosts=hosts, value=value)
    store.replace(Credentials(epoch=1, credentials=(one,)))
    return store


def auth(kind: AuthType, header: str | None = None) -> PublishedAuth:
    return PublishedAuth(type=kind, header=header, secret=REFERENCE)


@asynccontextmanager
async def calling(
    port: int, credentials: CredentialStore | None = None, **limits: int
) -> AsyncIterator[HttpBackend]:
    policy = EgressPolicy(backends={"heist/files": f"127.0.0.1:{port}"})
    async with OutboundHttp(policy) as outbound:
        yield HttpBackend(outbound, credentials or CredentialStore(), policy, CallBounds(**limits))


def given(arguments: dict[str, Any]) -> CheckedArguments:
    return CheckedArguments(arguments, serialised(arguments))


NONE = given({})


def ok(_: Request) -> bytes:
    return response(b'{"ok":true}')


async def sent(one: PublishedTool, arguments: dict[str, Any], **how: Any) -> Request:
    async with upstream(ok) as up, calling(up.port, **how) as caller:
        await caller.call(one, given(arguments), "req-1", bot())
        return up.requests[0]


async def test_a_post_carries_the_arguments_in_our_own_serialisation() -> None:
    request = await sent(tool(path="/tools/read"), {"b": "größe", "a": [1, 2.5, None, True]})
    assert (request.method, request.target) == ("POST", "/tools/read")
    assert request.body == '{"b":"größe","a":[1,2.5,null,true]}'.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"toolcrib/{__version__}"
    assert request.headers["x-request-id"] == "req-1"


async def test_nothing_but_the_expected_headers_is_sent() -> None:
    request = await sent(tool(), {"authorization": "Bearer x", "X-Evil": "y", "host": "z"})
    assert set(request.headers) == {
        "host", "accept", "accept-encoding", "user-agent", "x-request-id", "content-type", "content-length",
    }  # fmt: skip


async def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(ok) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await sent(tool(), {})
        assert proxy.accepts == 0


async def test_a_get_sends_arguments_in_the_query() -> None:
    request = await sent(
        tool(method=Method.GET, path="/find"),
        {"q": "a&b=c d", "n": 3, "deep": False, "ids": [1, 2], "no": None},
    )
    assert request.target == "/find?q=a%26b%3Dc%20d&n=3&deep=false&ids=1&ids=2"
    assert request.body == b""


async def test_path_arguments_are_encoded_and_leave_the_body() -> None:
    request = await sent(tool(path="/files/{name}/raw"), {"name": "a b?x=%2e#", "mode": "r"})
    assert request.target == "/files/a%20b%3Fx%3D%252e%23/raw"
    assert json.loads(request.body) == {"mode": "r"}


async def test_a_url_backend_keeps_its_own_query() -> None:
    async with upstream(ok) as up:
        policy = EgressPolicy(loopback=True)
        async with OutboundHttp(policy) as outbound:
            caller = HttpBackend(outbound, CredentialStore(), policy)
            one = tool(method=Method.GET, service_name=None, service_namespace=None, url=f"{up.url}/x?v=1")
            await caller.call(one, given({"q": "2"}), "r", bot())
        assert up.requests[0].target == "/x?v=1&q=2"


@pytest.mark.parametrize("method", [Method.GET, Method.DELETE])
@pytest.mark.parametrize(
    ("fixed", "name"),
    [
        ("tenant=a", "tenant"),
        ("x=1&tenant=a", "Tenant"),
        ("ten%61nt=a", "tenant"),
        ("x=1;tenant=a", "tenant"),
        ("tenant", "tenant"),
        ("tenant=a", "tenant[]"),
        ("tenant=a", "tenant[0]"),
        ("tenant=a", " tenant"),
        ("tenant=a", "tenant\0x"),
        ("tenant[]=a", "tenant"),
        ("tenant_id=a", "tenant.id"),
        ("tenant+id=a", "tenant_id"),
    ],
)
async def test_an_argument_never_adds_a_value_to_a_query_parameter_that_the_author_fixed(
    method: Method, fixed: str, name: str
) -> None:
    async with upstream(ok) as up, OutboundHttp(EgressPolicy(loopback=True)) as outbound:
        caller = HttpBackend(outbound, CredentialStore(), EgressPolicy(loopback=True))
        one = tool(method=method, service_name=None, service_namespace=None, url=f"{up.url}/x?{fixed}")
        with pytest.raises(InvalidArguments, match="sets this query parameter") as refused:
            await caller.call(one, given({name: "b", "q": "2"}), "r", bot())
        await caller.call(one, given({"q": "2"}), "r", bot())

        assert refused.value.extra["errors"][0]["pointer"] == f"/{name}"
        assert [r.target for r in up.requests] == [f"/x?{fixed}&q=2"]


async def test_the_result_is_json_with_its_type_and_time() -> None:
    async with upstream(ok) as up, calling(up.port) as caller:
        result = await caller.call(tool(), NONE, "r", bot())
    assert (result.media_type, result.structured) == ("application/json", {"ok": True})
    assert result.raw == b'{"ok":true}'
    assert 0 < result.elapsed < 5


@pytest.mark.parametrize(
    ("kind", "header", "value", "name", "expected"),
    [
        (AuthType.BEARER, None, "s3cret\n", "authorization", "Bearer s3cret"),
        (
            AuthType.BASIC,
            None,
            "u:pä",
            "authorization",
            f"Basic {base64.b64encode('u:pä'.encode()).decode()}",
        ),
        (AuthType.HEADER, "X-Api-Key", "k", "x-api-key", "k"),
    ],
)
async def test_the_credential_goes_where_its_type_says(
    kind: AuthType, header: str | None, value: str, name: str, expected: str
) -> None:
    request = await sent(tool(auth=auth(kind, header)), {}, credentials=credential(value, "files.heist.svc"))
    assert request.headers[name] == expected


async def test_a_credential_that_has_not_arrived_is_pending() -> None:
    with pytest.raises(CredentialPending) as refused:
        await sent(tool(auth=auth(AuthType.BEARER)), {})
    assert refused.value.code == "credential_pending"


@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: 1", "ключ", "a\x00b"])
async def test_a_credential_that_cannot_stand_in_a_header_is_not_sent(value: str) -> None:
    store = credential(value, "files.heist.svc")
    with pytest.raises(CredentialPending) as refused:
        await sent(tool(auth=auth(AuthType.BEARER)), {}, credentials=store)
    assert not value or value not in str(refused.value)


async def test_a_credential_goes_only_to_hosts_of_its_list() -> None:
    async with upstream(ok) as up:
        store = credential("s3cret", "files.other.svc", "127.0.0.1", "api.example.com")
        async with calling(up.port, store) as caller:
            with pytest.raises(Refused, match="hosts"):
                await caller.call(tool(auth=auth(AuthType.BEARER)), NONE, "r", bot())
        assert up.accepts == 0


async def test_credentials_are_replaced_whole_and_fenced_by_epoch() -> None:
    store = credential("s3cret", "a")
    assert "s3cret" not in repr(store) + repr(store.get(REFERENCE))
    with pytest.raises(EpochFenced):
        store.replace(Credentials(epoch=0))
    assert store.get(REFERENCE) is not None
    store.replace(Credentials(epoch=2))
    assert store.get(REFERENCE) is None


async def test_a_tool_without_backend_says_so() -> None:
    async with calling(9) as caller:
        with pytest.raises(NoBackend):
            await caller.call(tool().model_copy(update={"backend": None}), NONE, "r", bot())


async def test_a_refusing_tool_shows_its_small_json_and_its_status() -> None:
    body = b'{"detail":"no such file"}'
    async with upstream(lambda r: response(body, status=404, headers=("Retry-After: 7",))) as up:
        async with calling(up.port) as caller:
            with pytest.raises(ToolError) as refused:
                await caller.call(tool(), NONE, "r", bot())
    assert refused.value.extra == {"upstream_status": 404, "upstream": {"detail": "no such file"}}
    assert refused.value.retry_after == 7


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>secret stack</html>", "text/html"),
        (b"x" * 100, "text/plain"),
        (b'"' + b"x" * 9_000 + b'"', None),
    ],
)
async def test_a_refusal_that_is_not_small_json_is_not_shown(body: bytes, kind: str | None) -> None:
    async with upstream(lambda r: response(body, status=400, content_type=kind)) as up:
        async with calling(up.port) as caller:
            with pytest.raises(ToolError) as refused:
                await caller.call(tool(), NONE, "r", bot())
    assert refused.value.extra == {"upstream_status": 400}


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"got": "Bearer s3cret-token"}', "application/json"),
        ('{"deep": [{"s3cret-token": 1}]}', "application/json"),
        (f'{{"got": "{_escaped("s3cret-token")}"}}', "application/json"),
        (f'{{"got": "{_escaped("s3cret-token")}", "got": 1}}', "application/json"),
        ('{"got": "s3cret-token", "got": 1}', "application/json"),
        ("you sent s3cret-token", "text/plain"),
        ("you sent s3cret-token", None),
        ("{}", "text/s3cret-token"),
    ],
)
@pytest.mark.parametrize("status", [200, 201, 299])
async def test_a_result_that_repeats_the_credential_is_withheld(
    body: str, content_type: str | None, status: int
) -> None:
    answer = response(body.encode(), status=status, content_type=content_type)
    async with (
        upstream(lambda _: answer) as up,
        calling(up.port, credential("s3cret-token", "files")) as caller,
    ):
        with pytest.raises(UpstreamProtocol, match="withheld") as withheld:
            await caller.call(tool(auth=auth(AuthType.BEARER)), NONE, "r", bot())
    assert "s3cret" not in str(withheld.value) + str(withheld.value.extra)


@pytest.mark.parametrize(
    "said", ["u:long-password", "long-password", base64.b64encode(b"u:long-password").decode()]
)
async def test_a_result_that_repeats_a_part_of_a_basic_credential_is_withheld(said: str) -> None:
    answer = response(json.dumps({"got": said}).encode())
    async with (
        upstream(lambda _: answer) as up,
        calling(up.port, credential("u:long-password", "files")) as caller,
    ):
        with pytest.raises(UpstreamProtocol, match="withheld"):
            await caller.call(tool(auth=auth(AuthType.BASIC)), NONE, "r", bot())


@pytest.mark.parametrize("kind", [AuthType.BEARER, AuthType.BASIC])
async def test_a_refusal_that_repeats_the_credential_is_not_shown(kind: AuthType) -> None:
    def echo(request: Request) -> bytes:
        return response(json.dumps({"got": request.headers["authorization"]}).encode(), status=401)

    async with upstream(echo) as up, calling(up.port, credential("u:s3cret", "files")) as caller:
        with pytest.raises(ToolError) as refused:
            await caller.call(tool(auth=auth(kind)), NONE, "r", bot())
    assert refused.value.extra == {"upstream_status": 401}


async def test_a_failing_backend_is_an_upstream_error() -> None:
    async with upstream(lambda r: response(b'{"trace":"x"}', status=503)) as up, calling(up.port) as caller:
        with pytest.raises(UpstreamError) as failed:
            await caller.call(tool(), NONE, "r", bot())
    assert failed.value.extra == {"upstream_status": 503}


def dying(times: int) -> Any:
    """Connections die before any answer, so often; then it answers."""
    left = [times]

    def answer(_: Request) -> bytes:
        left[0] -= 1
        return b"" if left[0] >= 0 else response()

    return answer


async def attempts(hints: dict[str, bool], times: int, method: Method) -> tuple[Upstream, CallError | None]:
    async with upstream(dying(times)) as up, calling(up.port) as caller:
        try:
            await caller.call(tool(hints=hints, method=method), NONE, "r-1", bot())
        except CallError as error:
            return up, error
        return up, None


@pytest.mark.parametrize("method", list(Method))
async def test_a_call_is_never_repeated_unless_the_tool_says_it_may_be(method: Method) -> None:
    up, error = await attempts({"idempotentHint": False}, 1, method)
    assert isinstance(error, UpstreamUnreachable)
    assert up.accepts == 1


@pytest.mark.parametrize("hint", ["idempotentHint", "readOnlyHint"])
async def test_an_idempotent_call_is_repeated_once(hint: str) -> None:
    up, error = await attempts({hint: True}, 1, Method.POST)
    assert (error, up.accepts) == (None, 2)
    keys = [r.headers["idempotency-key"] for r in up.requests]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    # the caller chose that one, and may have chosen another caller's
    assert "r-1" not in keys
    up, error = await attempts({hint: True}, 5, Method.POST)
    assert isinstance(error, UpstreamUnreachable)
    assert up.accepts == 2


async def test_connections_are_reused() -> None:
    from evil_upstream import read_request

    async def keep_alive(reader: Any, writer: Any) -> None:
        for _ in range(3):
            writer.write(response().replace(b"Connection: close\r\n", b""))
            await writer.drain()
            if await read_request(reader) is None:
                return

    async with upstream(raw=keep_alive) as up, calling(up.port) as caller:
        for _ in range(3):
            await caller.call(tool(), NONE, "r", bot())
        assert up.accepts == 1
