"""The operator's /metrics: what it tells of grants and tools, what it leaves out, and how long things have waited."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from manifests import binding, cluster_binding, manifest, tool
from operator_harness import MemoryReplica
from registry_harness import binding as published_binding
from registry_harness import tool as published_tool
from toolcrib.canary.statistics import Outcome
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.counts.grants import INFO_FACTOR, GrantCounts, subject
from toolcrib_operator.counts.reach import ReachCounts
from toolcrib_operator.elector import Elector
from toolcrib_operator.errors import ClusterUnavailable
from toolcrib_operator.health import serving
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.trials import Sides, Totals
from toolcrib_operator.loop import Loop
from toolcrib_operator.metrics import Propagated
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import Lease, Written
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import ElectionSettings, LoopSettings
from toolcrib_operator.state import Leading, State
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio


class OneLease:
    """A Lease that nobody else wants."""

    lease: Lease | None = None

    async def read(self) -> Lease | None:
        return self.lease

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        self.lease = replace(lease, renewed="now", resource_version="1")
        return self.lease


class Moody(MemoryWriter):
    """A writer whose API server can be away."""

    away = False

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        if self.away:
            raise ClusterUnavailable("away")
        return await super().write_status(ref, resource_version=resource_version, status=status)


class Leader:
    """A leading operator without a cluster, and its real health port."""

    def __init__(self, settings: LoopSettings, *replicas: MemoryReplica) -> None:
        self.world = World()
        self.writer = Moody(self.world)
        self.publisher = Publisher(1, FixedReplicas(*replicas))
        index_sync = IndexSync(self.publisher)
        self.propagated = Propagated()
        self.loop = Loop(
            self.world, self.publisher, index_sync, self.writer, settings=settings,
            on_propagated=self.propagated.observe,
        )  # fmt: skip
        reader: Any = None
        self.elector = Elector(OneLease(), "o-0", settings=ElectionSettings(renew=600))
        self.state = State(self.elector)
        resync = Resync(self.world, reader)
        self.leading = Leading(self.world, resync, self.publisher, index_sync, self.loop)
        self.port = 0

    async def scrape(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Metric → label values (in the order of their names) → value."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for s in family.samples:
                found.setdefault(s.name, {})[tuple(s.labels[k] for k in sorted(s.labels))] = s.value
        return found


@contextlib.asynccontextmanager
async def leader(*objects: dict[str, Any], replicas: int = 1, **settings: Any) -> AsyncIterator[Leader]:
    found = [MemoryReplica(f"replica-{i}") for i in range(replicas)]
    made = Leader(LoopSettings(hold_back=0.1, finalizers=False, services=False, **settings), *found)
    stop = asyncio.Event()
    async with serving(made.state, made.propagated, "127.0.0.1", 0) as made.port:
        assert await made.elector.acquire(stop)
        made.state.leading = made.leading
        for kind in WATCHED:
            made.world.replace(kind, [o for o in objects if o["kind"] == kind])
        task = asyncio.create_task(made.loop.run(stop))
        try:
            yield made
        finally:
            stop.set()
            await task


async def test_grants_tools_and_their_reach_are_told_with_their_ends() -> None:
    ends = "2030-01-01T00:00:00Z"
    careful = binding("careful", [], tools={"deny": ["reader"]})
    del careful["spec"]["scopes"]
    async with leader(
        tool("calculator", server="maths"),
        tool("reader"),
        tool("idle", state="Disabled"),
        binding("planner", ["calculator:use", "idle:use"], expiresAt=ends),
        careful,
        cluster_binding("everywhere", ["calculator:use", "reader:use"], namespaces=["heist"]),
    ) as made:
        await until(lambda: len(made.loop.reach.bindings) == 3)
        found = await made.scrape()

        # labels by name: grant, kind, scope, subject
        assert found["toolcrib_grant_info"] == {
            ("heist/planner", "AgentScopeBinding", "calculator:use", "heist/planner"): 1,
            ("heist/planner", "AgentScopeBinding", "idle:use", "heist/planner"): 1,
            ("heist/careful", "AgentScopeBinding", "", "heist/careful"): 1,
            ("everywhere", "ClusterAgentScopeBinding", "calculator:use", "heist/everywhere"): 1,
            ("everywhere", "ClusterAgentScopeBinding", "reader:use", "heist/everywhere"): 1,
        }
        assert found["toolcrib_grant_matched_tools"] == {
            ("heist/planner", "AgentScopeBinding"): 1,
            ("heist/careful", "AgentScopeBinding"): 1,
            ("everywhere", "ClusterAgentScopeBinding"): 2,
        }
        expiry = found["toolcrib_grant_expiry_timestamp_seconds"]
        assert expiry == {("heist/planner", "AgentScopeBinding"): 1893456000}
        # server, state, tool
        assert found["toolcrib_tool_info"] == {
            ("maths", "Active", "heist/calculator"): 1,
            ("", "Active", "heist/reader"): 1,
            ("", "Disabled", "heist/idle"): 1,
        }
        # a binding that only denies grants nothing
        assert found["toolcrib_tool_grants"] == {
            ("maths", "heist/calculator"): 2,
            ("", "heist/reader"): 1,
            ("", "heist/idle"): 0,
        }
        assert set(found["toolcrib_operator_series_folded"].values()) == {0}

        made.world.remove("ClusterAgentScopeBinding", "everywhere")
        await until(lambda: len(made.loop.reach.bindings) == 2)
        found = await made.scrape()
        assert found["toolcrib_tool_grants"]["maths", "heist/calculator"] == 1
        assert len(found["toolcrib_grant_info"]) == 3


async def test_who_is_suspended_and_how_trials_go_is_told_by_name() -> None:
    objects = [
        tool("calculator"),
        manifest("Agent", "odd", "heist", suspended=True, serviceAccountName="bot"),
        manifest("Agent", "calm", "heist"),
        manifest("ToolCanary", "words", "heist", tool="calculator", share=20, candidate={"description": "x"}),
        manifest("ToolCanary", "lost", "heist", tool="nothing", candidate={"description": "x"}),
    ]
    async with leader(*objects) as made:
        await until(lambda: made.publisher.snapshot.tools and made.publisher.snapshot.bindings)
        facts = made.loop.assessor.facts
        entry = made.world.get(Ref("ToolCanary", "heist/words"))
        assert entry is not None
        trial = facts.trials.of(entry)
        trial.serving, trial.totals = True, Sides(Totals(called=300, failed=3), Totals(called=90, failed=9))
        found = await made.scrape()

        assert found["toolcrib_agent_suspended"] == {("heist/odd",): 1}
        assert found["toolcrib_agents_suspended"] == {(): 1}
        # canary, state, tool
        assert set(found["toolcrib_canary_info"]) == {
            ("heist/words", "Running", "heist/calculator"),
            ("heist/lost", "Waiting", "heist/nothing"),
        }
        assert found["toolcrib_canary_share_ratio"] == {("heist/words",): 0.2, ("heist/lost",): 0}
        calls, failures = found["toolcrib_canary_calls_total"], found["toolcrib_canary_failures_total"]
        assert (calls["heist/words", "candidate"], calls["heist/words", "stable"]) == (90, 300)
        assert (failures["heist/words", "candidate"], failures["heist/words", "stable"]) == (9, 3)
        assert set(found["toolcrib_operator_series_folded"].values()) == {0}

        trial.result = Outcome.WORSE
        made.world.remove("Agent", "heist/odd")
        await until(lambda: not made.publisher.snapshot.bindings)
        found = await made.scrape()
        assert ("heist/words", "Worse", "heist/calculator") in found["toolcrib_canary_info"]
        assert found["toolcrib_canary_share_ratio"]["heist/words",] == 0
        assert "toolcrib_agent_suspended" not in found


async def test_a_standby_tells_only_what_it_knows() -> None:
    async with leader(tool("calculator"), binding("planner", ["calculator:use"])) as made:
        await until(lambda: made.loop.reach.bindings)
        made.state.leading = None
        found = await made.scrape()

    ours = {name for name in found if name.startswith("toolcrib_")}
    of_its_process = {name for name in ours if name.startswith(("toolcrib_gc_", "toolcrib_loop_"))}
    assert of_its_process
    assert ours - of_its_process == {"toolcrib_operator_leader", "toolcrib_operator_problems"}
    assert found["toolcrib_operator_leader"] == {(): 0}


async def test_the_oldest_thing_that_waits_has_an_age_until_it_is_written() -> None:
    async with leader(tool("calculator")) as made:
        ref = Ref("Tool", "heist/calculator")
        await until(lambda: (e := made.world.get(ref)) is not None and "conditions" in e.status)
        await until(lambda: made.loop.oldest_waiting == 0)
        made.writer.away = True
        began = time.monotonic()
        made.world.upsert("Tool", tool("calculator", description="Another"))
        await until(lambda: made.loop.status_writer.counts.failures)
        await until(lambda: made.loop.oldest_waiting > 0.2)
        waits = (await made.scrape())["toolcrib_operator_oldest_waiting_seconds"][()]
        assert 0.2 < waits < time.monotonic() - began
        made.writer.away = False
        await until(lambda: made.loop.oldest_waiting == 0, 60)


async def test_ten_thousand_tools_and_grants_make_a_bounded_number_of_series_and_a_quick_scrape() -> None:
    template = published_tool("calculator")
    tools = [
        template.model_copy(update={"tool_id": f"team/tool-{i}", "name": f"tool-{i}", "scopes": (f"s{i % 100}",)})
        for i in range(10_000)
    ]  # fmt: skip
    ends = time.time() + 1000
    bindings = [
        published_binding(
            "bot", [f"s{i % 100}", f"s{(i + 1) % 100}"], name=f"b-{i}", expires_at=ends + (i * 7919) % 10_000
        )
        for i in range(10_000)
    ]
    past = published_binding("bot", name="past", expires_at=1.0)
    async with leader(replicas=0, metric_grants=300, metric_tools=500) as made:
        await until(lambda: made.loop.started)
        made.publisher.publish(tools=tools, bindings=[*bindings, past])
        await made.loop.reach.count()
        took = []
        for i in range(3):
            # rows are made once a revision
            made.publisher.publish(tools=[tools[0].model_copy(update={"description": f"Version {i}"})])
            began = time.monotonic()
            found = await made.scrape()
            took.append(time.monotonic() - began)

    assert len(found["toolcrib_grant_info"]) == 600 <= 300 * INFO_FACTOR
    assert len(found["toolcrib_grant_matched_tools"]) == 300
    assert len(found["toolcrib_tool_info"]) == len(found["toolcrib_tool_grants"]) == 500
    assert set(found["toolcrib_tool_grants"].values()) == {200}
    assert set(found["toolcrib_grant_matched_tools"].values()) <= {200, 0}
    # of dates, the next to come
    assert max(found["toolcrib_grant_expiry_timestamp_seconds"].values()) == pytest.approx(ends + 299)
    folded = {name: count for name, count in found["toolcrib_operator_series_folded"].items() if count}
    assert folded == {
        ("toolcrib_grant_info",): 20_001 - 600,
        ("toolcrib_grant_expiry_timestamp_seconds",): 10_001 - 300,
        ("toolcrib_grant_matched_tools",): 10_001 - 300,
        ("toolcrib_tool_info",): 9_500,
        ("toolcrib_tool_grants",): 9_500,
    }
    assert statistics.median(took) < 2, took
    assert max(took) < 10, took


async def test_rows_are_made_once_a_revision() -> None:
    publisher = Publisher(1, FixedReplicas())
    reach = ReachCounts(publisher)
    grants = GrantCounts(publisher, reach)
    publisher.publish(tools=[published_tool("calculator")], bindings=[published_binding("bot")])
    rows = grants.rows(0.0)

    assert grants.rows(1.0) is rows
    await reach.count()
    assert grants.rows(1.0) is not rows
    assert grants.rows(1.0).tool_grants == {("team/calculator", ""): 1}


def test_subjects_are_named_as_the_registry_names_agents_and_groups_apart() -> None:
    of = PublishedSubject
    assert subject(of(kind=SubjectKind.SERVICE_ACCOUNT, namespace="a", name="b")) == "a/b"
    assert subject(of(kind=SubjectKind.OAUTH_CLIENT, issuer="i", client_id="app")) == "i:app"
    assert subject(of(kind=SubjectKind.USER, issuer="i", name="ann")) == "i:ann"
    assert subject(of(kind=SubjectKind.GROUP, issuer="i", name="crew")) == "group:crew"
