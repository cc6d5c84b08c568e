"""What a tool costs the operator: its schemas are parsed while it is judged, and kept packed."""

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from frozen_heap import frozen_by
from manifests import tool
from operator_harness import MemoryReplica
from operator_stage import SETTINGS, staged
from toolcrib import publishing
from toolcrib.process.garbage import LARGE
from toolcrib.resources.tools import Tool
from toolcrib.wire import condensed
from toolcrib.wire.index import IndexAnswer, IndexRequest
from toolcrib.wire.publish import (
    Heartbeat,
    Publish,
    PublishedTool,
    ReplicaState,
    fingerprint,
)
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.table import WATCHED, entry_of
from toolcrib_operator.kinds.tool import TOOL_KIND
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.packing import PackedTool, packed_status, read_status, shared
from toolcrib_operator.timers import paced
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio

PAGE = TOOL_KIND.page

KIB = 1 << 10


def wide(number: int, parameters: int) -> dict[str, Any]:
    """A tool of many small parameters: parsed, these take some 19 times their JSON."""
    properties = {
        f"p{n}": {"type": "string", "description": f"Part {n} of {number}"} for n in range(parameters)
    }
    manifest = tool(
        f"t{number}",
        inputSchema={"type": "object", "properties": properties},
        outputSchema={"type": "object"},
    )
    manifest["metadata"] |= {
        "uid": f"u{number}", "generation": 1, "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(manifest)},
    }  # fmt: skip
    return manifest


@pytest.mark.parametrize(("count", "parameters"), [(200, 5), (20, 300)])
async def test_a_tool_takes_8_5_kib_and_a_twentieth_of_its_json_from_the_watch_to_the_index(
    count: int, parameters: int
) -> None:
    """A slope: the first half of the tools also pays for imports and caches. Packed, this JSON is a twentieth.

    Counted are objects. Resident memory may be 12 KiB and three times the JSON: `bench/operator_memory.py`.
    """
    manifests = [json.dumps(wide(n, parameters)) for n in range(2 * count)]
    size = sum(len(json.dumps(json.loads(m)["spec"], separators=(",", ":"))) for m in manifests) / len(
        manifests
    )
    replica = Forgetful(manifests)
    world = World()
    for kind in WATCHED:
        world.replace(kind, [])
    async with staged(settings=SETTINGS, world=world, replica=replica) as stage:

        async def used_after(*numbers: int) -> int:
            for number in numbers:
                world.upsert("Tool", json.loads(manifests[number]))
            await until(lambda: all(indexed(world, n) for n in numbers), seconds=240)
            stage.writer.events.clear()
            used = []
            for _ in range(3):  # the least: work in progress only adds
                beats = replica.beats
                await until(lambda beats=beats: replica.beats > beats)  # type: ignore[misc]
                gc.collect()
                used.append(tracemalloc.get_traced_memory()[0])
            return min(used)

        await until(lambda: stage.loop.started)
        tracemalloc.start()
        try:
            # the parser's cache of strings, 16,384 of all sorts: a new one takes the place of another
            from_json(to_json([f"{n:020}" for n in range(1 << 18)]))
            half = await used_after(*range(count))
            whole = await used_after(*range(count, 2 * count))
        finally:
            tracemalloc.stop()
    assert (whole - half) / count <= 8.5 * KIB + size / 20


def test_what_is_published_shares_its_schemas_with_what_is_kept_and_is_one_object() -> None:
    world = World()
    assessor = Assessor(world, SETTINGS)
    ref = Ref("Tool", "heist/t1")
    for version in ("5", "6"):
        edited = wide(1, 300)
        edited["metadata"]["resourceVersion"] = version
        edited["status"] = {
            "observedGeneration": int(version)
        }  # an echo that came before the answer to our write
        world.upsert("Tool", edited)
        assessor.judge(assessor.expand(world.take()[0]))
        assessor.batch()
    entry, verdict = world.get(ref), assessor.verdicts[ref]
    assert entry is not None
    assert isinstance(entry.kept, PackedTool)
    assert isinstance(verdict.published, PublishedTool)
    assert verdict.published is assessor.published[ref]
    assert verdict.published.packed_input is entry.kept.input_schema
    assert len(entry.kept.input_schema) < len(to_json(edited["spec"]["inputSchema"])) / 2


@pytest.mark.parametrize("schema", [None, {"type": "object"}, wide(1, 300)["spec"]["inputSchema"]])
def test_a_condensed_tool_is_the_same_tool_to_a_replica(schema: dict[str, Any] | None) -> None:
    manifest = wide(1, 3)
    if schema is None:
        del manifest["spec"]["inputSchema"]
    else:
        manifest["spec"]["inputSchema"] = schema
    entry = entry_of("Tool", manifest)
    assert isinstance(entry.kept, PackedTool)
    assert isinstance(entry.resource, Tool)
    plain = publishing.tool(entry.resource)
    held = shared(plain, entry.ref.key, entry.kept)
    assert fingerprint(held) == fingerprint(plain)
    arrived = PublishedTool.model_validate_json(held.model_dump_json(by_alias=True))
    assert arrived == plain
    assert condensed.size(held.packed_input) == len(plain.packed_input)


def test_judging_leaves_nothing_to_the_garbage_collector() -> None:
    """A takeover judges thousands of tools between two collections, and freezes what it finds then."""
    world = World()
    assessor = Assessor(world, SETTINGS)
    for number in (1, 2):
        world.upsert("Tool", wide(number, 300))
        gc.collect()
        gc.disable()
        try:
            assessor.judge(assessor.expand(world.take()[0]))
            left = gc.collect()
        finally:
            gc.enable()
    assert left < 100


