"""Where tools that need approval are read, and approvals written: the port of `in_cluster` and `in_local_mode`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolcrib_cli.approving.shown import Shown


class Source(Protocol):
    """Tools with approval Manual, and what is decided about them."""

    def tools(self, namespace: str | None) -> list[Shown]:
        """All of them, or those of a namespace."""
        ...

    def approve(self, tool: Shown) -> None:
        """Approve a tool as it is shown. Raises CliError: it is another by now, or this is not permitted."""
        ...

    def reject(self, tool: Shown, reason: str) -> None:
        """Say why a tool is not approved as it is shown; one that is approved so is not any more. Errors as `approve`."""
        ...


def key_of(body: Mapping[str, Any]) -> str:
    """namespace/name of an object."""
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
