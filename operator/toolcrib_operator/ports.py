"""What the operator needs from outside, as protocols: adapters implement them, `main` and the local mode choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolcrib.wire.confirmations import CallsReport, CallsTold, ConfirmableCall
from toolcrib.wire.imports import ListRequest, ServerList, ServersReport, ServersRequest
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.outbox import Outbox, OutboxAcks
from toolcrib.wire.probes import BackendReport, ProbeRequest
from toolcrib.wire.publish import (
    Credentials,
    Heartbeat,
    Publish,
    ReplicaState,
    SnapshotCommit,
)
from toolcrib_operator.objects import Ref


class Replica(Protocol):
    """One replica of the registry, by its admin channel.

    Every method may raise `ReplicaUnavailable` (try again), and all that write `toolcrib.errors.EpochFenced`
    (another leader has been there: this one is over).
    """

    @property
    def name(self) -> str:
        """Unique and stable: its admin URL."""
        ...

    async def report(self) -> ReplicaState:
        """What it holds, and which features it enforces."""
        ...

    async def publish(self, publish: Publish) -> ReplicaState:
        """Apply one step. Raises `toolcrib.errors.RevisionMismatch` if it does not continue what is there."""
        ...

    async def stage(self, chunk: bytes) -> ReplicaState:
        """Hand over an encoded `SnapshotChunk`. Raises `RevisionMismatch` if it does not continue what is staged."""
        ...

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        """Put what is staged into effect. Raises `RevisionMismatch` if that is something else."""
        ...

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        """Say that the leader is alive. Raises `RevisionMismatch` if revision or hash differ."""
        ...

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        """Replace all backend credentials."""
        ...

    async def index(self, request: IndexRequest) -> IndexAnswer:
        """Write to the search index and read back. Raises `IndexUnavailable`."""
        ...

    async def inventory(self) -> IndexInventory:
        """What the search index holds. Raises `IndexUnavailable`."""
        ...


class OutboxChannel(Protocol):
    """The runtime registrations of one replica, by its admin channel. Both methods raise like those of `Replica`."""

    async def outbox(self, epoch: int, wait: float) -> Outbox:
        """What waits to be created; at the latest after `wait` seconds, then perhaps nothing."""
        ...

    async def acknowledge(self, acks: OutboxAcks) -> ReplicaState:
        """Say what became of it."""
        ...


class CallChannel(Protocol):
    """The calls of one replica that people confirm, by its admin channel. Raises like `Replica`."""

    async def calls(self, told: CallsTold) -> CallsReport:
        """Tell it what was decided; which calls wait there, and which were made."""
        ...


class CallObjects(Protocol):
    """CallConfirmations. Each method may raise `ClusterUnavailable`."""

    async def calls(self) -> Sequence[Mapping[str, Any]]:
        """All of them, as the API server has them."""
        ...

    async def create_call(self, call: ConfirmableCall) -> str:
        """Create one; its uid. Raises `Conflict`: it is there. `Gone`: there is no such namespace, or no such kind."""
        ...

    async def delete_call(self, call: ConfirmableCall) -> None:
        """Delete one; one that is gone is no error."""
        ...


class ProbeChannel(Protocol):
    """The probes of one replica, by its admin channel. Raises like `Replica`."""

    async def backends(self, request: ProbeRequest) -> BackendReport:
        """Have it probe backends for some time; what it knows so far."""
        ...


class ImportChannel(Protocol):
    """The MCP servers that one replica watches, by its admin channel. Both methods raise like those of `Replica`."""

    async def servers(self, request: ServersRequest) -> ServersReport:
        """Have it watch exactly these servers for some time; what it knows so far, at the latest after `request.wait`."""
        ...

    async def server_list(self, request: ListRequest) -> ServerList | None:
        """One list that a report named; None: it is not held any more."""
        ...


class PolicyReader(Protocol):
    """Reads the admission policies."""

    async def policies(self) -> Sequence[Mapping[str, Any]]:
        """Policies and their bindings that are labelled as ours. Raises `NotListable`, `ClusterUnavailable`."""
        ...


class Creator(Protocol):
    """Creates objects. It never changes one that is there."""

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create it; the object as it is now.

        Raises:
            Conflict: there is one of that name. Gone: there is no such namespace or kind.
            Invalid: it is refused for what it is. ClusterUnavailable: perhaps it was created, perhaps not.
        """
        ...


