"""Where access requests are read and decided: the port of `in_cluster` and `in_local_mode`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolcrib_cli.requesting.asked import Asked


class Source(Protocol):
    """AccessRequests, the tools they are about, and what is decided. Every method may raise CliError."""

    def objects(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """AccessRequests, Tools and ToolServers, all or those of a namespace."""
        ...

    def username(self) -> str | None:
        """Who decides, as the API server knows them; None: the owner of the files."""
        ...

    def grant(self, binding: Mapping[str, Any]) -> None:
        """Create the binding. It is an error where there is one of its name."""
        ...

    def revoke(self, binding: Mapping[str, Any]) -> None:
        """Delete the binding again."""
        ...

    def reject(self, asked: Asked, reason: str) -> None:
        """Say why it is rejected. It is an error where the request has changed since it was read."""
        ...