class Forgetful(MemoryReplica):
    """A replica that keeps nothing of a tool, nor of a heartbeat: it is in the same process, and no part of the operator."""

    def __init__(self, manifests: Iterable[str]) -> None:
        super().__init__()
        tools = (publishing.tool(Tool.model_validate_json(each)) for each in manifests)
        self.digests = {each.tool_id: each.digest for each in tools}
        self.beats = 0

    async def publish(self, publish: Publish) -> ReplicaState:
        self.snapshot = replace(self.snapshot, revision=publish.to)
        return self.state

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        state = await super().heartbeat(heartbeat)
        self.heartbeats.clear()
        self.beats += 1
        return state

    async def index(self, request: IndexRequest) -> IndexAnswer:
        found = {i: self.digests[i] for i in request.upsert}
        self.entries |= found
        return IndexAnswer(indexed=found)


def indexed(world: World, number: int) -> bool:
    entry = world.get(Ref("Tool", f"heist/t{number}"))
    conditions = entry.status.get("conditions", ()) if entry is not None else ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_a_kept_tool_is_the_one_that_was_recorded() -> None:
    manifest = wide(1, 3)
    entry = entry_of("Tool", manifest)
    assert isinstance(entry.resource, Tool)
    assert isinstance(entry.head, Tool)
    assert entry.resource.spec.input_schema == manifest["spec"]["inputSchema"]
    assert entry.resource.spec.output_schema == {"type": "object"}
    assert entry.head.spec.input_schema == {}
    assert entry.resource.metadata.annotations == {}
    del manifest["spec"]["outputSchema"]
    without = entry_of("Tool", manifest).resource
    assert isinstance(without, Tool)
    assert without.spec.output_schema is None


def test_a_change_of_a_schema_alone_is_a_change() -> None:
    world = World()
    for kind in WATCHED:
        world.replace(kind, [wide(1, 3)] if kind == "Tool" else [])
    world.take()
    edited = wide(1, 3)
    edited["spec"]["inputSchema"]["properties"]["p1"]["type"] = "integer"
    edited["metadata"]["resourceVersion"] = "9"  # of the same generation: nothing else differs
    world.upsert("Tool", edited)
    assert world.take()[0] == {Ref("Tool", "heist/t1")}


def test_a_version_that_is_held_is_not_read_again() -> None:
    world = World()
    world.replace("Tool", [wide(1, 300)])
    world.take()
    began = time.thread_time()
    entry_of("Tool", wide(1, 300))
    once, again = time.thread_time() - began, wide(1, 300)
    began = time.thread_time()
    for _ in range(50):
        world.upsert("Tool", again)
    assert time.thread_time() - began < 10 * once
    assert not world.take()[0]


class Pages:
    """An API server with tools, which notes how many were asked for at a time."""

    def __init__(self, count: int) -> None:
        self.tools = [wide(n, 3) for n in range(count)]
        self.limits: list[int] = []

    async def request(self, method: str, path: str, *, query: Any, **_: Any) -> Any:
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        self.limits.append(limit)
        following = start + limit
        more = {"continue": str(following)} if following < len(self.tools) else {}
        return {"metadata": {"resourceVersion": "77", **more}, "items": self.tools[start:following]}


async def test_tools_are_listed_by_small_pages_as_the_world_keeps_them() -> None:
    pages = Pages(PAGE + 7)
    listing = await Cluster(pages, as_entries=True).list("Tool")  # type: ignore[arg-type]
    assert [type(item) for item in listing.objects] == [Entry] * (PAGE + 7)
    assert pages.limits == [PAGE, 2 * PAGE]  # they are small
    world = World()
    world.replace("Tool", listing.objects, listing.resource_version)
    assert len(world.versions("Tool")) == PAGE + 7
    again = await Cluster(pages, as_entries=True).list("Tool")  # type: ignore[arg-type]
    world.take()
    world.replace("Tool", again.objects[1:], "78")
    assert world.take()[0] == {Ref("Tool", "heist/t0")}


async def test_others_get_their_turn_however_long_each_object_takes() -> None:
    turns = 0
    sizes = []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for part in paced(list(range(60)), seconds=0.01):
        sizes.append(len(part))
        began = time.thread_time()
        while time.thread_time() - began < 0.012 * len(part):
            pass
    task.cancel()
    assert sizes[1:] == [1] * (60 - sizes[0])
    assert turns >= len(sizes)
    assert [len(p) async for p in paced(list(range(430)))][-2:] == [100, 80]


@pytest.mark.parametrize("levels", [50, 150, 199, 225, 250, 260])
def test_what_is_kept_of_a_tool_or_a_status_can_be_read_again_however_deep_it_is(levels: int) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        deep = {"not": deep}
    kept = packed_status({"deep": deep})
    assert read_status(kept) == ({"deep": deep} if kept else {})
    entry = entry_of("Tool", tool("calculator", inputSchema=deep))
    assert entry.resource is None or entry.resource.spec.input_schema == deep


@pytest.mark.slow
async def test_what_a_turn_over_many_objects_makes_is_frozen() -> None:
    async def listed(count: int) -> None:
        async with staged(*(tool(f"calculator-{i}") for i in range(count))) as stage:
            await until(lambda: stage.loop.started, what="a first publish")

    assert await frozen_by(lambda: listed(1)) == 0
    assert await frozen_by(lambda: listed(LARGE)) > LARGE
