"""A backend behind the product's port that does what a test says, and calls of it over MCP.

The backends of today speak HTTP, which carries no content but text, no progress and no questions.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from mcp_client import STATELESS, fields_of, message
from registry_harness import RunningRegistry
from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, InputRequired, Text, ToolAnswer

Behaviour = Callable[[Exchange], Awaitable[ToolAnswer]]


class ScriptedBackend:
    """A backend that does what a test says, and keeps what it was given."""

    def __init__(self) -> None:
        self.behave: Behaviour
        self.given: list[Exchange] = []
        self.cancelled = threading.Event()

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the test says."""
        self.given.append(exchange)
        try:
            return await self.behave(exchange)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def answers(self, **fields: Any) -> None:
        """Answer with these fields of a ToolAnswer."""
        made = ToolAnswer(**{"raw": b"", "media_type": "", "is_json": False, **fields})

        async def behave(_: Exchange) -> ToolAnswer:
            return made

        self.behave = behave

    def asks(self, question: InputRequired) -> None:
        """Ask once; then answer."""

        async def behave(exchange: Exchange) -> ToolAnswer:
            if exchange.responses is None:
                return ToolAnswer(b"", "", is_json=False, input_required=question)
            return ToolAnswer(b"", "", is_json=False, blocks=(Text("done"),))

        self.behave = behave


def called(
    r: RunningRegistry,
    version: str = STATELESS,
    *,
    who: str = "bot",
    token: Mapping[str, Any] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    **params: Any,
) -> httpx.Response:
    """A call of the tool `ask` on `/mcp/direct`. `token` has further claims of the caller's token."""
    asked = {"name": "ask", "arguments": arguments or {}, **params}
    body = message("tools/call", asked, version, id=7, capabilities=capabilities, **(meta or {}))
    headers = {**r.auth("team", who, **(token or {})), **fields_of(body, version)}
    return r.http.post(r.url + "/mcp/direct", json=body, headers=headers)


def result(response: httpx.Response) -> dict[str, Any]:
    """What a call came to."""
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["result"]
    return found


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The messages of an answer that is a stream."""
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    lines = response.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
