"""Connections to backends: which ones are used again, how answers end, and which bytes are no answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evil_upstream import Behaviour, Rebinding, read_request, response, upstream
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.outbound.errors import OutboundError, ProtocolViolation, TimedOut, TooLarge
from toolcrib_registry.outbound.guard import EgressPolicy, check_url
from toolcrib_registry.outbound.messages import OutboundRequest, OutboundResponse

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def each(*answers: bytes, close: bool = False) -> Behaviour:
    """One answer a request, on connections that stay open unless `close`."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # of a connection the first request has been read
        while left:
            writer.write(left.pop(0))
            await writer.drain()
            if close or await read_request(reader) is None:
                return
        await reader.read()

    return serve


@asynccontextmanager
async def client(port: int, resolve: Any = None) -> AsyncIterator[Any]:
    """Sends requests to a path of this port."""
    policy = EgressPolicy(loopback=True, allow=("name.example",))
    async with OutboundHttp(policy, resolve=resolve) as outbound:

        async def send(body: bytes | None = b"{}", *, method: str = "POST", **more: Any) -> OutboundResponse:
            target = check_url(f"http://127.0.0.1:{port}/", policy)
            made = OutboundRequest(
                target, method, more.pop("path", "/x"), body=body, **{"timeout": 5.0, **more}
            )
            return await outbound.send(made)

        send.open = outbound.open  # type: ignore[attr-defined]
        yield send


async def answers(behaviour: Behaviour, count: int) -> tuple[list[bytes], int]:
    """The bodies of `count` requests, and how many connections they took."""
    async with upstream(raw=behaviour) as up, client(up.port) as send:
        return [(await send()).body for _ in range(count)], up.accepts


async def test_requests_in_turn_share_a_connection() -> None:
    assert await answers(each(OK, OK, OK), 3) == ([b"ok"] * 3, 1)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="it says close"),
        pytest.param(OK.replace(b"1.1", b"1.0"), id="HTTP/1.0"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\n", id="half of another answer follows"),
        pytest.param(OK + b"?", id="bytes that are no answer follow"),
    ],
)
async def test_a_connection_is_not_used_again_after_an_answer_that_forbids_it(first: bytes) -> None:
    assert await answers(each(first, OK), 2) == ([b"ok"] * 2, 2)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end", id="ended by closing"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n",
            b"abc",
            id="chunks, an extension, a trailer",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="no content"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok", id="after an interim answer"),
    ],
)  # fmt: skip
async def test_an_answer_ends_where_http_says(answer: bytes, body: bytes) -> None:
    assert await answers(each(answer, close=True), 1) == ([body], 1)


async def test_after_an_interim_answer_headers_are_the_last_ones() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nX-A: early\r\n\r\n" + OK.replace(
        b"OK\r\n", b"OK\r\nX-A: late\r\nx-a: again\r\n"
    )
    async with upstream(raw=each(early)) as up, client(up.port) as send:
        assert (await send()).headers["x-a"] == "late"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK.replace(b"\r\n", b"\n"), id="bare line feeds"),
        pytest.param(OK.replace(b"1.1", b"2.0"), id="another version"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", id="another transfer coding"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="two codings"),
        pytest.param(OK.replace(b"OK\r\n", b"OK\r\nX: a\r\n b\r\n"), id="a folded header"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 300_000 + b"\r\n", id="a long extension"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 300_000, id="a long trailer"
        ),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 5_000, id="interim answers without end"),
    ],
)  # fmt: skip
async def test_bytes_that_are_no_sound_answer_are_refused(answer: bytes) -> None:
    async with upstream(raw=each(answer)) as up, client(up.port) as send:
        with pytest.raises(ProtocolViolation):
            await send()


