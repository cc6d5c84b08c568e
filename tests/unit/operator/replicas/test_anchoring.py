"""The leader anchors the heads of decision logs: compare-and-swap, bounded, and loud where one goes back."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from operator_harness import MemoryReplica
from toolcrib.audit import anchors as audit_anchors
from toolcrib.wire.publish import AuditHead
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.ports import StoredAnchors
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import AnchorSettings, PublisherSettings
from waiting import until

pytestmark = pytest.mark.anyio
CHAIN = "registry-0@a"
FAST = AnchorSettings(every=0.02, look=0.01, retry=0.01)


def head(seq: int, made: str = "a", chain: str = CHAIN) -> AuditHead:
    return AuditHead(chain=chain, seq=seq, hash=made * 64)


class MemoryAnchors:
    """A store in memory that behaves like an object of the API server."""

    def __init__(self) -> None:
        self.text, self.version, self.writes = "", 0, 0
        self.away = False

    async def read(self) -> StoredAnchors | None:
        if self.away:
            raise ClusterUnavailable("away")
        return StoredAnchors(self.text, str(self.version)) if self.version else None

    async def write(self, text: str, resource_version: str) -> None:
        if resource_version != (str(self.version) if self.version else ""):
            raise Conflict("another version")
        self.text, self.version, self.writes = text, self.version + 1, self.writes + 1

    @property
    def numbers(self) -> list[int]:
        return [a.seq for a in audit_anchors.read(self.text)]


async def test_heads_that_replicas_report_with_publishes_and_heartbeats_are_anchored_when_they_change() -> (
    None
):
    store, replica = MemoryAnchors(), MemoryReplica()
    replica.audit = head(1)
    publisher = Publisher(
        1, FixedReplicas(replica), settings=PublisherSettings(heartbeat=0.02, discover=0.02)
    )
    anchoring = Anchoring(store, publisher.audit_heads, may_act=publisher.still_leads, settings=FAST)
    publisher.publish()
    stop = asyncio.Event()
    tasks = [asyncio.create_task(publisher.run(stop)), asyncio.create_task(anchoring.run(stop))]
    try:
        await until(lambda: store.numbers == [1])
        replica.audit = head(5)
        await until(lambda: store.numbers == [1, 5])
        writes = store.writes
        before = anchoring.anchored["registry-0"]
        await until(lambda: anchoring.anchored["registry-0"] > before)
        assert store.writes == writes
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_a_head_that_goes_back_is_an_error_said_once_and_the_anchor_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryAnchors()
    times = iter([1_800_000_000.0 + n for n in range(9)])
    anchoring = Anchoring(store, dict, clock=lambda: next(times))
    await anchoring.anchor({CHAIN: head(10)})
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await anchoring.anchor({CHAIN: head(9)})
        await anchoring.anchor({CHAIN: head(10, "b")})
    assert store.numbers == [10]
    assert anchoring.regressions == 2
    assert [r.message.split(": ", 1)[1] for r in caplog.records] == [
        f"{CHAIN}: the end is seq 9, but was seq 10 at 2027-01-15T08:00:00.000Z",
        f"{CHAIN}: seq 10 has another hash than at 2027-01-15T08:00:00.000Z",
    ]
    assert anchoring.anchored == {"registry-0": 1_800_000_000.0}  # the metric grows old


async def test_what_another_leader_wrote_is_kept_and_a_conflict_or_an_outage_passes() -> None:
    store, heads = MemoryAnchors(), {CHAIN: head(1)}
    await Anchoring(store, dict).anchor({"registry-1@b": head(7, chain="registry-1@b")})
    anchoring = Anchoring(store, lambda: heads, settings=FAST)
    store.away = True
    stop = asyncio.Event()
    task = asyncio.create_task(anchoring.run(stop))
    try:
        await asyncio.sleep(0)
        store.away = False
        await until(lambda: store.numbers == [1, 7])
    finally:
        stop.set()
        await task


async def test_an_altered_document_is_an_error_and_anchoring_goes_on() -> None:
    store = MemoryAnchors()
    await store.write("not what it was", "")
    anchoring = Anchoring(store, dict)
    await anchoring.anchor({CHAIN: head(3)})
    assert (store.numbers, anchoring.regressions) == ([3], 1)


@pytest.mark.parametrize(
    "entry", ['[1,"2026-01-01T00:00:00","bbb"]', '[Infinity,"2026-01-01T00:00:00Z","b"]', "[" * 100_000]
)
async def test_a_poisoned_document_does_not_end_the_operator(entry: str) -> None:
    store = MemoryAnchors()
    await store.write('{"v":1,"chains":{"registry-0@a":[' + entry + "]}}", "")
    anchoring, stop = Anchoring(store, lambda: {CHAIN: head(3)}, settings=FAST), asyncio.Event()
    task = asyncio.create_task(anchoring.run(stop))
    try:
        await until(lambda: store.writes == 2)
        assert (store.numbers, anchoring.regressions, anchoring.failures) == ([3], 1, 0)
    finally:
        stop.set()
        await task


async def test_whatever_goes_wrong_is_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryAnchors):
        left = 2

        async def read(self) -> StoredAnchors | None:
            if self.left:
                self.left -= 1
                raise ZeroDivisionError("nobody thought of this")
            return await super().read()

    store, stop = Broken(), asyncio.Event()
    anchoring = Anchoring(store, lambda: {CHAIN: head(3)}, settings=FAST)
    task = asyncio.create_task(anchoring.run(stop))
    try:
        await until(lambda: store.writes == 1)
        assert (store.numbers, anchoring.failures) == ([3], 2)
        assert "ZeroDivisionError: nobody thought of this" in caplog.text
    finally:
        stop.set()
        await task


@pytest.mark.parametrize("left", ["", '{"v":1,"chains":{}}', "no anchors", None])
async def test_anchors_that_are_deleted_or_altered_are_noticed_and_written_back(
    caplog: pytest.LogCaptureFixture, left: str | None
) -> None:
    store, heads = MemoryAnchors(), {CHAIN: head(4), "registry-1@b": head(7, chain="registry-1@b")}
    anchoring = Anchoring(store, dict)
    await anchoring.anchor(heads)
    whole, store.text, store.version = store.text, left or "", 0 if left is None else 9
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await anchoring.anchor({CHAIN: head(4)})
    assert (store.text, anchoring.regressions, len(caplog.records)) == (whole, 1, 1)
    assert "restoring them" in caplog.text
    # another process, which begins with what is there, remembers it too
    second = Anchoring(store, dict)
    await second.anchor({CHAIN: head(4)})
    store.text = ""
    await second.anchor({CHAIN: head(4)})
    assert (store.text, second.regressions) == (whole, 1)


async def test_a_loss_that_cannot_be_mended_yet_is_said_once() -> None:
    class Refusing(MemoryAnchors):
        refuses = False

        async def write(self, text: str, resource_version: str) -> None:
            if self.refuses:
                raise ClusterUnavailable("away")
            await super().write(text, resource_version)

    store = Refusing()
    minutes = itertools.count(1_800_000_000.0, 60.0)
    anchoring = Anchoring(store, dict, clock=lambda: next(minutes))
    await anchoring.anchor({CHAIN: head(4)})
    store.text, store.refuses = "", True
    for _ in range(3):
        with pytest.raises(ClusterUnavailable):
            await anchoring.anchor({CHAIN: head(5)})
    store.refuses = False
    await anchoring.anchor({CHAIN: head(5)})
    assert (store.numbers, anchoring.regressions) == ([4, 5], 1)


async def test_who_does_not_lead_writes_nothing() -> None:
    store = MemoryAnchors()
    await Anchoring(store, dict, may_act=lambda: False).anchor({CHAIN: head(3)})
    assert store.writes == 0
