"""ToolCanaries: which candidate is published with a tool, why one is not, and what the five looks come to."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from manifests import manifest, tool
from operator_harness import MemoryReplica
from operator_stage import Stage, staged
from toolcrib.canary.statistics import LOOKS
from toolcrib.wire.canaries import CanaryCounts, SideCounts
from toolcrib.wire.publish import Candidate
from toolcrib_operator.kinds.trials import Sides
from toolcrib_operator.objects import Ref
from waiting import until

pytestmark = pytest.mark.anyio

START = 1_900_000_000.0
RUNNING = {
    "Ready": ("True", "Ready"),
    "Accepted": ("True", "Accepted"),
    "RolledBack": ("False", "NotRolledBack"),
}


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time


def canary(name: str = "canary", /, *, made: int = 1, **spec: Any) -> dict[str, Any]:
    whole = {
        "tool": "lookup",
        "candidate": {"description": "Finds an invoice by its number"},
        "duration": "100m",
    }
    found = manifest("ToolCanary", name, "heist", **whole | spec)
    found["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": f"2026-11-28T00:00:0{made}Z"}
    return found


def said(stage: Stage, name: str = "canary") -> dict[str, tuple[str, str]]:
    return stage.said(f"heist/{name}", "ToolCanary")


def status(stage: Stage, name: str = "canary") -> Any:
    entry = stage.world.get(Ref("ToolCanary", f"heist/{name}"))
    assert entry is not None
    return entry.status


def tried(replica: MemoryReplica, name: str = "lookup") -> Candidate | None:
    found = replica.snapshot.tools.get(f"heist/{name}")
    return None if found is None else found.candidate


def counted(
    replica: MemoryReplica, candidate: tuple[int, int], stable: tuple[int, int], uid: str = "uid-canary"
) -> None:
    """What the replica says from now on: (failed, called) of each side."""
    sides = [SideCounts(selected=c, called=c, failed=f) for f, c in (candidate, stable)]
    replica.canaries = (CanaryCounts(canary=uid, candidate=sides[0], stable=sides[1]),)


@contextlib.asynccontextmanager
async def on_stage(*objects: dict[str, Any], **more: Any) -> AsyncIterator[tuple[Stage, MemoryReplica]]:
    replica = more.pop("replica", None) or MemoryReplica()
    async with staged(*objects, replica=replica, **more) as stage:
        yield stage, replica


async def heard(stage: Stage, *replicas: MemoryReplica) -> None:
    """The trial has begun, and the operator has taken what each replica says now."""
    await until(lambda: status(stage).get("started"))
    trial = stage.loop.assessor.facts.trials.of(stage.world.get(Ref("ToolCanary", "heist/canary")))  # type: ignore[arg-type]
    said_now = {r.name: Sides.of(r.canaries[0]) for r in replicas}
    await until(lambda: {name: trial.replicas.get(name) for name in said_now} == said_now)


async def written(stage: Stage, made: dict[str, Any]) -> None:
    await stage.loop.published(stage.world.upsert(made["kind"], made))


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_candidate_is_published_with_its_tool_and_indexed_beside_it() -> None:
    async with on_stage(tool("lookup"), canary(share=25)) as (stage, replica):
        await until(lambda: said(stage) == RUNNING)
        found = tried(replica)
        assert found is not None
        assert (found.canary, found.share, found.replacement) == ("uid-canary", 25, None)
        own = replica.snapshot.tools["heist/lookup"]
        assert found.tool.description == "Finds an invoice by its number"
        same = {"description", "digest", "candidate", "trial"}
        assert found.tool.model_dump(exclude=same) == own.model_dump(exclude=same)
        assert found.tool.digest != own.digest
        assert found.tool.route_digest == own.route_digest
        await until(lambda: "heist/lookup~candidate" in replica.entries)
        assert (
            status(stage)["candidateDigest"] == found.tool.digest == replica.entries["heist/lookup~candidate"]
        )
        await stage.loop.published(stage.world.remove("ToolCanary", "heist/canary"))
        assert tried(replica) is None
        await until(lambda: set(replica.entries) == {"heist/lookup"})


async def test_the_oldest_canary_of_a_tool_runs_and_the_next_one_when_it_goes() -> None:
    other = {"description": "Other words for the same"}
    async with on_stage(tool("lookup"), canary("b", made=1), canary("a", made=2, candidate=other)) as (
        stage,
        replica,
    ):
        await until(lambda: said(stage, "b") == RUNNING)
        await until(lambda: said(stage, "a").get("Accepted") == ("False", "CanaryConflict"))
        found = tried(replica)
        assert found is not None
        assert found.canary == "uid-b"
        await stage.loop.published(stage.world.remove("ToolCanary", "heist/b"))
        found = tried(replica)
        assert found is not None
        assert found.canary == "uid-a"
        await until(lambda: said(stage, "a") == RUNNING)


async def test_a_candidate_of_a_tool_that_needs_approval_waits_for_its_own() -> None:
    async with on_stage(tool("lookup", approval="Manual")) as (stage, replica):
        digest = stage.world.get(Ref("Tool", "heist/lookup"))
        assert digest is not None
        await until(lambda: bool(stage.said("heist/lookup", "Tool")))
        approved = stage.world.get(Ref("Tool", "heist/lookup")).status["approvalDigest"]  # type: ignore[union-attr]
        await written(stage, tool("lookup", approval="Manual", approvedDigest=approved))
        assert replica.snapshot.tools["heist/lookup"].active
        await written(stage, canary())
        await until(lambda: said(stage).get("Ready") == ("False", "NeverApproved"))
        assert tried(replica) is None
        assert said(stage)["Approved"] == ("False", "NeverApproved")
        await written(stage, canary(approvedDigest=approved))
        assert tried(replica) is None, "what is approved is the candidate, not the tool"
        await written(stage, canary(approvedDigest=status(stage)["approvalDigest"]))
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        assert tried(replica) is not None


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"tool": "absent"}, "ToolMissing"),
        ({"candidate": {"description": "Answers what tests ask of lookup"}}, "NothingToTry"),
        ({"candidate": {"description": "Finds it\u200b by words"}}, "HiddenText"),
        ({"candidate": {"replacement": "absent"}}, "ToolMissing"),
        ({"candidate": {"replacement": "disabled"}}, "ToolMissing"),
        ({"duration": "1s"}, "Invalid"),
    ],
    ids=["no-tool", "the-same", "hidden-text", "no-replacement", "disabled-replacement", "invalid"],
)
async def test_what_cannot_be_tried_is_refused_with_its_reason(spec: dict[str, Any], why: str) -> None:
    async with on_stage(tool("lookup"), tool("disabled", state="Disabled"), canary(**spec)) as (
        stage,
        replica,
    ):
        await until(lambda: said(stage).get("Accepted") == ("False", why))
        assert said(stage)["Ready"] == ("False", "NotAccepted")
        assert tried(replica) is None


async def test_a_replacement_is_followed_as_it_changes_comes_and_goes() -> None:
    made = canary(candidate={"replacement": "a-new"})
    async with on_stage(tool("lookup"), tool("a-new", description="Looks up faster"), made) as (
        stage,
        replica,
    ):
        await until(lambda: said(stage) == RUNNING)
        found = tried(replica)
        assert found is not None
        assert (found.replacement, found.tool.tool_id, found.tool.name) == (
            "heist/a-new",
            "heist/lookup",
            "lookup",
        )
        assert found.tool.scopes == ("lookup:use",)
        new = replica.snapshot.tools["heist/a-new"]
        assert (found.tool.description, found.tool.backend) == ("Looks up faster", new.backend)
        await written(stage, tool("a-new", description="Looks up faster still"))
        found = tried(replica)
        assert found is not None
        assert found.tool.description == "Looks up faster still"
        await stage.loop.published(stage.world.remove("Tool", "heist/a-new"))
        assert tried(replica) is None
        await until(lambda: said(stage).get("Accepted") == ("False", "ToolMissing"))


async def test_a_worse_candidate_is_rolled_back_at_the_next_look_with_condition_and_event(
    clock: Clock,
) -> None:
    async with on_stage(tool("lookup"), canary(), clock=clock) as (stage, replica):
        await until(lambda: said(stage) == RUNNING)
        counted(replica, (100, 400), (40, 4_000))
        await heard(stage, replica)
        assert tried(replica) is not None, "a look is not made before its time"
        clock.time += 20 * 60
        await until(lambda: tried(replica) is None)
        await until(lambda: said(stage).get("RolledBack") == ("True", "RolledBack"))
        assert said(stage)["Ready"] == ("False", "RolledBack")
        await until(lambda: ("Warning", "RolledBack") in stage.told("heist/canary"))
        (look,) = status(stage)["looks"]
        assert (look["outcome"], status(stage)["result"]) == ("Worse", "Worse")
        assert look["candidate"] == {"selected": 400, "called": 400, "failed": 100, "corrected": 0}


@pytest.mark.parametrize(
    ("candidate", "result"),
    [((40, 1_000), "NoDifference"), ((2, 1_000), "Better"), ((190, 190), "TooFewCalls")],
)
async def test_without_a_clear_harm_five_looks_end_a_trial_and_everyone_gets_the_tools_own(
    candidate: tuple[int, int], result: str, clock: Clock
) -> None:
    async with on_stage(tool("lookup"), canary(), clock=clock) as (stage, replica):
        await until(lambda: said(stage) == RUNNING)
        counted(replica, candidate, (400, 10_000))
        await heard(stage, replica)
        for number in range(1, LOOKS + 1):
            assert tried(replica) is not None
            clock.time += 20 * 60
            await until(lambda number=number: len(status(stage).get("looks") or ()) == number)  # type: ignore[misc]
        await until(lambda: tried(replica) is None)
        assert status(stage)["result"] == result
        await until(lambda: said(stage)["Ready"] == ("False", "TrialOver"))
        assert said(stage)["RolledBack"] == ("False", "NotRolledBack")


async def test_counts_of_several_replicas_add_up_and_survive_a_replicas_restart_and_the_next_operator(
    clock: Clock,
) -> None:
    other = MemoryReplica("replica-1")
    async with on_stage(tool("lookup"), canary(), clock=clock, others=[other]) as (stage, replica):
        await until(lambda: said(stage) == RUNNING)
        counted(replica, (1, 100), (2, 200))
        counted(other, (1, 50), (0, 10))
        await heard(stage, replica, other)
        counted(other, (0, 5), (0, 5))  # it began again
        await heard(stage, replica, other)
        clock.time += 20 * 60
        await until(lambda: len(status(stage).get("looks") or ()) == 1)
        (look,) = status(stage)["looks"]
        assert (look["candidate"]["called"], look["stable"]["called"]) == (155, 215)
        kept = dict(status(stage))
    again = canary() | {"status": kept}
    counted(replica, (1, 130), (2, 200))
    counted(other, (0, 5), (0, 5))
    async with on_stage(tool("lookup"), again, clock=clock, replica=replica, others=[other]) as (
        stage,
        replica,
    ):
        await until(lambda: said(stage) == RUNNING)
        clock.time += 20 * 60
        await until(lambda: len(status(stage).get("looks") or ()) == 2)
        assert status(stage)["started"] == kept["started"]
        assert status(stage)["looks"][1]["candidate"]["called"] == 185


async def test_a_trial_that_is_over_stays_over_for_the_next_operator_and_begins_again_as_another_object(
    clock: Clock,
) -> None:
    over = canary() | {
        "status": {
            "started": "2030-03-17T17:46:40Z",
            "result": "Worse",
            "conditions": [],
        }
    }
    async with on_stage(tool("lookup"), over, clock=clock) as (stage, replica):
        await until(lambda: said(stage).get("Ready") == ("False", "RolledBack"))
        assert tried(replica) is None
        await stage.loop.published(stage.world.remove("ToolCanary", "heist/canary"))
        fresh = canary()
        fresh["metadata"]["uid"] = "uid-again"
        await written(stage, fresh)
        found = tried(replica)
        assert found is not None
        assert found.canary == "uid-again"
