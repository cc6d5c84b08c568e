"""Scripted MCP servers with lists of tools that change, and streams that tell of it; and hostile ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_upstream import OWN, STATELESS, McpUpstream, Sessions, Wire, handshake, stateless

CHANGED = "notifications/tools/list_changed"


def definition(name: str, **more: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}, **more}


@dataclass
class Listing:
    """What a server lists, and whom it tells.

    Attributes:
        tools: its tools now.
        more: further fields of each page.
        version: the server's own.
        declares: whether it says that it tells of changes.
        offers: whether it has a stream of notices.
    """

    tools: list[Any] = field(default_factory=lambda: [definition("read")])
    more: dict[str, Any] = field(default_factory=dict)
    instructions: str = "Use it well."
    version: str = "1"
    declares: bool = True
    offers: bool = True
    streams: list[Wire] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_(self, wire: Wire) -> None:
        """Answer `tools/list`."""
        await wire.result(tools=self.tools, **self.more)

    async def change(self, tools: Sequence[Any]) -> None:
        """Have other tools, and tell of it."""
        self.tools = list(tools)
        await self.tell()

    async def tell(self) -> None:
        """Tell of a change."""
        for wire in self.streams:
            await wire.event({"jsonrpc": "2.0", "method": CHANGED})

    async def stream(self, wire: Wire) -> None:
        """A stream of notices until `break_off`."""
        if not self.offers:
            await wire.status(405)
            return
        await wire.stream()
        if wire.method == "subscriptions/listen":
            params = {"notifications": {"toolsListChanged": True}}
            await wire.event(
                {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
            )
        self.streams.append(wire)
        ended = self.ended
        try:
            await ended.wait()
        finally:
            self.streams.remove(wire)

    def break_off(self) -> None:
        """End all streams."""
        self.ended.set()
        self.ended = asyncio.Event()

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"tools": {"listChanged": True} if self.declares else {}}

    async def discover(self, wire: Wire) -> None:
        """Answer `server/discover`."""
        await wire.result(
            resultType="complete",
            supportedVersions=[STATELESS],
            capabilities=self.capabilities,
            instructions=self.instructions,
            _meta={f"{OWN}serverInfo": {"name": "files", "version": self.version}},
        )


class ListingSessions(Sessions):
    """Sessions whose beginning says what the listing does."""

    def __init__(self, listing: Listing) -> None:
        super().__init__()
        self._listing = listing

    async def initialize(self, wire: Wire) -> None:
        """Begin one."""
        self.made += 1
        name = f"session-{self.made}"
        self.live.add(name)
        await wire.result(
            f"Mcp-Session-Id: {name}",
            protocolVersion=self.version,
            capabilities=self._listing.capabilities,
            instructions=self._listing.instructions,
            serverInfo={"name": "files", "version": "1"},
        )


def modern(listing: Listing) -> McpUpstream:
    """A server of 2026-07-28."""
    return stateless(
        tools_list=listing.list_, subscriptions_listen=listing.stream, server_discover=listing.discover
    )


def earlier(listing: Listing, sessions: Sessions | None = None) -> McpUpstream:
    """A server of 2025-11-25."""
    return handshake(sessions or ListingSessions(listing), tools_list=listing.list_, GET=listing.stream)
