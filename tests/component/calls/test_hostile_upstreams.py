"""Backends that misbehave: typed errors, bounded time and memory; and the guard, at the socket."""

import asyncio
import fcntl
import sys
import termios
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from evil_upstream import (
    Behaviour,
    Rebinding,
    bomb,
    drip,
    drip_headers,
    endless,
    endless_headers,
    endless_interim,
    response,
    silent,
    upstream,
)
from published import bot
from published import tool as published_tool
from toolcrib.resources.backends import Method
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import (
    CallError,
    Refused,
    UpstreamProtocol,
    UpstreamRedirect,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from toolcrib_registry.http.problems import problem_of
from toolcrib_registry.outbound.guard import EgressPolicy

pytestmark = pytest.mark.anyio
LIMITS = CallBounds(answer_bytes=256 * 1024)


NONE = CheckedArguments({}, b"{}")


def tool(
    url: str, *, timeout: float = 5.0, hints: dict[str, bool] | None = None, **backend: Any
) -> PublishedTool:
    where = PublishedBackend(url=url, timeout=timeout, **backend)
    return published_tool("a/t", annotations=hints or {}, backend=where)


async def call(one: PublishedTool, policy: EgressPolicy | None = None, resolve: Any = None) -> Any:
    policy = policy or EgressPolicy(loopback=True)
    async with OutboundHttp(policy, resolve=resolve) as outbound:
        return await HttpBackend(outbound, CredentialStore(), policy, LIMITS).call(one, NONE, "r", bot())


async def error_of(one: PublishedTool, policy: EgressPolicy | None = None, resolve: Any = None) -> CallError:
    with pytest.raises(CallError) as caught:
        await call(one, policy, resolve)
    return caught.value


ANSWERS: dict[str, tuple[bytes, type[CallError]]] = {
    "html": (response(b"<html>hi</html>", content_type="text/html; charset=utf-8"), UpstreamProtocol),
    "html without a type": (response(b"  <!DOCTYPE html><p>", content_type=None), UpstreamProtocol),
    "broken json": (response(b'{"a":'), UpstreamProtocol),
    "json with nan": (response(b'{"a":NaN}'), UpstreamProtocol),
    "deep json": (response(b"[" * 101 + b"]" * 101), UpstreamProtocol),
    "very deep json": (response(b"[" * 100_000), UpstreamProtocol),
    "bad utf-8": (response(b'"\xff"'), UpstreamProtocol),
    "binary": (response(b"\x00\x01\x02", content_type="application/octet-stream"), UpstreamProtocol),
    "length too long": (response(b"{}", length=100), UpstreamProtocol),
    "length too short": (response(b'{"a":1}', length=3), UpstreamProtocol),
    "length negative": (response(b"{}", length=-1), UpstreamProtocol),
    "two lengths": (response(b"{}", headers=("Content-Length: 9",)), UpstreamProtocol),
    "length and chunks": (response(b"0\r\n\r\n", headers=("Transfer-Encoding: chunked",)), UpstreamProtocol),
    "huge length": (response(b"{}", length=1 << 50), UpstreamTooLarge),
    "large body": (response(b" " * 300_000), UpstreamTooLarge),
    "gzip bomb": (response(bomb(50), headers=("Content-Encoding: gzip",)), UpstreamTooLarge),
    "gzip cut short": (response(bomb(1)[:200], headers=("Content-Encoding: gzip",)), UpstreamProtocol),
    "gzip that is none": (response(b"{}", headers=("Content-Encoding: gzip",)), UpstreamProtocol),
    "unknown encoding": (response(b"{}", headers=("Content-Encoding: br",)), UpstreamProtocol),
    "two encodings": (response(b"{}", headers=("Content-Encoding: gzip, gzip",)), UpstreamProtocol),
    "broken chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        UpstreamProtocol,
    ),
    "chunks cut short": (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        UpstreamProtocol,
    ),
    "no http": (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", UpstreamProtocol),
    "bad status": (b"HTTP/1.1 9999 X\r\n\r\n", UpstreamProtocol),
    "bad header": (b"HTTP/1.1 200 OK\r\nBad Header\x00: x\r\n\r\n", UpstreamProtocol),
    "long header": (response(headers=(f"X-Long: {'a' * 20_000}",)), UpstreamProtocol),
    "many headers": (response(headers=tuple(f"X-{i}: a" for i in range(500))), UpstreamProtocol),
    "switching protocols": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        UpstreamProtocol,
    ),
    "not modified": (response(b"", status=304), UpstreamRedirect),
    "redirect": (response(b"", status=302, headers=("Location: http://127.0.0.1/",)), UpstreamRedirect),
    "dies": (b"", UpstreamUnreachable),
    "head cut short": (b"HTTP/1.1 200 OK\r\nContent-Le", CallError),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_bad_answer_is_a_typed_error(name: str) -> None:
    answer, expected = ANSWERS[name]
    async with upstream(lambda _: answer) as up:
        error = await error_of(tool(up.url))
    assert isinstance(error, expected)
    assert 500 <= problem_of(error).status_code < 600


@pytest.fixture
def memory() -> Iterator[None]:
    """What a test allocates at its highest stays below 30 MiB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20


@pytest.mark.parametrize("behaviour", [endless, endless_headers])
@pytest.mark.usefixtures("memory")
async def test_an_endless_answer_stops_at_its_bound(behaviour: Behaviour) -> None:
    started = time.monotonic()
    async with upstream(raw=behaviour) as up:
        error = await error_of(tool(up.url, timeout=30))
    assert isinstance(error, UpstreamTooLarge | UpstreamProtocol)
    assert time.monotonic() - started < 15


@pytest.mark.usefixtures("memory")
async def test_a_decompression_bomb_stops_at_its_bound() -> None:
    packed = response(bomb(50), headers=("Content-Encoding: gzip",))
    async with upstream(lambda _: packed) as up:
        assert isinstance(await error_of(tool(up.url)), UpstreamTooLarge)


@pytest.mark.parametrize("behaviour", [drip, drip_headers, silent, endless_interim])
@pytest.mark.parametrize("hints", [{}, {"idempotentHint": True}])
async def test_a_slow_answer_ends_at_the_deadline(behaviour: Behaviour, hints: dict[str, bool]) -> None:
    started = time.monotonic()
    async with upstream(raw=behaviour) as up:
        error = await error_of(tool(up.url, timeout=0.3, hints=hints))
    assert isinstance(error, UpstreamTimeout | UpstreamProtocol)
    assert isinstance(error, UpstreamTimeout) or behaviour is not silent
    assert time.monotonic() - started < 10, "left alone it would go on for ever"


async def test_a_second_answer_on_a_reused_connection_is_not_taken_for_the_next_calls() -> None:
    twice = response(b'"first"').replace(b"Connection: close\r\n", b"") + response(b'"smuggled"')

    async with upstream(lambda _: twice) as up:
        policy = EgressPolicy(loopback=True)
        async with OutboundHttp(policy) as outbound:
            caller = HttpBackend(outbound, CredentialStore(), policy)
            for _ in range(3):
                try:
                    assert (await caller.call(tool(up.url), NONE, "r", bot())).structured == "first"
                except (UpstreamProtocol, UpstreamUnreachable):
                    continue  # refusing it altogether is as good


def unread(connection: Any) -> int:
    """Bytes that were sent on this connection and have not reached its other end."""
    left = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(left, sys.byteorder)


async def test_an_answer_that_arrives_unasked_on_an_idle_connection_is_not_taken_for_the_next_calls() -> None:
    said = asyncio.Event()
    first = response(b'"first"').replace(b"Connection: close\r\n", b"")

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.append(writer.get_extra_info("socket"))
        writer.write(first)
        await writer.drain()
        await told.wait()
        writer.write(first.replace(b"first", b"EVIL!"))
        await writer.drain()
        said.set()
        await reader.read()

    told = asyncio.Event()
    server: list[Any] = []
    async with upstream(raw=late) as up:
        policy = EgressPolicy(loopback=True)
        async with OutboundHttp(policy) as outbound:
            caller = HttpBackend(outbound, CredentialStore(), policy)
            assert (await caller.call(tool(up.url), NONE, "r", bot())).structured == "first"
            told.set()
            await said.wait()
            while unread(server[0]):  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(20):  # both sides run in this loop: a few turns, and the client has read it
                await asyncio.sleep(0)
            assert (await caller.call(tool(up.url), NONE, "r", bot())).structured == "first"
        assert up.accepts == 2


async def test_a_server_that_speaks_first_is_refused_or_unreachable() -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(banner, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await error_of(tool(f"http://127.0.0.1:{port}/", timeout=1))
    assert isinstance(error, UpstreamProtocol | UpstreamUnreachable | UpstreamTimeout)


async def test_a_closed_port_is_unreachable() -> None:
    async with upstream() as up:
        url = up.url
    error = await error_of(tool(url))
    assert isinstance(error, UpstreamUnreachable)


async def test_a_backend_that_does_not_speak_tls_is_unreachable() -> None:
    async with upstream(lambda _: response()) as up:
        error = await error_of(tool(up.url.replace("http:", "https:"), timeout=0.5))
    assert isinstance(error, UpstreamUnreachable | UpstreamTimeout)


# The guard, where it counts: the listener of the forbidden target sees no connection.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_reaches_nobody(status: int) -> None:
    async with upstream(lambda _: response()) as inside:
        location = f"Location: {inside.url}/"
        async with upstream(lambda _: response(b"", status=status, headers=(location,))) as outside:
            assert isinstance(await error_of(tool(f"{outside.url}/", method=Method.GET)), UpstreamRedirect)
        assert inside.accepts == 0


PUBLIC = EgressPolicy(allow=("rebind.example", "*.example"))


async def test_a_name_that_resolves_to_loopback_reaches_nobody() -> None:
    async with upstream(lambda _: response()) as inside:
        error = await error_of(tool(f"http://x.example:{inside.port}/"), PUBLIC, Rebinding(["127.0.0.1"]))
        assert isinstance(error, Refused)
        assert inside.accepts == 0


@pytest.mark.parametrize(
    "forbidden", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0.0.0.0", "::"]
)
async def test_one_forbidden_address_among_public_ones_refuses_the_name(forbidden: str) -> None:
    async with upstream(lambda _: response()) as inside:
        resolve = Rebinding([forbidden, "192.0.2.1"])
        error = await error_of(tool(f"http://x.example:{inside.port}/"), PUBLIC, resolve)
        assert isinstance(error, Refused)
        assert inside.accepts == 0


async def test_a_rebinding_name_is_judged_at_every_connection_and_dialled_as_judged() -> None:
    """The name is public at first (nobody answers there) and loopback later: it is refused then, never dialled."""
    async with upstream(lambda _: response()) as inside:
        resolve = Rebinding(["2001:4860:4860::8888"], ["127.0.0.1"])
        first = await error_of(tool(f"http://x.example:{inside.port}/", timeout=0.3), PUBLIC, resolve)
        assert isinstance(first, UpstreamUnreachable | UpstreamTimeout)
        assert resolve.asked == [
            "x.example."
        ]  # asked once for one connection: no second question to answer falsely
        second = await error_of(tool(f"http://x.example:{inside.port}/"), PUBLIC, resolve)
        assert isinstance(second, Refused)
        assert inside.accepts == 0


async def test_the_socket_itself_refuses_what_the_resolver_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from toolcrib_registry.adapters.outbound.dialling import Gate

    async def careless(self: Any, host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(Gate, "addresses", careless)
    async with upstream(lambda _: response()) as inside:
        error = await error_of(tool(f"http://x.example:{inside.port}/"), PUBLIC)
        assert isinstance(error, Refused)
        assert inside.accepts == 0


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0x7f.0x0.0x0.0x1",
     "017700000001", "127.0.0.1.", "127.00.0.1", "127.255.255.254", "localhost", "LocalHost.", "0", "0.0.0.0", "0x0",
     "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]",
     "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]",
     "[::ffff:0:127.0.0.1]", "[::1%25lo]", "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "user@127.0.0.1"],
)  # fmt: skip
async def test_a_spelling_of_loopback_reaches_nobody(host: str) -> None:
    async with upstream(lambda _: response()) as inside:
        error = await error_of(tool(f"http://{host}:{inside.port}/"), EgressPolicy(allow=("*",)))
        assert isinstance(error, Refused)
        assert error.code == "egress_refused"
        assert inside.accepts == 0


async def test_a_connection_made_under_one_rule_is_not_used_under_another() -> None:
    """A mapped backend may be loopback; a url to the same host and port still may not."""

    async def keep(reader: Any, writer: Any) -> None:
        writer.write(response().replace(b"Connection: close\r\n", b""))
        await writer.drain()
        await reader.read()

    async with upstream(raw=keep) as up:
        policy = EgressPolicy(allow=("*",), backends={"a/s": f"name.example:{up.port}"})
        mapped = PublishedBackend(service_namespace="a", service_name="s", service_port=1)
        async with OutboundHttp(policy, resolve=Rebinding(["127.0.0.1"])) as outbound:
            caller = HttpBackend(outbound, CredentialStore(), policy)
            await caller.call(tool("").model_copy(update={"backend": mapped}), NONE, "r", bot())
            with pytest.raises(Refused):
                await caller.call(tool(f"http://name.example:{up.port}/"), NONE, "r", bot())
        assert up.accepts == 1