class Deleter(Protocol):
    """Deletes objects."""

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Delete the object of this uid; one that is gone already is no error. Raises Conflict: it is another one."""
        ...


class Applier(Deleter, Protocol):
    """Writes and deletes imported Tools. It never takes over one that is another's.

    Both methods raise ClusterUnavailable: perhaps it was done, perhaps not, or the operator may not.
    """

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """Write what an import owns of a Tool, and nothing else; the object as it is now.

        Args:
            manifest: the Tool.
            uid: of the object that is there; None: there is none.

        Raises:
            Conflict: another object has the name. Gone: there is no such namespace or kind.
            Invalid: it is refused for what it is.
        """
        ...


class Workloads(Protocol):
    """Deployments and Jobs of Agents, in the namespaces in which they are run.

    Each method may raise `ClusterUnavailable`: perhaps it was done, perhaps not, or the operator may not.
    """

    async def there(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """All that are labelled as ours. Raises `NotListable`."""
        ...

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """Write what the manifest says of a Deployment, or create a Job; the object as it is now.

        Fields that others wrote in the place of ours are ours again, their other fields stay.

        Args:
            manifest: the object.
            uid: of the Deployment that is there; None: there is none.

        Raises:
            Conflict: another object has the name. Gone: there is no such namespace. Invalid: it is refused for what it is.
        """
        ...

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Delete one with its pods; one that is gone is no error. Raises Conflict: it is another one."""
        ...


class Replicas(Protocol):
    """Where the replicas are."""

    async def current(self) -> Sequence[Replica]:
        """All of them, ready or not; the same object for the same name. Raises `ReplicasUnknown`."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """What the API server answered to a write."""

    resource_version: str
    status: Mapping[str, Any] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class ClusterWriter(Protocol):
    """The operator's writes. All are compare-and-swap by resourceVersion.

    Each may raise `Conflict`, `Gone` and `ClusterUnavailable`.
    """

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        """Merge-patch `/status`; a None removes the field."""
        ...

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        """Replace the list of finalizers. After the last one of a deleted object it is gone."""
        ...

    async def write_event(self, event: Event) -> None:
        """Tell people about a transition."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """One transition of one object, for `kubectl describe`."""

    ref: Ref
    uid: str
    type: str
    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Lease:
    """What the Lease object says, and the resourceVersion that a change must be based on."""

    holder: str
    transitions: int
    renewed: str
    duration: float
    resource_version: str


class Leases(Protocol):
    """The one Lease that operators compete for."""

    async def read(self) -> Lease | None:
        """The Lease, or None if there is none. Raises `ClusterUnavailable`."""
        ...

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        """Create it (empty resource_version) or replace exactly that version of it.

        Raises `Conflict` if somebody was faster, `ClusterUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredAnchors:
    """The anchors of decision logs as a document, and the resourceVersion that a change must be based on."""

    text: str
    resource_version: str


class AnchorStore(Protocol):
    """Where the anchors of decision logs are kept. Both methods may raise `ClusterUnavailable`."""

    async def read(self) -> StoredAnchors | None:
        """What is kept; None: nothing yet."""
        ...

    async def write(self, text: str, resource_version: str) -> None:
        """Create it (empty resource_version) or replace exactly that version of it. Raises `Conflict`."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, as manifests or as the `World` keeps them, and the resourceVersion at which they were all.

    `problem` says what could not be read where that is no reason to stop: Secrets of one namespace.
    """

    objects: list[Any]
    resource_version: str
    problem: str = ""


class ClusterReader(Protocol):
    """Lists, apart from kopf's watches: at a takeover, and to prove a silent watch."""

    async def list(self, kind: str) -> Listing:
        """All objects of a kind. Raises `NotListable`, `ClusterUnavailable`."""
        ...

    async def versions(self, kind: str) -> dict[str, str]:
        """Key to resourceVersion of all objects of a kind (metadata only). Raises like `list`."""
        ...
