"""One revision from the operator's loop to a registry process: the same id in both logs, one trace for both."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from manifests import binding, tool
from otlp_receiver import Collector, Received, collecting
from registry_harness import OPERATOR, mint
from registry_process import RegistryProcess, configuration, process
from toolcrib.telemetry import logs, otel, tracing
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.adapters.replica_http import HttpReplica
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings, PublisherSettings
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Also traces in this process, as the operator."""
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        tracing.start(os.environ, "toolcrib-operator", otel.tracer)
        yield found
        tracing.close()


@pytest.fixture
def lines() -> io.StringIO:
    """What this process logs."""
    stream = io.StringIO()
    logs.configure({}, form="json", level="info", stream=stream)
    return stream


@pytest.fixture
def registry(collector: Collector, tmp_path: Path) -> Iterator[RegistryProcess]:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    with process(configuration(tmp_path), environment=settings) as running:
        yield running


@pytest.fixture
async def world(registry: RegistryProcess, tmp_path: Path) -> AsyncIterator[World]:
    token = tmp_path / "admin-token"
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    world, stop = World(), asyncio.Event()
    async with aiohttp.ClientSession() as session:
        replica = HttpReplica(registry.admin_url, session, token_file=token)
        publisher = Publisher(1, FixedReplicas(replica), settings=PublisherSettings(heartbeat=0.2))
        loop = Loop(
            world,
            publisher,
            IndexSync(publisher),
            MemoryWriter(world),
            settings=LoopSettings(finalizers=False, services=False),
        )
        for kind in WATCHED:
            world.replace(kind, [])
        running = asyncio.create_task(loop.run(stop))
        await until(lambda: publisher.revision and publisher.confirmed_by_all(publisher.revision))
        yield world
        stop.set()
        await running


def read(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(text) for text in lines.getvalue().splitlines()]


async def test_a_change_is_followed_by_its_object_to_its_revision_to_the_replica_and_the_index(
    world: World, registry: RegistryProcess, lines: io.StringIO, collector: Collector
) -> None:
    world.upsert("Tool", tool("calculator"))
    world.upsert("AgentScopeBinding", binding("planner", ["calculator:use"]))

    def found() -> dict[str, Any] | None:
        return next((x for x in read(lines) if x.get("kind") == "Tool" and "revision" in x), None)

    told = await until(found)
    assert (told["namespace"], told["name"], told["generation"]) == ("heist", "calculator", 1)
    assert "resource_version" in told
    request_id = told["request_id"]
    assert request_id == f"op-1-{told['revision'].partition('.')[2]}"

    def confirmed() -> dict[str, Any] | None:
        of_it = [x for x in read(lines) if x.get("request_id") == request_id]
        return next((x for x in of_it if x.get("replica") == registry.admin_url), None)

    assert (await until(confirmed))["message"] == f"revision {told['revision']} confirmed"
    # the other process' lines come through a pipe, and may come late
    (applied,) = await until(
        lambda: [x for x in registry.lines if x.get("request_id") == request_id and "revision" in x]
    )
    assert applied["revision"] == told["revision"]
    batch = await until(lambda: [x for x in read(lines) if "index batch" in x["message"]])
    await until(lambda: [x for x in registry.lines if x.get("request_id") == batch[0]["request_id"]])

    for route, full in (("publish", False), ("snapshot/commit", True)):
        served = await asyncio.to_thread(collector.wait_for, "toolcrib-registry", f"POST /v1/admin/{route}")
        deliver = await until(
            lambda full=full: [
                s for s in collector.spans if s.name == "deliver" and s.attributes["toolcrib.full"] is full
            ]
        )
        by_id = {s.id: s for s in collector.spans}
        assert by_id[by_id[served.parent].parent] == deliver[0]
    await asyncio.to_thread(collector.wait_for, "toolcrib-registry", "index batch")
    await asyncio.to_thread(collector.wait_for, "toolcrib-operator", "index batch")
    await asyncio.to_thread(collector.wait_for, "toolcrib-operator", "status write")

    def published() -> list[Received]:
        return [s for s in collector.spans if s.name == "publish"]

    wanted = {"1.1", told["revision"]}
    await until(lambda: wanted <= {s.attributes["toolcrib.revision"] for s in published()})
    assert {s.attributes["toolcrib.replicas"] for s in published()} <= {0, 1}


async def test_a_replica_that_is_away_is_said_once_and_that_it_is_back(
    world: World, registry: RegistryProcess, lines: io.StringIO
) -> None:
    registry.child.kill()
    registry.child.wait()

    def said() -> list[dict[str, Any]]:
        return [x for x in read(lines) if "the replica cannot be reached" in x["message"]]

    await until(said)
    world.upsert("Tool", tool("calculator"))
    await until(lambda: any(x.get("kind") == "Tool" for x in read(lines)))
    assert len(said()) == 1
    assert said()[0]["replica"] == registry.admin_url
    assert mint(OPERATOR)[:20] not in lines.getvalue()
