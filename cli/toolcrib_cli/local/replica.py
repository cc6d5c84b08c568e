"""The registry of this process as a replica for the operator's publisher: the admin channel without the channel."""

from __future__ import annotations

import asyncio

from toolcrib.wire.features import SNAPSHOT_CHUNKS
from toolcrib.wire.imports import ListRequest, ServerList, ServersReport, ServersRequest
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.probes import BackendReport, ProbeRequest
from toolcrib.wire.publish import (
    Credentials,
    Heartbeat,
    Publish,
    ReplicaState,
    SnapshotCommit,
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
        """What it holds. It takes full snapshots whole: what is in this process already need not be cut."""
        state = self._deps.state.report()
        return state.model_copy(update={"features": tuple(f for f in state.features if f != SNAPSHOT_CHUNKS)})

    async def publish(self, publish: Publish) -> ReplicaState:
        """Apply one step. Raises RevisionMismatch, EpochFenced."""
        if publish.base is None:
            self._deps.state.leader.current = True  # of this version, like one that sends chunks
        state = await self._deps.state.publish(publish)
        self._deps.metrics.published("applied")
        return state

    async def stage(self, chunk: bytes) -> ReplicaState:
        """Never asked."""
        raise NotImplementedError

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        """Never asked."""
        raise NotImplementedError

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        """The loop is alive. Raises RevisionMismatch, EpochFenced."""
        return self._deps.state.heartbeat(heartbeat)

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        """Replace all backend credentials."""
        self._deps.credentials.replace(credentials)
        return self._deps.state.report()

    async def backends(self, request: ProbeRequest) -> BackendReport:
        """Have it probe backends; what it knows so far."""
        return self._deps.prober.asked(request)

    async def servers(self, request: ServersRequest) -> ServersReport:
        """Have it watch these servers; what it knows with the next change. Raises EpochFenced."""
        state, importer = self._deps.state, self._deps.importer
        state.fence(request.epoch)
        importer.asked(request)
        return await importer.report(request.after, request.wait, lambda: state.closing)

    async def server_list(self, request: ListRequest) -> ServerList | None:
        """One list that a report named; None: it is not held any more."""
        found = await self._deps.importer.listed(request.server, request.set_digest)
        return None if found is None else await asyncio.to_thread(ServerList.model_validate_json, found)

    async def index(self, request: IndexRequest) -> IndexAnswer:
        """Embed, write, read back. Raises IndexUnavailable."""
        try:
            return await self._deps.index.apply(request)
        except SearchError as error:
            raise IndexUnavailable(str(error)) from error

    async def inventory(self) -> IndexInventory:
        """What the index holds. Raises IndexUnavailable."""
        try:
            return await self._deps.index.inventory()
        except SearchError as error:
            raise IndexUnavailable(str(error)) from error
