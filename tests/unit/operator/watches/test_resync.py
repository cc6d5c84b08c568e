"""What is known to be complete, and since when: the account behind heartbeats."""

import asyncio
from typing import Any

import pytest

from manifests import tool
from toolcrib_operator.errors import NotListable
from toolcrib_operator.objects import Ref, key_of
from toolcrib_operator.ports import Listing
from toolcrib_operator.settings import WatchSettings
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio


class Reader:
    """A cluster whose watches are silent, and of which some kinds cannot be listed."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.objects: dict[str, dict[str, Any]] = {}

    async def list(self, kind: str) -> Listing:
        if kind in self.refused:
            raise NotListable(f"{kind} cannot be listed")
        return Listing([o for o in self.objects.values() if o["kind"] == kind], "9")

    async def versions(self, kind: str) -> dict[str, str]:
        return {key_of(o): o["metadata"]["resourceVersion"] for o in (await self.list(kind)).objects}


async def test_one_silent_kind_that_cannot_be_proven_makes_the_view_old() -> None:
    clock, reader = [100.0], Reader()
    settings = WatchSettings(prove_after=0.02, unproven_after=30.0)
    resync = Resync(
        World(("Tool", "Namespace")), reader, kinds=("Tool", "Namespace"), settings=settings,
        monotonic=lambda: clock[0],
    )  # fmt: skip
    assert not resync.proven()
    stop = asyncio.Event()
    assert await resync.list_all(stop)
    assert (resync.proven(), resync.age()) == (True, 0.0)
    reader.refused.add("Namespace")
    clock[0] += 40
    resync.heard("Tool")
    assert (resync.proven(), resync.age()) == (False, 40.0)
    task = asyncio.create_task(resync.run(stop))
    await until(lambda: resync.problems)
    assert resync.age() == 40.0
    reader.refused.clear()
    await until(lambda: not resync.problems)
    assert (resync.proven(), resync.age()) == (True, 0.0)
    stop.set()
    await task


async def test_what_a_dead_watch_did_not_say_is_found_by_the_proof_and_repaired() -> None:
    reader, world = Reader(), World(("Tool",))
    resync = Resync(world, reader, kinds=("Tool",), settings=WatchSettings(prove_after=0.02))
    for name, version in (("kept", "3"), ("gone", "4")):
        reader.objects[name] = tool(name)
        reader.objects[name]["metadata"]["resourceVersion"] = version
    stop = asyncio.Event()
    assert await resync.list_all(stop)
    task = asyncio.create_task(resync.run(stop))
    await asyncio.sleep(0.1)
    assert resync.repairs == 0
    new = tool("new")
    new["metadata"]["resourceVersion"] = "6"
    reader.objects = {"kept": reader.objects["kept"], "new": new}
    await until(lambda: world.get(Ref("Tool", "heist/new")))
    assert world.versions("Tool") == {"heist/kept": "3", "heist/new": "6"}
    await until(lambda: resync.repairs == 1)
    stop.set()
    await task
