"""A proxy on loopback that adds one header to every request and passes on everything else byte for byte.

    with adding_header("Authorization", f"Bearer {token}", port) as proxied: ...

For clients that cannot send the header. Responses are not read at all, so an event stream arrives as it was sent; a
client that goes away, and a server that does, ends the connection on the other side.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Awaitable, Callable, Iterator

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r\n", re.IGNORECASE)
_MOST = 1 << 20
_Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.contextmanager
def adding_header(name: str, value: str, target: int) -> Iterator[int]:
    """The port of a proxy in front of `target`, until the block ends. A request that has the header keeps its own."""
    line = f"{name}: {value}\r\n".encode()
    present = re.compile(rb"\r\n" + re.escape(name.encode()) + rb":", re.IGNORECASE)

    async def requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not present.search(head):
                head = head[:-2] + line + b"\r\n"
            writer.write(head)
            await _body(head, reader, writer)
            await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                theirs, ours = await asyncio.open_connection("127.0.0.1", target, limit=_MOST)
            except OSError:
                return
            with contextlib.closing(ours):
                ways = [
                    asyncio.ensure_future(requests(reader, ours)),
                    asyncio.ensure_future(_rest(theirs, writer)),
                ]
                try:
                    # what ends first ends the connection: either side is gone then
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    with _serving(accept) as port:
        yield port


async def _body(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on a request's body, by what its head says of it."""
    if _CHUNKED.search(head):
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            writer.write(line)
            if size:
                writer.write(await reader.readexactly(size + 2))
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            writer.write(line)
        writer.write(line)
    elif length := _LENGTH.search(head):
        left = int(length[1])
        while left:
            data = await reader.read(min(left, 1 << 16))
            if not data:
                raise asyncio.IncompleteReadError(data, left)
            left -= len(data)
            writer.write(data)
            await writer.drain()


async def _rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@contextlib.contextmanager
def _serving(accept: _Accept) -> Iterator[int]:
    """An asyncio server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="header-proxy", daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(accept, "127.0.0.1", 0, limit=_MOST)

    async def stop(server: asyncio.Server) -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
