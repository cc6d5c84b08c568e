"""One request of a client, with what its answer depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.identity import Identity
from toolcrib_registry.calls.service import Parts as CallParts
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.mcp.mirrors import Fields
from toolcrib_registry.mcp.outcomes import Outcome
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.search.engine import SearchEngine


class Parts(CallParts, Protocol):
    """What MCP needs of the registry (`deps.Deps` has it)."""

    @property
    def search(self) -> SearchEngine: ...

    @property
    def large(self) -> LargeRequests: ...


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, in which revision.

    Args:
        asker: with an identity.
        version: the revision.
        request_id: the id of the HTTP request.
        fields: header fields of MCP.
    """

    asker: Asker
    version: str
    request_id: str
    fields: Fields

    @property
    def identity(self) -> Identity:
        """Who asks."""
        assert self.asker.identity is not None
        return self.asker.identity


class Endpoint(Protocol):
    """What is served at one path: which tools there are, and what calling one does."""

    path: str
    instructions: str
    changes: bool
    """Whether its list may change."""

    async def list(self, client: Client, cursor: str | None) -> Outcome:
        """Answer `tools/list`."""
        ...

    async def call(self, client: Client, name: str, arguments: dict[str, Any]) -> Outcome:
        """Answer `tools/call`."""
        ...

    async def digest(self, caller_view: CallerView, version: str) -> str:
        """Names the content of the caller's list."""
        ...
