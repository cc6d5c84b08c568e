"""Servers with resources and prompts, and grants, that one test publishes to a running registry."""

from __future__ import annotations

from typing import Any

from imported import toolserver
from mcp_client import STATELESS, McpClient
from offering_server import OfferingServer
from registry_harness import RunningRegistry, binding
from toolcrib import publishing
from toolcrib_registry.upstream.lists import Kind


class World:
    """Servers and grants of one test; gone after it."""

    def __init__(self, running: RunningRegistry) -> None:
        self.running, self.servers, self.bindings = running, list[str](), list[str]()

    def end(self) -> None:
        """Remove them."""
        self.running.publish(remove_servers=self.servers, remove_bindings=self.bindings)

    def serve(self, up: OfferingServer, name: str, namespace: str = "team", **spec: Any) -> None:
        """Publish a ToolServer; `spec` as of `toolserver`."""
        made = publishing.server(toolserver(name, up.url, namespace, **spec), None)
        assert made is not None
        self.servers.append(made.server_id)
        self.running.publish(servers=[made])

    def grant(self, *scopes: str, **fields: Any) -> None:
        """Bind the agent `bot`, or the `subjects`."""
        made = binding("bot", scopes, **fields)
        self.bindings.append(made.uid)
        self.running.publish([], [made])

    def revoke(self) -> None:
        """Remove all grants."""
        self.running.publish(remove_bindings=self.bindings)
        self.bindings.clear()

    def changed(self, server_id: str, kind: Kind) -> None:
        """The server says on its stream that one of its lists has changed."""

        async def tell() -> None:
            self.running.registry.deps.importer.on_change(server_id, kind)

        self.running.on_loop(tell)


def uris(running: RunningRegistry, version: str = STATELESS, who: str = "bot") -> list[str]:
    """The URIs that a caller is shown."""
    return [
        each["uri"] for each in McpClient(running, version, who=who).result("resources/list")["resources"]
    ]


def prompts(running: RunningRegistry, who: str = "bot") -> list[str]:
    """The names of prompts that a caller is shown."""
    return [each["name"] for each in McpClient(running, who=who).result("prompts/list")["prompts"]]
