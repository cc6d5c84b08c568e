"""MCP servers, of either era, with resources that change and tools that log, on loops of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp_upstream import HANDSHAKE, OWN, STATELESS, McpUpstream, Sessions, Wire, handshake, running, stateless

UPDATED = "notifications/resources/updated"


@dataclass
class FollowingServer:
    """What it has, and who follows what.

    Attributes:
        uris: of its resources.
        follows: it tells of changes of single resources.
        logs: what its tool logs during a call: parameters of the notifications.
        followed: URIs of each stream, now.
        held: URIs whose followers get no answer until `release`.
        waiting: requests that get none, now.
    """

    era: str
    uris: list[str] = field(default_factory=lambda: ["docs://readme", "docs://other"])
    follows: bool = True
    logs: list[dict[str, Any]] = field(default_factory=list)
    followed: list[tuple[Wire, set[str]]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    waiting: int = 0
    up: McpUpstream = field(default_factory=McpUpstream)
    _of_session: dict[str, set[str]] = field(default_factory=dict)
    _break: asyncio.Event = field(default_factory=asyncio.Event)
    _release: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"resources": {"subscribe": self.follows}, "tools": {}, "logging": {}}

    def streams(self) -> list[set[str]]:
        """What is followed, by stream, streams of nothing left out."""
        return [uris for _, uris in self.followed if uris]

    def change(self, uri: str) -> None:
        """A resource changes: those who follow it are told."""
        params = {"uri": uri}

        async def tell() -> None:
            for wire, uris in list(self.followed):
                if uri in uris or any(uri.startswith(each) for each in uris):
                    await wire.event({"jsonrpc": "2.0", "method": UPDATED, "params": params})

        self.up.tell(tell)

    def break_off(self) -> None:
        """End all streams."""

        async def end() -> None:
            self._break.set()
            self._break = asyncio.Event()

        self.up.tell(end)

    def release(self) -> None:
        """Answer those who follow what is held."""

        async def end() -> None:
            self._release.set()

        self.up.tell(end)

    async def _hold(self, uris: list[str]) -> None:
        if self.held.isdisjoint(uris):
            return
        self.waiting += 1
        try:
            await self._release.wait()
        finally:
            self.waiting -= 1

    async def _discover(self, wire: Wire) -> None:
        about = {f"{OWN}serverInfo": {"name": "docs", "version": "1"}}
        await wire.result(
            resultType="complete", supportedVersions=[STATELESS], capabilities=self.capabilities, _meta=about
        )

    async def _list(self, wire: Wire) -> None:
        more = {"ttlMs": 60_000, "cacheScope": "private"} if self.era == STATELESS else {}
        await wire.result(resources=[{"uri": uri, "name": uri} for uri in self.uris], **more)

    async def _templates(self, wire: Wire) -> None:
        await wire.result(resourceTemplates=[])

    async def _listen(self, wire: Wire) -> None:
        asked = wire.message["params"]["notifications"].get("resourceSubscriptions", [])
        await self._hold(asked)
        told = [uri for uri in asked if uri in self.uris] if self.follows else []
        await wire.stream()
        params = {"notifications": {"resourceSubscriptions": told}}
        await wire.event(
            {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        )
        await self._stream(wire, set(told))

    async def _get(self, wire: Wire) -> None:
        await wire.stream()
        session = wire.request.headers.get("mcp-session-id", "")
        await self._stream(wire, self._of_session.setdefault(session, set()))

    async def _stream(self, wire: Wire, uris: set[str]) -> None:
        entry = (wire, uris)
        self.followed.append(entry)
        try:
            await self._break.wait()
        finally:
            self.followed.remove(entry)

    async def _subscribe(self, wire: Wire) -> None:
        uri = wire.message["params"]["uri"]
        await self._hold([uri])
        if uri not in self.uris:
            await wire.error(-32002, "Resource not found")
            return
        self._of_session.setdefault(wire.request.headers.get("mcp-session-id", ""), set()).add(uri)
        await wire.result()

    async def _call(self, wire: Wire) -> None:
        await wire.stream()
        for params in self.logs:
            await wire.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        await wire.answer(content=[{"type": "text", "text": "done"}])


class _Sessions(Sessions):
    def __init__(self, server: FollowingServer) -> None:
        super().__init__()
        self._server = server

    async def initialize(self, wire: Wire) -> None:
        """Begin one."""
        self.made += 1
        name = f"session-{self.made}"
        self.live.add(name)
        await wire.result(
            f"Mcp-Session-Id: {name}",
            protocolVersion=HANDSHAKE,
            capabilities=self._server.capabilities,
            serverInfo={"name": "docs", "version": "1"},
        )


@contextmanager
def following(era: str) -> Iterator[FollowingServer]:
    """Serve one until the block ends."""
    made = FollowingServer(era)
    common: dict[str, Any] = {"resources_list": made._list, "tools_call": made._call}
    if era == STATELESS:
        made.up = stateless(server_discover=made._discover, subscriptions_listen=made._listen, **common)
    else:
        made.up = handshake(_Sessions(made), GET=made._get, resources_subscribe=made._subscribe, **common)
    made.up.on["resources/templates/list"] = made._templates
    with running(made.up):
        yield made
