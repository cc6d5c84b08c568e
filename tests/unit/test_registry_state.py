"""The policy state of a replica."""

import pytest

from frozen_heap import frozen_by
from published import tool
from registry_harness import ManualClock
from toolcrib.process.garbage import LARGE
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.state import PolicyState

pytestmark = pytest.mark.anyio


async def test_what_a_large_publish_brings_is_frozen() -> None:
    async def publish(count: int) -> None:
        tools = tuple(tool(f"team-a/tool-{i}") for i in range(count))
        await PolicyState(ManualClock()).publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools))

    assert await frozen_by(lambda: publish(1)) == 0
    assert await frozen_by(lambda: publish(LARGE)) > LARGE
