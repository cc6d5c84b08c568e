"""Programs as if they were MCP servers over HTTP: so that sessions, eras, lists, notices and breakers are the same for them.

A POST is a line to the program, and its answer a stream of events; a GET is the stream of its notices; a DELETE ends it.
Each start is a session: a request within an earlier one is answered by 404, as a server does that was restarted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolcrib.wire.backends import PublishedProgram, SecretReference
from toolcrib_cli.local.programs.exchanges import Exchange
from toolcrib_cli.local.programs.running import Running, Spec
from toolcrib_registry.outbound.errors import EgressRefused, TimedOut, TooLarge, Unreachable
from toolcrib_registry.outbound.messages import NO_END, OutboundRequest, OutboundStream, media_type
from toolcrib_registry.upstream.header_fields import SESSION
from toolcrib_registry.upstream.messages import encoded, notification
from toolcrib_registry.upstream.protocol import METHOD_NOT_FOUND

_DISCOVER, _INITIALIZE, _LISTEN = "server/discover", "initialize", "subscriptions/listen"
_DISCOVERED_WITHIN = 5.0
"""Seconds after which a program that says nothing to `server/discover` counts as one that does not know it."""
_FIRST, _LAST, _LASTING = 0.5, 30.0, 60.0
"""Seconds until a program that ended is started again: the first and the longest wait, and after how long a run the next
end is the first one again."""
_PATIENCE = 1.0


class Answer:
    """An answer of a program, as the port `OutboundStream` has it."""

    def __init__(
        self, status: int, most: int = 0, exchange: Exchange | None = None, session: str = ""
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"content-type": "text/event-stream"} if exchange else {}
        if session:
            self.headers = {**self.headers, SESSION: session}
        self._exchange, self._left, self._most = exchange, most, most

    @property
    def content_type(self) -> str:
        """The media type alone."""
        return media_type(self.headers)

    async def read(self) -> bytes:
        """The next event; empty at the end. Raises OutboundError."""
        message = b"" if self._exchange is None else await self._exchange.next()
        self._left -= len(message)
        if self._left < 0:
            raise TooLarge(f"the program's answer is larger than {self._most} bytes")
        return b"data: " + message + b"\n\n" if message else b""


@dataclass(slots=True)
class _Slot:
    """One ToolServer's program, and how often what is started now ended."""

    running: Running | None = None
    ended: Spec | None = None
    failures: int = 0
    not_before: float = 0.0
    said: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LocalPrograms:
    """Starts the commands of ToolServers, and ends them.

    Args:
        allowed: `namespace/server` whose commands may be started; `*`: all.
        folder: for homes and logs, private.
        path: PATH of the programs.
        secret: a value by its reference; None: it is not to be had.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        allowed: Collection[str],
        folder: Path,
        path: str,
        secret: Callable[[SecretReference], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowed = tuple(allowed)
        self._folder, self._path, self._secret, self._clock = folder, path, secret, clock
        self._slots: dict[str, _Slot] = {}

    @asynccontextmanager
    async def open(self, request: OutboundRequest) -> AsyncIterator[OutboundStream]:
        """The answer to a request. Raises OutboundError."""
        scope = asyncio.timeout(None if request.timeout == NO_END else request.timeout)
        try:
            async with scope, self._answered(request) as answer:
                yield answer
        except TimeoutError:
            if not scope.expired():
                raise
            raise TimedOut(f"no complete response within {request.timeout:g} s") from None

    async def keep(self, wanted: Callable[[str, tuple[str, ...]], bool]) -> None:
        """End the programs whose server and command `wanted` refuses."""
        for server, slot in list(self._slots.items()):
            running = slot.running
            if running is not None and not wanted(server, running.spec.command):
                slot.running = None
                await running.stop()

    async def aclose(self) -> None:
        """End all."""
        running = [slot.running for slot in self._slots.values() if slot.running is not None]
        self._slots, self.allowed = {}, ()
        await asyncio.gather(*(each.stop() for each in running))

    @asynccontextmanager
    async def _answered(self, request: OutboundRequest) -> AsyncIterator[Answer]:
        program = request.target.program
        if program is None or not {program.server, "*"} & set(self.allowed):
            raise EgressRefused("the command of this ToolServer may not be started")
        slot = self._slots.setdefault(program.server, _Slot())
        session = request.headers.get(SESSION)
        message: dict[str, Any] = {} if request.body is None else orjson.loads(request.body)
        method, id_ = message.get("method"), message.get("id")
        async with slot.lock:
            if request.method == "POST":
                running = await self._ready(slot, program, session, method)
            else:
                running = slot.running
        if running is None or session not in (None, running.session):
            yield Answer(404)
        elif request.method == "DELETE":
            if slot.running is running:
                slot.running = None
            await running.stop()
            yield Answer(200)
        elif request.method == "GET":
            exchange = Exchange()
            running.listen(exchange)
            try:
                yield Answer(200, request.max_bytes, exchange)
            finally:
                running.forget(exchange)
        elif method is None or id_ is None:
            running.tell(request.body or b"")
            yield Answer(202)
        else:
            async with self._asked(running, request, method, id_) as exchange:
                yield Answer(
                    200, request.max_bytes, exchange, running.session if method == _INITIALIZE else ""
                )

    @asynccontextmanager
    async def _asked(
        self, running: Running, request: OutboundRequest, method: str, id_: int | str
    ) -> AsyncIterator[Exchange]:
        unknown = None
        if method == _DISCOVER:
            error = {"code": METHOD_NOT_FOUND, "message": "not answered"}
            unknown = encoded({"jsonrpc": "2.0", "id": id_, "error": error})
        exchange = Exchange(unknown)
        running.ask(id_, exchange, listens=method == _LISTEN)
        late = None
        if unknown is not None:
            late = asyncio.get_running_loop().call_later(_DISCOVERED_WITHIN, exchange.end)
        try:
            await running.send(request.body or b"")
            yield exchange
        finally:
            if late is not None:
                late.cancel()
            running.forget(exchange, id_)
            # in the handshake era the client says it itself
            if not exchange.over and not running.over and not running.initialized and unknown is None:
                running.tell(notification("notifications/cancelled", {"requestId": id_}))

    async def _ready(
        self, slot: _Slot, program: PublishedProgram, session: str | None, method: str | None
    ) -> Running | None:
        """The program, started if need be; None: the session is over."""
        spec = self._spec(program)
        running = slot.running
        if running is not None and running.over:
            self._note(slot, running)
            running = None
        if slot.ended not in (None, spec):  # what was corrected is tried at once
            slot.ended, slot.failures, slot.not_before = None, 0, 0.0
        if running is not None and (running.spec != spec or (method == _INITIALIZE and running.initialized)):
            slot.running = None
            await running.stop()
            running = None
        if running is None and session is None:
            await self._patience(slot)
            running = Running(spec, self._folder / program.server, self._path)
            await running.start()
            slot.running = running
        if running is not None and method == _INITIALIZE:
            running.initialized = True
        return running

    def _note(self, slot: _Slot, running: Running) -> None:
        """It ended by itself."""
        now = self._clock()
        slot.running, slot.ended, slot.said = None, running.spec, running.ending
        slot.failures = 1 if now - running.began > _LASTING else slot.failures + 1
        slot.not_before = now + min(_LAST, _FIRST * 2.0 ** (slot.failures - 1))

    async def _patience(self, slot: _Slot) -> None:
        wait = slot.not_before - self._clock()
        if wait > _PATIENCE:
            raise Unreachable(f"{slot.said}. It is started again in {wait:.0f} s")
        if wait > 0:
            await asyncio.sleep(wait)

    def _spec(self, program: PublishedProgram) -> Spec:
        found: dict[str, str] = {}
        for name, reference in program.secrets.items():
            if (value := self._secret(reference)) is None:
                raise Unreachable(
                    f"the Secret {reference.namespace}/{reference.name} lacks the key {reference.key!r}"
                )
            found[name] = value
        return Spec(program.server, program.command, program.values, found)
