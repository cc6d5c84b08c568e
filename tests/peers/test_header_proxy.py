"""The proxy that adds a header: everything else arrives as it was sent, in both directions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from mcp_peers.header_proxy import adding_header

pytestmark = pytest.mark.anyio

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def through_a_proxy(accept: Accept) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a proxy in front of a server that does this with each connection."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        with adding_header("Authorization", "Bearer t", server.sockets[0].getsockname()[1]) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                yield reader, writer
            finally:
                writer.close()


async def arriving(*requests: bytes) -> bytes:
    """What a server gets of requests that are sent on one connection."""
    got = b""
    last = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        while data := await reader.read(65536):
            got += data
            if b"last" in got:
                last.set()
        writer.close()

    async with through_a_proxy(accept) as (_, writer):
        for request in requests:
            writer.write(request)
        await last.wait()
    return got


async def test_every_request_of_a_connection_gets_the_header_and_keeps_its_body() -> None:
    sized = b"POST /mcp HTTP/1.1\r\nHost: evil\r\ncontent-length: 8\r\n\r\n\r\n\r\nbody"
    chunked = b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nab\r\n\r\n0\r\nA: b\r\n\r\n"
    own = b"GET /last HTTP/1.1\r\nauthorization: Basic x\r\n\r\n"

    got = await arriving(sized, chunked, own)

    added = b"Authorization: Bearer t\r\n\r\n"
    expected = sized.replace(b"8\r\n\r\n", b"8\r\n" + added, 1)
    assert got == expected + chunked.replace(b"chunked\r\n\r\n", b"chunked\r\n" + added) + own


async def test_events_arrive_as_they_are_sent_and_the_server_hears_of_a_client_that_leaves() -> None:
    more, gone = asyncio.Event(), asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n")
        await more.wait()
        writer.write(b"data: 2\n\n")
        assert await reader.read() == b""
        gone.set()
        writer.close()

    async with through_a_proxy(accept) as (reader, writer):
        writer.write(b"GET /mcp HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"1\n\n")).endswith(b"\r\n\r\ndata: 1\n\n")
        more.set()
        assert await reader.readuntil(b"\n\n") == b"data: 2\n\n"
        writer.close()
        await gone.wait()


async def test_a_client_hears_of_a_server_that_leaves() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall")
        writer.close()

    async with through_a_proxy(accept) as (reader, writer):
        writer.write(b"GET /mcp HTTP/1.1\r\n\r\n")
        assert await reader.read() == b"HTTP/1.1 200 OK\r\n\r\nall"
