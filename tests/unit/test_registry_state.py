"""The policy state of a replica."""

import hashlib

import pytest

from frozen_heap import frozen_by
from published import tool
from registry_harness import ManualClock
from toolcrib.process.garbage import LARGE
from toolcrib.wire.publish import Publish, Revision, SnapshotChunk, SnapshotCommit
from toolcrib_registry.staging import Staging
from toolcrib_registry.state import PolicyState

pytestmark = pytest.mark.anyio


async def test_what_a_large_publish_brings_is_frozen() -> None:
    async def publish(count: int) -> None:
        tools = tuple(tool(f"team-a/tool-{i}") for i in range(count))
        await PolicyState(ManualClock()).publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools))

    assert await frozen_by(lambda: publish(1)) == 0
    assert await frozen_by(lambda: publish(LARGE)) > LARGE


async def test_what_a_large_snapshot_brings_is_frozen_however_small_its_chunks_are() -> None:
    to, stage = Revision(epoch=1, seq=1), "a" * 32

    async def publish(count: int) -> None:
        staging, digest = Staging(PolicyState(ManualClock()), most=1 << 30), hashlib.sha256()
        for number in range(count):
            one = SnapshotChunk(
                to=to, stage=stage, number=number, tools=(tool(f"team-a/tool-{number}"),), bindings=()
            )
            body = one.model_dump_json().encode()
            digest.update(body)
            await staging.take(one, body)
        commit = SnapshotCommit(to=to, stage=stage, chunks=count, digest=digest.hexdigest(), age=0.0)
        await staging.commit(commit)

    assert await frozen_by(lambda: publish(1)) == 0
    assert await frozen_by(lambda: publish(LARGE)) > LARGE
