"""What is counted of looks at MCP servers, on the replica that imports."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry

from toolcrib.wire.imports import ServerOutcome
from toolcrib_registry.metrics import table


class ServerCounts:
    """The metrics of MCP servers, each `namespace/name`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = table.SERVER_UP.on(registry)
        self._lists = table.SERVER_LISTS.on(registry)

    def server_seen(self, server: str, outcome: ServerOutcome) -> None:
        """A server was looked at."""
        self._up.labels(*server.split("/", 1)).set(outcome is ServerOutcome.LISTED)
        if outcome.asked:
            self._lists.labels(outcome.value).inc()

    def server_gone(self, server: str) -> None:
        """It is not looked at any more."""
        with suppress(KeyError):
            self._up.remove(*server.split("/", 1))
