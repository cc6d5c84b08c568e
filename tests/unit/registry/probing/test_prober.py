"""When backends are probed: once an interval, few at a time, and only while the operator asks."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from published import tool
from registry_harness import ManualClock
from toolcrib.snapshot import Snapshot
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.probes import MOST_BACKENDS, BackendProbe, ProbeOutcome, ProbeRequest
from toolcrib.wire.publish import Publish, PublishedTool, Revision
from toolcrib_registry.outbound.guard import EgressPolicy, Target, target
from toolcrib_registry.probing.places import backends
from toolcrib_registry.probing.prober import AT_ONCE, Prober
from waiting import until

pytestmark = pytest.mark.anyio
UP, DOWN = ProbeOutcome.CONNECTED, ProbeOutcome.REFUSED


def calling(number: int, url: str, **fields: object) -> PublishedTool:
    return tool(f"team/t{number}", backend=PublishedBackend(url=url), **fields)


def holding(*tools: PublishedTool) -> Snapshot:
    return Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=tools))


@dataclass
class Network:
    """Answers as it is told; `gate` holds answers back."""

    answers: dict[str, ProbeOutcome] = field(default_factory=dict)
    touched: Counter[str] = field(default_factory=Counter)
    open_now: int = 0
    most: int = 0
    gate: asyncio.Event | None = None

    async def touch(self, target: Target, *, seconds: float, owner: str = "") -> ProbeOutcome:
        place = f"{target.host}:{target.port}"
        self.touched[place] += 1
        self.open_now += 1
        self.most = max(self.most, self.open_now)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.open_now -= 1
        return self.answers.get(place, UP)


class Stage:
    def __init__(self, *tools: PublishedTool, dice: Callable[[], float] = lambda: 0.0) -> None:
        self.network, self.clock, self.snapshot = Network(), ManualClock(1000.0), holding(*tools)
        self.allow = EgressPolicy(allow=("*.test",), backends={"team/moved": "10.1.1.1:9000"})
        self.prober = Prober(
            lambda: self.snapshot,
            lambda backend, namespace: target(backend, namespace=namespace, policy=self.allow),
            self.network,
            self.clock,
            rules=lambda: self.allow,
            dice=dice,
        )

    def ask(self, seconds: float = 600.0) -> dict[str, BackendProbe]:
        report = self.prober.asked(ProbeRequest(epoch=1, every=60, seconds=seconds))
        return {row.backend: row for row in report.backends}

    async def pass_time(self, seconds: float) -> dict[str, BackendProbe]:
        """What is reported once everything that is due by then is done."""
        self.clock.advance(seconds)
        self.ask()
        await until(self._done)
        return self.ask()

    def _done(self) -> bool:
        """It has looked at what is published, and nothing is under way or due."""
        prober, now = self.prober, self.clock.elapsed()
        looked = (
            prober._seen is not None and prober._seen[0] is self.snapshot and prober._seen[1] is self.allow
        )
        return looked and not prober._running and not any(p.due <= now for p in prober._places.values())


@contextlib.asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[Stage]:
    task = asyncio.create_task(stage.prober.run())
    try:
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert stage.network.open_now == 0, "a probe outlives the registry"


async def test_a_place_is_probed_once_an_interval_however_many_tools_and_backends_share_it() -> None:
    tools = [calling(n, f"https://a.test/{n}") for n in range(30)]
    tools += [calling(90, "https://A.test:443/x"), calling(91, "http://a.test/")]
    async with running(Stage(*tools)) as stage:
        rows = await stage.pass_time(0)
        assert {k: (r.place, r.tools, r.outcome) for k, r in rows.items()} == {
            "https://a.test": ("a.test:443", 30, UP),
            "https://a.test:443": ("a.test:443", 1, UP),
            "http://a.test": ("a.test:80", 1, UP),
        }
        assert stage.network.touched == {"a.test:443": 1, "a.test:80": 1}
        await stage.pass_time(59)
        assert stage.network.touched.total() == 2
        await stage.pass_time(1)
        assert stage.network.touched.total() == 4


async def test_one_result_is_not_settled_and_the_same_again_is() -> None:
    async with running(Stage(calling(1, "https://a.test/"))) as stage:
        network = stage.network
        seen = []
        for answer in (DOWN, DOWN, UP, DOWN, UP, UP):
            network.answers["a.test:443"] = answer
            row = (await stage.pass_time(60))["https://a.test"]
            seen.append((row.outcome, row.settled))

    assert seen == [(DOWN, False), (DOWN, True), (UP, False), (DOWN, False), (UP, False), (UP, True)]


async def test_failures_of_two_kinds_in_a_row_settle_that_it_cannot_be_reached_and_then_only_one_kind_twice() -> (
    None
):
    async with running(Stage(calling(1, "https://a.test/"))) as stage:
        seen = []
        for answer in (UP, UP, DOWN, ProbeOutcome.TIMED_OUT, DOWN, DOWN):
            stage.network.answers["a.test:443"] = answer
            row = (await stage.pass_time(60))["https://a.test"]
            seen.append((row.outcome, row.settled))

    assert seen[2:] == [(DOWN, False), (ProbeOutcome.TIMED_OUT, True), (DOWN, False), (DOWN, True)]


async def test_at_most_sixteen_connections_are_open_at_one_time() -> None:
    async with running(Stage(*(calling(n, f"http://h{n}.test/") for n in range(40)))) as stage:
        stage.network.gate = asyncio.Event()
        stage.ask()
        await until(lambda: stage.network.open_now == AT_ONCE)
        stage.network.gate.set()
        await stage.pass_time(0)

    assert (stage.network.most, len(stage.network.touched)) == (AT_ONCE, 40)


async def test_places_are_spread_and_drift_apart() -> None:
    throws = iter([0.0, 0.5, 1.0] * 1_000)
    async with running(
        Stage(*(calling(n, f"http://h{n}.test/") for n in range(300)), dice=throws.__next__)
    ) as stage:
        await stage.pass_time(0)
        assert 0 < len(stage.network.touched) < 150
        await stage.pass_time(15)
        assert len(stage.network.touched) == 300
        assert set(stage.network.touched.values()) == {1}


async def test_who_is_not_asked_probes_nothing_and_forgets() -> None:
    async with running(Stage(calling(1, "https://a.test/"))) as stage:
        for _ in range(3):  # it begins to wait
            await asyncio.sleep(0)
        idle = asyncio.all_tasks()
        assert (stage.network.touched.total(), stage.prober.report().probing) == (0, False)
        await stage.pass_time(0)
        assert stage.prober.counts() == {UP: 1}
        stage.clock.advance(601)
        await until(lambda: not stage.prober.counts())
        assert stage.prober.report().backends == ()
        assert asyncio.all_tasks() == idle


async def test_what_the_guard_refuses_is_told_and_never_dialled_and_what_it_lets_through_counts_at_once() -> (
    None
):
    tools = [calling(1, "https://other.example/"), calling(2, "http://10.0.0.1/")]
    async with running(Stage(*tools)) as stage:
        rows = await stage.pass_time(0)
        refused = (ProbeOutcome.EGRESS_REFUSED, True)
        assert {(r.outcome, r.settled) for r in rows.values()} == {refused}
        assert stage.network.touched.total() == 0

        stage.allow = EgressPolicy(allow=("other.example",))
        rows = await stage.pass_time(2)
        assert (rows["https://other.example"].outcome, rows["https://other.example"].settled) == (UP, True)
        assert rows["http://10.0.0.1"].outcome is ProbeOutcome.EGRESS_REFUSED


async def test_services_are_probed_where_the_registrys_settings_move_them_and_nowhere_else() -> None:
    def serving(name: str, ip: str | None = None) -> PublishedTool:
        backend = PublishedBackend(
            service_namespace="team", service_name=name, service_port=80, cluster_ip=ip
        )
        return tool(f"team/{name}", backend=backend)

    async with running(Stage(serving("moved"), serving("inside", "10.96.0.7"), serving("lost"))) as stage:
        rows = await stage.pass_time(0)

    assert {k: r.outcome for k, r in rows.items()} == {"team/moved": UP, "team/lost": ProbeOutcome.NO_ADDRESS}
    assert stage.network.touched == {"10.1.1.1:9000": 1}


async def test_a_tool_that_goes_or_is_disabled_takes_its_place_with_it() -> None:
    stage = Stage(calling(1, "https://a.test/"), calling(2, "https://b.test/"), calling(3, "https://c.test/"))
    async with running(stage):
        await stage.pass_time(0)
        stage.snapshot = holding(
            calling(1, "https://a.test/"), calling(2, "https://b.test/", state="Disabled")
        )
        rows = await stage.pass_time(2)
        assert set(rows) == {"https://a.test"}
        await stage.pass_time(60)

    assert stage.network.touched == {"a.test:443": 2, "b.test:443": 1, "c.test:443": 1}


def test_where_there_are_too_many_backends_each_namespace_gets_its_share() -> None:
    many = [calling(n, f"http://h{n}.test/") for n in range(MOST_BACKENDS + 10)]
    few = [tool(f"other/t{n}", backend=PublishedBackend(url=f"http://z{n}.test/")) for n in range(5)]
    policy = EgressPolicy(allow=("*",))
    found, left_out = backends(
        [*many, *few], lambda b, namespace: target(b, namespace=namespace, policy=policy)
    )

    assert (len(found), left_out) == (MOST_BACKENDS, 15)
    assert {f"http://z{n}.test" for n in range(5)} <= found.keys()
