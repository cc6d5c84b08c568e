"""A change is looked at alone: what the index costs the operator does not grow with the catalog."""

import asyncio
from unittest import mock

import pytest

from manifests import tool
from operator_harness import MemoryReplica
from operator_stage import staged
from toolcrib.snapshot import Snapshot
from toolcrib.wire.index import IndexInventory
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from waiting import until

pytestmark = pytest.mark.anyio


class Inventoried(MemoryReplica):
    """A replica that counts its inventories."""

    inventories = 0

    async def inventory(self) -> IndexInventory:
        self.inventories += 1
        return await super().inventory()


async def test_an_edit_looks_at_no_other_tool() -> None:
    replica, looked, fingerprint = Inventoried(), [], Snapshot.fingerprint

    def counted(self: Snapshot, tool_id: str) -> int:
        looked.append(tool_id)
        return fingerprint(self, tool_id)

    async with staged(tool("other"), tool("edited"), replica=replica) as stage:
        await until(lambda: len(replica.entries) == 2 and replica.inventories > 1)
        with mock.patch.object(Snapshot, "fingerprint", counted):
            inventories = replica.inventories - 1  # one may be about to be compared
            for number in range(10):
                before = replica.entries["heist/edited"]
                stage.world.upsert("Tool", tool("edited", description=f"Text {number} of it."))
                await until(lambda before=before: replica.entries["heist/edited"] != before)  # type: ignore[misc]
        assert looked.count("heist/edited") >= 10
        # an inventory compares every tool, once
        assert looked.count("heist/other") <= replica.inventories - inventories


async def test_a_tool_that_an_inventory_does_not_find_is_written_again() -> None:
    replica = MemoryReplica()
    async with staged(tool("lost"), tool("kept"), replica=replica):
        await until(lambda: len(replica.entries) == 2)
        del replica.entries["heist/lost"]
        await until(lambda: "heist/lost" in replica.entries)


async def test_others_have_their_turn_while_an_inventory_of_a_large_catalog_is_compared() -> None:
    class Full(MemoryReplica):
        async def inventory(self) -> IndexInventory:
            return IndexInventory(identity="any", tools={f"heist/tool-{n}": "sha256:0" for n in range(5_000)})

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    index, beside = IndexSync(Publisher(1, FixedReplicas())), asyncio.create_task(others())
    try:
        await index._take_inventory(Full())
        assert turns >= 5
        assert len(index.held or ()) == 5_000
    finally:
        beside.cancel()
