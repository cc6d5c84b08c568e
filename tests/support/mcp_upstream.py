"""MCP servers of either era on a real loopback port, of which a test decides every answer, streams and breaks included."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from evil_upstream import Request, read_request, response
from toolcrib_registry.outbound.guard import EgressPolicy, check_url
from toolcrib_registry.upstream.servers import Server

STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
OWN = "io.modelcontextprotocol/"


@dataclass
class Wire:
    """One request, and the means to answer it."""

    request: Request
    writer: asyncio.StreamWriter

    @property
    def message(self) -> dict[str, Any]:
        """The body's value."""
        found: dict[str, Any] = json.loads(self.request.body) if self.request.body else {}
        return found

    @property
    def method(self) -> str:
        """That of JSON-RPC; of HTTP where there is no body; `response` of an answer to a request of the server's."""
        if not self.request.body:
            return self.request.method
        return str(self.message.get("method", "response"))

    async def result(self, *headers: str, **fields: Any) -> None:
        """Answer with a result as JSON."""
        await self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": fields}, headers=headers)

    async def error(self, code: int, message: str = "no", status: int = 200, data: Any = None) -> None:
        """Answer with an error of JSON-RPC."""
        said = {"code": code, "message": message, **({} if data is None else {"data": data})}
        await self.json({"jsonrpc": "2.0", "id": self.message.get("id"), "error": said}, status=status)

    async def json(self, value: Any, status: int = 200, headers: tuple[str, ...] = ()) -> None:
        """Answer with a value."""
        await self.raw(response(json.dumps(value).encode(), status=status, headers=headers))

    async def status(self, status: int, *headers: str) -> None:
        """Answer with a status and no body."""
        await self.raw(response(b"", status=status, content_type=None, headers=headers))

    async def stream(self, *headers: str) -> None:
        """Begin a stream of events; it ends with the connection."""
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Connection: close", *headers, "", ""]
        await self.raw("\r\n".join(lines).encode())

    async def event(self, value: Any) -> None:
        """Send a message on the stream."""
        await self.raw(b"event: message\ndata: " + json.dumps(value).encode() + b"\n\n")

    async def answer(self, **fields: Any) -> None:
        """Send the result on the stream."""
        await self.event({"jsonrpc": "2.0", "id": self.message["id"], "result": fields})

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        if self.writer.is_closing():
            # asyncio lets a transport that closed with bytes to send be written to, and fails without a ConnectionError
            raise ConnectionResetError("the client has gone")
        self.writer.write(data)
        await self.writer.drain()


Behave = Callable[[Wire], Awaitable[None]]


@dataclass
class McpUpstream:
    """A server. `on` has what it does, by method (of JSON-RPC, or `GET`, `DELETE`, `response`); else it refuses."""

    port: int = 0
    on: dict[str, Behave] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """A client closed its connection before it was answered."""
    loop: asyncio.AbstractEventLoop | None = None
    """Its own, if it is `running`."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        """What was asked, in order."""
        return [wire.method for wire in self.wires]

    def of(self, method: str) -> list[Wire]:
        """The requests of a method."""
        return [wire for wire in self.wires if wire.method == method]

    def server(self, key: str = "team/files", credential: str = "") -> Server:
        """It, as the client takes it."""
        return Server(key, check_url(self.url, POLICY), credential, "team")

    def tell(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something on the loop of a server that is `running`."""
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(work(), self.loop).result(20)

    async def arrived(self, method: str, times: int = 1) -> None:
        """Return once a method has been asked for so often."""
        async with asyncio.timeout(20):
            while len(self.of(method)) < times:
                self.came.clear()
                await self.came.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if request is None:
            return
        wire = Wire(request, writer)
        self.wires.append(wire)
        self.came.set()
        behave = self.on.get(wire.method, _unknown)
        working = asyncio.ensure_future(behave(wire))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            self.closed.set()
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


POLICY = EgressPolicy(loopback=True)


async def _unknown(wire: Wire) -> None:
    await wire.error(-32601, "Method not found", 404 if wire.request.headers.get("mcp-method") else 200)


@asynccontextmanager
async def serving(server: McpUpstream) -> AsyncIterator[McpUpstream]:
    """The server, listening."""
    connections: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        writers.append(writer)
        try:
            await server._serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            connections.discard(task)
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", server.port)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        # the loop may end with this: what is still to be sent to a client that has gone would leave its socket open
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@contextmanager
def running(server: McpUpstream) -> Iterator[McpUpstream]:
    """The server, listening on a loop of its own, for tests that wait for answers without one."""
    loop = server.loop = asyncio.new_event_loop()
    listening, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(server):
            listening.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert listening.wait(20)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


async def called(wire: Wire) -> None:
    """Answer a call with its arguments."""
    arguments = wire.message["params"].get("arguments")
    text = json.dumps(arguments)
    await wire.result(content=[{"type": "text", "text": text}], structuredContent=arguments)


def stateless(**more: Behave) -> McpUpstream:
    """A server of 2026-07-28; `more` by method, `_` for `/`."""

    async def discover(wire: Wire) -> None:
        await wire.result(
            resultType="complete",
            supportedVersions=[STATELESS],
            capabilities={"tools": {}},
            ttlMs=0,
            cacheScope="private",
            _meta={f"{OWN}serverInfo": {"name": "files", "version": "1"}},
        )

    return McpUpstream(on={"server/discover": discover, "tools/call": called, **_by_method(more)})


@dataclass
class Sessions:
    """The sessions of a server of the handshake era; one that is taken out is answered 404."""

    version: str = HANDSHAKE
    named: bool = True
    live: set[str] = field(default_factory=set)
    made: int = 0

    async def initialize(self, wire: Wire) -> None:
        """Begin one."""
        self.made += 1
        name = f"session-{self.made}"
        self.live.add(name)
        headers = (f"Mcp-Session-Id: {name}",) if self.named else ()
        await wire.result(
            *headers,
            protocolVersion=self.version,
            capabilities={"tools": {}},
            serverInfo={"name": "old", "version": "1"},
        )

    def within(self, behave: Behave) -> Behave:
        """Do that within a session only."""

        async def do(wire: Wire) -> None:
            name = wire.request.headers.get("mcp-session-id")
            if self.named and name is None:
                await wire.error(-32600, "Bad Request: Missing session ID", 400)
            elif self.named and name not in self.live:
                await wire.error(-32600, "Session not found", 404)
            else:
                await behave(wire)

        return do


def handshake(sessions: Sessions | None = None, **more: Behave) -> McpUpstream:
    """A server of the handshake era; `more` by method, `_` for `/`."""
    held = sessions or Sessions()

    async def accepted(wire: Wire) -> None:
        await wire.status(202)

    async def end(wire: Wire) -> None:
        held.live.discard(wire.request.headers.get("mcp-session-id", ""))
        await wire.status(200)

    async def unknown(wire: Wire) -> None:
        await wire.error(-32602, "Invalid request parameters")

    on: dict[str, Behave] = {
        "tools/call": called,
        "notifications/initialized": accepted,
        "notifications/cancelled": accepted,
        "response": accepted,
        "server/discover": unknown,
        **_by_method(more),
    }
    return McpUpstream(
        on={**{m: held.within(b) for m, b in on.items()}, "initialize": held.initialize, "DELETE": end}
    )


def _by_method(more: dict[str, Behave]) -> dict[str, Behave]:
    return {name.replace("_", "/"): behave for name, behave in more.items()}
