"""A client's side of the stdio bridge, in this process, and what an endpoint answers to its handshake."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp_stub import Wire
from toolcrib_cli.bridge.identity import Read, Tokens
from toolcrib_cli.bridge.session import Session
from toolcrib_cli.bridge.upstream import Upstream
from waiting import until


class Client:
    """The client's side of a session."""

    def __init__(self, session: Session, lines: list[bytes]) -> None:
        self._session = session
        self.lines = lines

    @property
    def received(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    async def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        for message in messages:
            await self._session.take(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def answer(self, number: object) -> Any:
        def found() -> list[Any]:
            return [m for m in self.received if m.get("id") == number and "method" not in m]

        return (await until(found, what=f"no answer to {number!r}"))[0]

    async def ask(self, message: Mapping[str, Any]) -> Any:
        await self.send(message)
        return await self.answer(message["id"])


@asynccontextmanager
async def client(
    url: str,
    tokens: Tokens | None = None,
    *,
    patience: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Client]:
    lines: list[bytes] = []

    async def write(line: bytes) -> None:
        assert b"\n" not in line
        lines.append(line)

    upstream = Upstream(lambda: f"{url}/mcp", tokens or Read(lambda: "t.o.k"), patience=patience, tell=tell)
    session = Session(upstream, write, tell)
    try:
        yield Client(session, lines)
    finally:
        await session.close()
        await upstream.close()


def handshake(wire: Wire) -> bool:
    """Answers what every client of 2025 begins with."""
    if wire.method == "GET":
        wire.answer(b"", 405)
    elif wire.message.get("method") == "initialize":
        answer = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "serverInfo": {"name": "x", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": wire.message["id"], "result": answer}
        wire.answer(body, mcp_session_id="session-7")
    elif "id" not in wire.message:
        wire.answer(b"", 202)
    else:
        return False
    return True
