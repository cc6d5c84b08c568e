"""An importer over the real client and the real guarded pool, asked as the operator asks it: tests of what it finds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp_upstream import POLICY, McpUpstream
from toolcrib.wire.backends import PublishedAuth, PublishedBackend
from toolcrib.wire.imports import (
    ServerList,
    ServerOutcome,
    ServerSeen,
    ServersReport,
    ServersRequest,
    ServerWanted,
)
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.clock import SystemClock
from toolcrib_registry.importing.importer import Importer
from toolcrib_registry.importing.room import Room
from toolcrib_registry.importing.routes import Routes
from toolcrib_registry.outbound.guard import EgressPolicy, ReplaceablePolicy
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.servers import Bounds

SECONDS = 30.0
BOUNDS = Bounds()


@dataclass
class Looks:
    """What was counted."""

    of: Counter[tuple[str, ServerOutcome]] = field(default_factory=Counter)
    gone: list[str] = field(default_factory=list)

    def server_seen(self, server: str, outcome: ServerOutcome) -> None:
        self.of[server, outcome] += 1

    def server_gone(self, server: str) -> None:
        self.gone.append(server)


@dataclass
class Imports:
    """One importer."""

    importer: Importer
    looks: Looks
    credentials: CredentialStore
    policy: ReplaceablePolicy
    client: McpClient
    tokens: Tokens
    servers: tuple[ServerWanted, ...] = ()
    report: ServersReport = field(default_factory=ServersReport)

    def want(self, *servers: ServerWanted, seconds: float = 60) -> None:
        """Watch exactly these."""
        self.servers = servers
        self.importer.asked(ServersRequest(epoch=1, seconds=seconds, servers=servers))

    def row(self, server: str = "team/files") -> ServerSeen:
        """What is known of one, by the last report."""
        return next(row for row in self.report.servers if row.server == server)

    async def until(
        self, holds: Callable[[ServerSeen], Any], server: str = "team/files", seconds: float = SECONDS
    ) -> ServerSeen:
        """The row once it is so, as one who asks with long polls sees it."""
        async with asyncio.timeout(seconds):
            while True:
                self.report = await self.importer.report(self.report.counter, 5)
                if holds(row := self.row(server)):
                    return row

    async def seen(
        self, outcome: ServerOutcome, server: str = "team/files", seconds: float = SECONDS
    ) -> ServerSeen:
        """The row once its outcome is that."""
        return await self.until(lambda row: row.outcome is outcome, server, seconds)

    async def listed(self, server: str = "team/files") -> ServerList:
        """The list that the last report names."""
        digest = self.row(server).set_digest
        assert digest is not None
        body = await self.importer.listed(server, digest)
        assert body is not None
        return ServerList.model_validate(json.loads(body))


def wanted(up: McpUpstream, server: str = "team/files", *, every: float = 3600, auth: PublishedAuth | None = None,
           timeout: float = 10, listen: bool = True, **more: Any) -> ServerWanted:  # fmt: skip
    """A scripted server, as the operator names it."""
    backend = PublishedBackend(url=up.url, auth=auth, timeout=timeout, **more)
    return ServerWanted(server=server, backend=backend, every=every, listen=listen)


@asynccontextmanager
async def importing(
    egress: EgressPolicy = POLICY, assertions: Assertions | None = None, bounds: Bounds = BOUNDS
) -> AsyncIterator[Imports]:
    """An importer that works, with little memory for lists, so that a test reaches its end."""
    policy, credentials, looks = ReplaceablePolicy(egress), CredentialStore(), Looks()
    issuer = "" if assertions is None else assertions.issuer
    async with OutboundHttp(policy) as outbound:
        client = McpClient(outbound, bounds)
        tokens = Tokens(outbound, policy, credentials)
        importer = Importer(
            client,
            Routes(policy, credentials, assertions, issuer, tokens),
            SystemClock(),
            looks,
            bounds=bounds,
            room=Room(2 << 20),
            dice=lambda: 0.0,
        )
        running = asyncio.create_task(importer.run())
        try:
            yield Imports(importer, looks, credentials, policy, client, tokens)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await tokens.close()
            await client.close()
