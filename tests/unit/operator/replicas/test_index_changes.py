"""A change is looked at alone: what the index costs the operator does not grow with the catalog."""

from unittest import mock

import pytest

from manifests import tool
from operator_harness import MemoryReplica
from operator_stage import staged
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import IndexInventory
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
