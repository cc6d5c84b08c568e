"""One request of a client, with what its answer depends on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY

from toolcrib.identity import Identity
from toolcrib.resources.meta import GROUP
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.calls.backends.port import Logs, Progress
from toolcrib_registry.calls.lookup import Parts as CallParts
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.mcp.following import Followed
from toolcrib_registry.mcp.mirrors import Fields
from toolcrib_registry.mcp.outcomes import Outcome
from toolcrib_registry.mcp.protocol import is_stateless
from toolcrib_registry.policy.access_requests import AccessDesk
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.search.engine import SearchEngine
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.upstream.lists import Kind

PROGRESS_TOKEN = "progressToken"
"""In `_meta`: by which the client knows notices of progress."""
LOG_LEVEL = LOG_LEVEL_META_KEY
"""In `_meta`: from which level on the client is told what is logged (stateless era)."""
_OWN = "io.modelcontextprotocol/"


class Parts(CallParts, Protocol):
    """What MCP needs of the registry (`deps.Deps` has it)."""

    @property
    def search(self) -> SearchEngine: ...

    @property
    def desk(self) -> AccessDesk: ...

    @property
    def large(self) -> LargeRequests: ...

    @property
    def settings(self) -> RegistrySettings: ...

    @property
    def assertions(self) -> Assertions: ...

    @property
    def is_down(self) -> Callable[[PublishedTool], bool]: ...


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, in which revision.

    Args:
        asker: with an identity.
        version: the revision.
        request_id: the id of the HTTP request.
        fields: header fields of MCP.
        progress: told how far a call has come; None: the client did not ask, or cannot be told.
        logs: told what its tool logs; None: the same.
    """

    asker: Asker
    version: str
    request_id: str
    fields: Fields
    progress: Callable[[Progress], Awaitable[None]] | None = None
    logs: Logs | None = None

    @property
    def identity(self) -> Identity:
        """Who asks."""
        assert self.asker.identity is not None
        return self.asker.identity


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The parameters of `tools/call`.

    Args:
        name: of a tool of the endpoint.
        arguments: for it.
        capabilities: what the client says it can do.
        meta: what it says of its request, MCP's own left out.
        responses: to what the tool asked for, if it did.
        state: given back with them.
    """

    name: str
    arguments: dict[str, Any]
    capabilities: Mapping[str, Any]
    meta: Mapping[str, Any]
    responses: Mapping[str, Any] | None
    state: str | None

    @classmethod
    def of(cls, params: Mapping[str, Any], version: str) -> ToolCall:
        """The call that valid parameters of a revision are: what it does not know says nothing, and may be anything."""
        meta = params.get("_meta") or {}
        arguments = params.get("arguments")
        return cls(
            params["name"],
            {} if arguments is None else arguments,
            meta.get(CLIENT_CAPABILITIES_META_KEY) or {},
            {
                key: value
                for key, value in meta.items()
                if key != PROGRESS_TOKEN and not key.startswith((_OWN, f"{GROUP}/"))
            },
            params.get("inputResponses") if is_stateless(version) else None,
            params.get("requestState") if is_stateless(version) else None,
        )


class Offered(Protocol):
    """Resources and prompts (`mcp.offered` has it)."""

    @property
    def changes(self) -> int:
        """Grows with each change of a list that a server tells of."""
        ...

    def digest(self, caller_view: CallerView, kind: Kind) -> str:
        """Names what a caller's list of a kind is made of."""
        ...

    async def answer(self, client: Client, method: str, params: Mapping[str, Any]) -> Outcome:
        """Answer one of their methods."""
        ...

    async def follow(self, client: Client, uri: str, followed: Followed) -> None:
        """Have a client told of changes of a resource."""
        ...


class Session(Protocol):
    """What is remembered of a client's session (`mcp.sessions` has it)."""

    level: str
    """From which level on it is told what is logged."""

    @property
    def followed(self) -> Followed:
        """The resources of whose changes it is told."""
        ...


class Sessions(Protocol):
    """The sessions that this replica remembers (`mcp.sessions` has it)."""

    def level(self, client: Client) -> str:
        """From which level on the client of a request is told what is logged."""
        ...

    def unfollow(self, client: Client, uri: str) -> None:
        """Tell the client's session no more of a resource."""
        ...

    def of(self, client: Client) -> Session:
        """The session of a request, remembered from now on."""
        ...


class Endpoint(Protocol):
    """What is served at one path: which tools there are, and what calling one does."""

    path: str
    instructions: str
    changes: bool
    """Whether its lists may change."""
    offered: Offered
    """Answers for resources and prompts."""
    sessions: Sessions

    async def list(self, client: Client, cursor: str | None) -> Outcome:
        """Answer `tools/list`."""
        ...

    async def call(self, client: Client, asked: ToolCall) -> Outcome:
        """Answer `tools/call`."""
        ...

    async def digest(self, caller_view: CallerView, version: str) -> str:
        """Names the content of the caller's list."""
        ...
