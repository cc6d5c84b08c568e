"""An operator's loop over a World and an honest replica, and what it writes: statuses and events.

async with staged(tool("calculator"), binding("planner", ["calculator:use"]), ACCOUNT) as stage:
    await until(lambda: stage.said()["Ready"] == ("True", "Ready"))
    stage.told()    # events
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from operator_harness import MemoryReplica, conditions
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryApplier, MemoryWriter
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import Event
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.servers import ServerReports
from toolcrib_operator.settings import (
    ImportSettings,
    IndexSettings,
    LoopSettings,
    ProbeSettings,
    PublisherSettings,
)
from toolcrib_operator.world import World


class Recorder(MemoryWriter):
    """Writes into the World, and keeps the events."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.events: list[tuple[str, str, str]] = []
        self.statuses = 0

    async def write_status(self, *args: Any, **more: Any) -> Any:
        self.statuses += 1
        return await super().write_status(*args, **more)

    async def write_event(self, event: Event) -> None:
        self.events.append((event.ref.key, event.type, event.reason))


@dataclass
class Stage:
    world: World
    loop: Loop
    writer: Recorder
    probes: ProbeReports | None = None
    imports: Imports | None = None

    def said(self, name: str = "planner", kind: str = "AgentScopeBinding") -> dict[str, tuple[str, str]]:
        key = f"heist/{name}" if kind == "AgentScopeBinding" else name
        entry = self.world.get(Ref(kind, key))
        return conditions(None if entry is None else entry.status)

    def told(self, name: str = "heist/planner") -> list[tuple[str, str]]:
        """Without what is said where the machine stands still for a tenth of a second before a replica confirms."""
        said = [(kind, reason) for key, kind, reason in self.writer.events if key == name]
        return [each for each in said if each[1] != "NotPropagated"]


SETTINGS = LoopSettings(hold_back=0.1, takeover_hold=0.2, trials_every=0.05, finalizers=False, services=False)
ACCOUNT = {"kind": SERVICE_ACCOUNT, "metadata": {"name": "planner", "namespace": "heist", "uid": "u1"}}


@contextlib.asynccontextmanager
async def staged(
    *objects: dict[str, Any],
    settings: LoopSettings = SETTINGS,
    world: World | None = None,
    replica: MemoryReplica | None = None,
    others: Sequence[MemoryReplica] = (),
    probes: ProbeSettings | None = None,
    imports: ImportSettings | None = None,
    applier: Callable[[World], MemoryApplier] = MemoryApplier,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Stage]:
    fresh, world = world is None, world or World()
    fast = PublisherSettings(heartbeat=0.1, discover=0.05)
    replicas = [replica or MemoryReplica(), *others]
    publisher = Publisher(1, FixedReplicas(*replicas), settings=fast)
    index_sync = IndexSync(publisher, settings=IndexSettings(inventory=0.2))
    writer = Recorder(world)
    channels = {each.name: each for each in replicas}
    reports = None if probes is None else ProbeReports(publisher, channels.__getitem__, settings=probes)
    importing = None
    if imports is not None:
        seen = ServerReports(publisher, channels.__getitem__, settings=imports)
        importing = Imports(world, publisher, seen, applier(world), settings=imports, clock=clock)
    loop = Loop(
        world,
        publisher,
        index_sync,
        writer,
        settings=settings,
        probes=reports,
        imports=importing,
        clock=clock,
    )
    for kind in WATCHED if fresh else ():
        world.replace(kind, [o for o in objects if o["kind"] == kind])
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield Stage(world, loop, writer, reports, importing)
    finally:
        stop.set()
        await task