async def test_an_answer_that_comes_before_the_request_was_read_is_given_and_its_connection_closed() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await over.wait()
        writer.close()

    over = asyncio.Event()
    accepted: list[Any] = []
    async with await asyncio.start_server(early, "127.0.0.1", 0) as server:
        async with client(server.sockets[0].getsockname()[1]) as send:
            for connections in (1, 2):
                assert (await send(b"x" * (32 << 20))).body == b"ok"
                assert len(accepted) == connections
        over.set()


async def test_a_large_body_and_a_large_answer_pass_whole() -> None:
    large = bytes(range(256)) * 8_000
    async with upstream(lambda r: response(r.body)) as up, client(up.port) as send:
        assert (await send(large)).body == large


async def test_an_answer_that_is_larger_than_its_bound_stops_there() -> None:
    async with upstream(lambda _: response(b"x" * 1_000)) as up, client(up.port) as send:
        with pytest.raises(TooLarge):
            await send(max_bytes=999)
        assert len((await send(max_bytes=1_000)).body) == 1_000


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_nothing_is_sent_twice_when_a_connection_dies(method: str) -> None:
    seen = []

    def die(request: Any) -> bytes:
        seen.append(request.method)
        return b""

    async with upstream(die) as up, client(up.port) as send:
        with pytest.raises(OutboundError):
            await send(None, method=method)
    assert seen == [method]


@pytest.mark.parametrize("bad", ["/a b", "/a\r\nX: y", "/a\0", "/ä", "relative"])
async def test_a_path_that_would_end_its_line_is_not_sent(bad: str) -> None:
    async with upstream(raw=each(OK)) as up, client(up.port) as send:
        with pytest.raises(ProtocolViolation):
            await send(path=bad)


@pytest.mark.parametrize("bad", ["a\r\nx: y", "a\nb", "a\rb", "a\0b", "\ud800"])
async def test_a_header_that_would_end_its_line_or_has_no_bytes_is_not_sent(bad: str) -> None:
    async with upstream(raw=each(OK)) as up, client(up.port) as send:
        with pytest.raises(ProtocolViolation):
            await send(headers={"x-a": bad})


async def test_a_host_with_an_address_that_answers_nothing_is_reached_by_its_other_address() -> None:
    """Nobody listens at the first address; the second is dialled all the same."""
    policy = EgressPolicy(backends={"a/s": "name.example:1"}, allow=("name.example",), loopback=True)
    async with upstream(lambda _: OK) as up:
        names = Rebinding(["::1", "127.0.0.1"])
        async with OutboundHttp(policy, resolve=names) as outbound:
            target = check_url(f"http://name.example:{up.port}/", policy)
            assert (await outbound.send(OutboundRequest(target, "GET", "/"))).body == b"ok"


async def test_an_answer_that_is_left_before_its_end_is_not_read_on() -> None:
    async with upstream(lambda _: response(b"x" * 10_000_000)) as up:
        policy = EgressPolicy(loopback=True)
        async with OutboundHttp(policy) as outbound:
            request = OutboundRequest(check_url(up.url, policy), "GET", "/", max_bytes=1 << 30)
            async with outbound.open(request) as answer:
                assert await answer.read()
            async with outbound.open(request) as answer:
                size = 0
                while piece := await answer.read():
                    size += len(piece)
            assert size == 10_000_000


async def test_the_deadline_covers_the_whole_answer() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:-1])
        await reader.read()

    async with upstream(raw=half) as up, client(up.port) as send:
        with pytest.raises(TimedOut, match=r"0\.2 s"):
            await send(timeout=0.2)


async def test_closing_ends_what_is_under_way() -> None:
    begun = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await reader.read()

    async with upstream(raw=silent) as up:
        policy = EgressPolicy(loopback=True)
        outbound = OutboundHttp(policy)
        asking = asyncio.create_task(outbound.send(OutboundRequest(check_url(up.url, policy), "GET", "/")))
        await begun.wait()
        await outbound.close()
        outcomes: Sequence[Any] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(outcomes[0], OutboundError)
