"""Reports of backends become conditions: of the tools concerned, once they are no chance, and a few writes at a time."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from manifests import endpoint_slice, service, tool
from operator_harness import MemoryReplica
from operator_stage import SETTINGS, Stage, staged
from toolcrib.errors import EpochFenced
from toolcrib.wire.probes import BackendProbe, BackendReport, ProbeOutcome, ProbeRequest
from toolcrib_operator.objects import Ref
from toolcrib_operator.options import parse
from toolcrib_operator.settings import ProbeSettings
from waiting import until

pytestmark = pytest.mark.anyio
FAST = ProbeSettings(every=60, ask=0.05, writes=10_000, backoff=(0.02, 0.05))
HOST = "https://api.example.com"
UP, DOWN = ("True", "Connected"), ("False", "Refused")


def at(name: str, url: str = HOST) -> dict[str, Any]:
    return tool(name, backend={"http": {"url": f"{url}/{name}"}})


def probe(outcome: ProbeOutcome, *, settled: bool = True, backend: str = HOST) -> BackendProbe:
    return BackendProbe(
        backend=backend, place="api.example.com:443", outcome=outcome, settled=settled, probed_at=time.time(), seconds=0.1
    )  # fmt: skip


def tell(replica: MemoryReplica, outcome: ProbeOutcome, *, settled: bool = True) -> None:
    replica.backend_probes[HOST] = probe(outcome, settled=settled)


def said(stage: Stage, *names: str) -> list[tuple[str, str] | None]:
    return [stage.said(f"heist/{name}", "Tool").get("BackendReachable") for name in names]


async def asked(replica: MemoryReplica, times: int = 3) -> None:
    """Wait until it has been asked so many times more."""
    before = len(replica.probe_requests)
    await until(lambda: len(replica.probe_requests) >= before + times)


async def test_a_report_changes_the_condition_of_the_tools_of_that_backend_and_nothing_else() -> None:
    replica = MemoryReplica()
    tell(replica, ProbeOutcome.CONNECTED)
    objects = [at("a"), at("b"), at("other", "https://other.example.com"), tool("none", backend={"none": {}})]
    async with staged(*objects, replica=replica, probes=FAST) as stage:
        await until(lambda: said(stage, "a", "b") == [UP, UP])
        await until(lambda: stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready"))
        assert said(stage, "other", "none") == [("Unknown", "NotProbed"), None]
        published = len(replica.publishes)

        tell(replica, ProbeOutcome.REFUSED)
        await until(lambda: said(stage, "a", "b") == [DOWN, DOWN])
        assert stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready")
        assert said(stage, "other") == [("Unknown", "NotProbed")]
        assert (len(replica.publishes), stage.told("heist/a")[1:]) == (published, []), "no publish, no event"
        entry = stage.world.get(Ref("Tool", "heist/a"))
        assert entry is not None
        message = next(c["message"] for c in entry.status["conditions"] if c["type"] == "BackendReachable")
        assert (
            message
            == "api.example.com:443 refuses connections. Check that the server runs and listens there."
        )


async def test_heartbeats_name_the_places_that_conditions_say_cannot_be_reached() -> None:
    replica = MemoryReplica()
    tell(replica, ProbeOutcome.REFUSED)
    async with staged(
        at("a"), at("b"), at("other", "https://other.example.com"), replica=replica, probes=FAST
    ) as stage:
        await until(lambda: said(stage, "a", "b") == [DOWN, DOWN])
        await until(lambda: replica.heartbeats[-1].unreachable == (HOST,))
        assert len(replica.publishes) == 1, "a backend that goes away is no new policy"
        stage.world.remove("Tool", "heist/a")
        stage.world.remove("Tool", "heist/b")
        await until(lambda: replica.heartbeats[-1].unreachable == ())

        stage.world.upsert("Tool", at("c"))
        await until(lambda: replica.heartbeats[-1].unreachable == (HOST,))
        tell(replica, ProbeOutcome.CONNECTED)
        await until(lambda: replica.heartbeats[-1].unreachable == ())


async def test_one_failure_and_repeated_reports_write_nothing() -> None:
    replica = MemoryReplica()
    tell(replica, ProbeOutcome.CONNECTED)
    async with staged(at("a"), replica=replica, probes=FAST) as stage:
        await until(lambda: said(stage, "a") == [UP])
        await until(lambda: stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready"))
        written = stage.writer.statuses
        tell(replica, ProbeOutcome.TIMED_OUT, settled=False)
        await asked(replica)
        tell(replica, ProbeOutcome.CONNECTED, settled=False)
        await asked(replica)
        assert (said(stage, "a"), stage.writer.statuses) == ([UP], written)


async def test_when_the_replica_goes_another_is_asked_and_its_first_result_is_not_believed_alone() -> None:
    first, second = MemoryReplica("a"), MemoryReplica("b")
    tell(first, ProbeOutcome.CONNECTED)
    async with staged(at("a"), replica=first, others=[second], probes=FAST) as stage:
        await until(lambda: said(stage, "a") == [UP])
        assert second.probe_requests == [], "one replica probes"
        tell(second, ProbeOutcome.REFUSED, settled=False)
        first.down = True
        await asked(second)
        assert said(stage, "a") == [UP]
        tell(second, ProbeOutcome.REFUSED)
        await until(lambda: said(stage, "a") == [DOWN])


async def test_while_no_replica_answers_conditions_stay_and_grants_go_on() -> None:
    class Earlier(MemoryReplica):
        """A replica of a version that knows nothing of probes."""

        async def backends(self, request: ProbeRequest) -> BackendReport:
            self.probe_requests.append(request)
            raise RuntimeError("no such route")

    replica = Earlier()
    async with staged(at("a"), replica=replica, probes=FAST) as stage:
        await asked(replica)
        await until(lambda: stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready"))
        assert said(stage, "a") == [("Unknown", "NotProbed")]
        stage.world.upsert("Tool", at("b"))
        await until(lambda: "heist/b" in replica.snapshot.tools)


async def test_a_replica_that_has_seen_another_leader_ends_this_one() -> None:
    class Fenced(MemoryReplica):
        async def backends(self, request: ProbeRequest) -> BackendReport:
            raise EpochFenced("2 leads")

    async with staged(at("a"), replica=Fenced(), probes=FAST) as stage:
        await until(lambda: not stage.loop.status_writer._may_act())


async def test_tools_of_one_host_are_written_a_few_at_a_time_and_each_once() -> None:
    replica, names = MemoryReplica(), [f"t{n}" for n in range(60)]
    tell(replica, ProbeOutcome.CONNECTED)
    slow = replace(FAST, writes=50)
    async with staged(*map(at, names), replica=replica, probes=slow) as stage:
        await until(lambda: said(stage, *names) == [UP] * 60)
        await until(lambda: all(stage.said(f"heist/{n}", "Tool")["Ready"][0] == "True" for n in names))
        before, began = stage.writer.statuses, time.monotonic()
        tell(replica, ProbeOutcome.REFUSED)
        await until(lambda: said(stage, *names) == [DOWN] * 60)
        assert stage.writer.statuses - before == 60
        assert time.monotonic() - began >= 59 / 50


@pytest.mark.parametrize(
    ("argv", "every"),
    [((), 60.0), (("--backend-probe-interval", "5"), 5.0), (("--backend-probe-interval", "0"), None)],
)
def test_the_interval_is_an_option_and_0_switches_probing_off(
    argv: Sequence[str], every: float | None
) -> None:
    probes = parse(["--registry-url", "http://127.0.0.1:1", *argv], {}).probes

    assert (probes and probes.every) == every


async def test_where_nobody_probes_the_condition_says_so() -> None:
    async with staged(at("a"), settings=SETTINGS) as stage:
        await until(lambda: said(stage, "a") == [("Unknown", "NotProbed")])


async def test_a_services_endpoints_change_the_condition_when_that_lasts() -> None:
    def endpoints(*, ready: bool) -> dict[str, Any]:
        made = endpoint_slice()
        made["endpoints"][0]["conditions"] = {"ready": ready}
        return made

    settings = replace(SETTINGS, services=True, endpoints_settle=0.3)
    async with staged(tool("a"), service(), endpoints(ready=True), settings=settings) as stage:
        await until(lambda: said(stage, "a") == [("True", "EndpointsReady")])
        await until(lambda: stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready"))
        stage.world.upsert("EndpointSlice", endpoints(ready=False))
        await until(lambda: said(stage, "a") == [("False", "NoReadyEndpoints")])
        stage.world.upsert("EndpointSlice", endpoints(ready=True))
        await until(lambda: said(stage, "a") == [("True", "EndpointsReady")])
        assert stage.said("heist/a", "Tool")["Ready"] == ("True", "Ready")


async def test_a_backend_for_which_there_is_no_room_is_said_not_to_be_probed_whatever_was_said_of_it() -> (
    None
):
    replica = MemoryReplica()
    tell(replica, ProbeOutcome.CONNECTED)
    async with staged(at("a"), replica=replica, probes=FAST) as stage:
        await until(lambda: said(stage, "a") == [UP])
        del replica.backend_probes[HOST]
        replica.left_out = 1
        await until(lambda: said(stage, "a") == [("Unknown", "NotProbed")])
        entry = stage.world.get(Ref("Tool", "heist/a"))
        assert entry is not None
        (message,) = [c["message"] for c in entry.status["conditions"] if c["type"] == "BackendReachable"]
        assert "2,000 backends at most" in message
