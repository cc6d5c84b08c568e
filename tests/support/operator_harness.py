"""An honest replica for the operator's tests: real snapshots and an index in memory, in process or over HTTP."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import (
    Credentials,
    Heartbeat,
    IndexAnswer,
    IndexInventory,
    IndexRequest,
    Publish,
    ReplicaState,
)
from toolcrib_operator.errors import IndexUnavailable, ReplicaUnavailable


class MemoryReplica:
    """A replica of the registry as the admin channel describes it: `Snapshot.apply` and a dictionary as index."""

    def __init__(self, name: str = "replica-0") -> None:
        self.name = name
        self.down = False
        self.index_down = False
        self.index_delay = 0.0
        self.entries: dict[str, str] = {}
        self.publishes: list[Publish] = []
        self.heartbeats: list[Heartbeat] = []
        self.index_requests: list[IndexRequest] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything a process forgets; the index is kept."""
        self.snapshot = Snapshot()
        self.pushed: Credentials | None = None

    @property
    def state(self) -> ReplicaState:
        revision = self.snapshot.revision
        return ReplicaState(
            replica=self.name, revision=revision, hash=self.snapshot.hash, ready=revision is not None
        )

    def _up(self) -> None:
        if self.down:
            raise ReplicaUnavailable(f"{self.name} is down")

    async def publish(self, publish: Publish) -> ReplicaState:
        self._up()
        # over the wire and back: what arrives is what JSON carries
        publish = Publish.model_validate_json(publish.model_dump_json(by_alias=True))
        self.snapshot = self.snapshot.apply(publish)
        self.publishes.append(publish)
        return self.state

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        self._up()
        revision = self.snapshot.revision
        if revision is not None and heartbeat.revision.epoch < revision.epoch:
            raise EpochFenced(f"{revision.epoch} leads")
        if heartbeat.revision != revision or heartbeat.hash != self.snapshot.hash:
            raise RevisionMismatch(f"{revision} is here")
        self.heartbeats.append(heartbeat)
        return self.state

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        self._up()
        self.pushed = credentials
        return self.state

    async def index(self, request: IndexRequest) -> IndexAnswer:
        self._up()
        await asyncio.sleep(self.index_delay)
        if self.index_down:
            raise IndexUnavailable("the store is away")
        self.index_requests.append(request)
        for tool_id in request.remove:
            self.entries.pop(tool_id, None)
        for tool_id in request.upsert:
            if (tool := self.snapshot.tools.get(tool_id)) is not None:
                self.entries[tool_id] = tool.digest
        return IndexAnswer(indexed={i: self.entries[i] for i in request.upsert if i in self.entries})

    async def inventory(self) -> IndexInventory:
        self._up()
        if self.index_down:
            raise IndexUnavailable("the store is away")
        return IndexInventory(identity="memory", tools=dict(self.entries))


async def until(holds: Callable[[], Any], seconds: float = 10.0, what: str = "") -> Any:
    """Poll until `holds()` is true and return it; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, what or "did not come true"
        await asyncio.sleep(0.01)
    return found


def tool(name: str, namespace: str = "heist", /, **spec: Any) -> dict[str, Any]:
    """A Tool manifest."""
    body = {
        "scopes": [f"{name}:use"],
        "description": f"The tool {name}",
        "backend": {"http": {"service": {"name": "example-tools", "port": 8080}, "path": f"/tools/{name}"}},
    }
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": body | spec,
    }


def binding(name: str, scopes: Iterable[str], namespace: str = "heist", **spec: Any) -> dict[str, Any]:
    """An AgentScopeBinding manifest for the service account of its own name."""
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"subjects": [{"kind": "ServiceAccount", "name": name}], "scopes": list(scopes)} | spec,
    }


def cluster_binding(name: str, scopes: Iterable[str], **spec: Any) -> dict[str, Any]:
    """A ClusterAgentScopeBinding manifest for `heist/name`."""
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "ClusterAgentScopeBinding",
        "metadata": {"name": name},
        "spec": {
            "subjects": [{"kind": "ServiceAccount", "namespace": "heist", "name": name}],
            "scopes": list(scopes),
        }
        | spec,
    }


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    """Condition type → (status, reason)."""
    return {c["type"]: (c["status"], c["reason"]) for c in (status or {}).get("conditions", ())}
