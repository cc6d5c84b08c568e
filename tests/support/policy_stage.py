"""An operator's loop over a World, an honest replica and a shelf of admission policies."""

import asyncio
import contextlib
import copy
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from operator_harness import MemoryReplica, conditions
from toolcrib.resources import admission
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWorkloads, MemoryWriter
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import (
    AgentSettings,
    IndexSettings,
    LoopSettings,
    PolicySettings,
    PublisherSettings,
)
from toolcrib_operator.workloads.keeper import Keeper
from toolcrib_operator.world import World
from waiting import until

SETTINGS = LoopSettings(hold_back=0.05, takeover_hold=0.1, finalizers=False, services=False)
REFUSED = ("False", "AdmissionPolicyMissing")
WAITS = ("False", "AdmissionPolicyUnread")


class Shelf:
    """The policies as an API server would list them."""

    def __init__(self) -> None:
        self.manifests = [on_server(m, f"uid-{i}") for i, m in enumerate(admission.manifests())]
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads = 0

    async def policies(self) -> list[dict[str, Any]]:
        self.reads += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return copy.deepcopy(self.manifests)

    def without(self, name: str, kind: str = admission.POLICY) -> list[dict[str, Any]]:
        return [
            m for m in self.manifests if (m["kind"], m["metadata"]["name"]) != (kind, f"{name}.toolcrib.dev")
        ]


def on_server(manifest: dict[str, Any], uid: str) -> dict[str, Any]:
    manifest = copy.deepcopy(manifest)
    manifest["metadata"] |= {"uid": uid, "generation": 1, "resourceVersion": "7"}
    return manifest


class EarlyShelf(Shelf):
    """It has made up its answer when it is asked, but each of `holds` keeps one back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: list[asyncio.Event] = []

    async def policies(self) -> list[dict[str, Any]]:
        found = await super().policies()
        if self.holds:
            await self.holds.pop(0).wait()
        return found


class Stage:
    """An operator's loop over a World, an honest replica and a shelf of policies."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        external: bool = False,
        every: float = 0.02,
        look_within: float = 0.5,
        settle: float = 0.2,
        agents: AgentSettings | None = None,
        workloads: MemoryWorkloads | None = None,
    ) -> None:
        self.shelf, self.replica = shelf, MemoryReplica()
        self.world = World()
        self.publisher = Publisher(1, FixedReplicas(self.replica), settings=PublisherSettings(discover=0.05))
        index_sync = IndexSync(self.publisher, settings=IndexSettings(inventory=0.2))
        fast = PolicySettings(every=every, settle=settle, stale_after=0.3)
        self.policies = Policies(Admitted(external=external), None if external else shelf, settings=fast)
        writer = MemoryWriter(self.world)
        settings = dataclasses.replace(SETTINGS, look_within=look_within, agents=agents)
        self.workloads, keeper = workloads or MemoryWorkloads(), None
        if agents is not None:
            keeper = Keeper(self.world, self.workloads, agents, snapshot=lambda: self.publisher.snapshot)
        self.loop = Loop(
            self.world,
            self.publisher,
            index_sync,
            writer,
            settings=settings,
            policies=self.policies,
            workloads=keeper,
        )

    @contextlib.asynccontextmanager
    async def running(self, *objects: dict[str, Any]) -> AsyncIterator["Stage"]:
        for kind in WATCHED:
            self.world.replace(kind, [o for o in objects if o["kind"] == kind])
        stop = asyncio.Event()
        task = asyncio.create_task(self.loop.run(stop))
        try:
            yield self
        finally:
            stop.set()
            await task

    def accepted(self, name: str = "planner") -> tuple[str, str] | None:
        entry = self.world.get(Ref("AgentScopeBinding", f"heist/{name}"))
        return None if entry is None else conditions(entry.status).get("Accepted")

    def message(self, name: str = "planner") -> str:
        entry = self.world.get(Ref("AgentScopeBinding", f"heist/{name}"))
        assert entry is not None
        told: str = next(c["message"] for c in entry.status["conditions"] if c["type"] == "Accepted")
        return told

    def granted(self) -> set[str]:
        return {b.name for b in self.replica.snapshot.bindings.values() if b.scopes}

    async def until(self, accepted: tuple[str, str], name: str = "planner") -> None:
        """Return when the status says so, and the replica has what goes with it."""

        def holds() -> bool:
            done = self.replica.snapshot.revision == self.publisher.revision
            return self.accepted(name) == accepted and done

        await until(holds, what=f"{name}: {self.accepted(name)}")

    async def write(self, manifest: dict[str, Any]) -> None:
        async with asyncio.timeout(60):
            await self.loop.published(self.world.upsert("AgentScopeBinding", manifest))


def entry_of(manifest: dict[str, Any]) -> Entry:
    world = World()
    world.upsert("AgentScopeBinding", manifest)
    entry = world.get(Ref("AgentScopeBinding", f"heist/{manifest['metadata']['name']}"))
    assert entry is not None
    return entry


def accepted_condition(status: str, reason: str, generation: int) -> dict[str, Any]:
    return {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": "write it anew",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }
