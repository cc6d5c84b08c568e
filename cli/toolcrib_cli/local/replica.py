"""The registry of this process as a replica for the operator's publisher: the admin channel without the channel."""

from __future__ import annotations

from toolcrib.wire.publish import (
    Credentials,
    Heartbeat,
    IndexAnswer,
    IndexInventory,
    IndexRequest,
    Publish,
    ReplicaState,
)
from toolcrib_operator.errors import IndexUnavailable
from toolcrib_registry.deps import Deps
from toolcrib_registry.search.errors import SearchError


class InProcessReplica:
    """Calls what the admin routes call; errors of the index are translated once, here."""

    name = "local"

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def report(self) -> ReplicaState:
        """What it holds."""
        return self._deps.state.report()

    async def publish(self, publish: Publish) -> ReplicaState:
        """Apply one step. Raises RevisionMismatch, EpochFenced."""
        state = await self._deps.state.publish(publish)
        self._deps.metrics.published("applied")
        return state

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        """The loop is alive. Raises RevisionMismatch, EpochFenced."""
        return self._deps.state.heartbeat(heartbeat)

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        """Replace all backend credentials."""
        self._deps.credentials.replace(credentials)
        return self._deps.state.report()

    async def index(self, request: IndexRequest) -> IndexAnswer:
        """Embed, write, read back. Raises IndexUnavailable."""
        try:
            return await self._deps.indexing.apply(request)
        except SearchError as error:
            raise IndexUnavailable(str(error)) from error

    async def inventory(self) -> IndexInventory:
        """What the index holds. Raises IndexUnavailable."""
        try:
            return await self._deps.indexing.inventory()
        except SearchError as error:
            raise IndexUnavailable(str(error)) from error
