"""Servers that misbehave on purpose, byte by byte, on real loopback ports; and resolvers that lie."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from toolcrib_registry.adapters.outbound.dns_cache import Answer

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Request:
    """What arrived: the request line's parts, headers in lower case, and the body."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Upstream:
    """A listening server; `accepts` counts connections, whatever came over them."""

    port: int
    scheme: str = "http"
    accepts: int = 0
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


@asynccontextmanager
async def upstream(
    answer: Callable[[Request], bytes] | None = None,
    *,
    raw: Behaviour | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Upstream]:
    """A server that answers each request with the bytes that `answer` returns, or behaves as `raw` says.

    `answer` servers read the request, write the bytes and close; an empty answer is a connection that just dies.
    """
    state = Upstream(port=0, scheme="https" if tls else "http")
    open_connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.accepts += 1
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            request = await read_request(reader)
            if request is not None:
                state.requests.append(request)
                if raw is not None:
                    await raw(reader, writer)
                elif answer is not None:
                    writer.write(answer(request))
                    await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            open_connections.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in list(open_connections):
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """One request, None where the connection closed before there was one."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def response(
    body: bytes = b"{}",
    *,
    status: int = 200,
    content_type: str | None = "application/json",
    headers: tuple[str, ...] = (),
    length: int | None = None,
) -> bytes:
    """A response; `length` may lie."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body) if length is None else length}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += ["Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A sound head, then one byte of the body now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def drip_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head that never ends, slowly."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.02)


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A chunked body without end, as fast as it goes."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)


async def endless_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Header after header, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    block = b"".join(b"X-%d: y\r\n" % number for number in range(50))
    while True:
        writer.write(block)
        await writer.drain()
        await asyncio.sleep(0)


async def endless_interim(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """100 Continue, again and again."""
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never says anything."""
    await asyncio.Event().wait()


def bomb(megabytes: int = 200) -> bytes:
    """A small gzip body that becomes a large one."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    zeros = b"0" * (1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(megabytes)) + packer.flush()


class Rebinding:
    """A resolver whose name changes its address from one question to the next; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Answer:
        self.asked.append(host)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return Answer(tuple(found), ttl=30)
