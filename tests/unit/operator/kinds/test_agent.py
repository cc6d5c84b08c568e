"""Agents: suspending takes effect at once, and ending it waits for the admission policies as a grant does."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from manifests import binding, manifest, tool
from operator_harness import conditions
from operator_stage import staged
from policy_stage import REFUSED, WAITS, EarlyShelf, Shelf, Stage
from published import OAUTH
from toolcrib.resources.admission import FINALIZER
from toolcrib_operator.errors import ClusterUnavailable
from toolcrib_operator.objects import Ref
from waiting import until

pytestmark = pytest.mark.anyio

HELD = {"Suspended": ("True", "Suspended"), "Ready": ("False", "NotAccepted")}


def agent(suspended: bool, generation: int = 1, /, *, status: Any = None, **spec: Any) -> dict[str, Any]:
    made = manifest("Agent", "planner", "heist", suspended=suspended, **spec)
    made["metadata"] |= {
        "uid": "uid-agent",
        "generation": generation,
        "resourceVersion": str(1000 * generation),
    }
    return made if status is None else made | {"status": status}


def deleted(made: dict[str, Any], *, finalizers: tuple[str, ...] = (FINALIZER,)) -> dict[str, Any]:
    """As the API server has it, once somebody has deleted it."""
    gone = copy.deepcopy(made)
    gone["metadata"] |= {
        "generation": made["metadata"]["generation"] + 1,
        "resourceVersion": str(1000 * (made["metadata"]["generation"] + 1)),
        "deletionTimestamp": "2026-11-27T10:00:00Z",
        "finalizers": list(finalizers),
    }
    return gone


def said(stage: Stage) -> dict[str, tuple[str, str]]:
    entry = stage.world.get(Ref("Agent", "heist/planner"))
    return {} if entry is None else conditions(entry.status)


def status_of(stage: Stage) -> Any:
    entry = stage.world.get(Ref("Agent", "heist/planner"))
    return None if entry is None else copy.deepcopy(dict(entry.status))


def stopped(stage: Stage) -> set[str]:
    """Which Agents the replica has as suspended."""
    assert stage.replica.snapshot.revision == stage.publisher.revision
    return {b.name for b in stage.replica.snapshot.bindings.values() if b.suspends}


async def write(stage: Stage, made: dict[str, Any]) -> None:
    await stage.loop.published(stage.world.upsert("Agent", made))


async def test_what_is_published_is_a_deny_of_everything_for_each_of_its_identities() -> None:
    client = {"kind": "OAuthClient", "issuer": OAUTH, "clientId": "cli"}
    async with Stage(Shelf()).running(
        agent(True, serviceAccountName="bot", subjects=[client], reason="incident 7")
    ) as stage:
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        (held,) = stage.replica.snapshot.bindings.values()
        entry = stage.world.get(Ref("Agent", "heist/planner"))
    assert (held.kind, held.ref, held.uid, held.suspends) == (
        "Agent",
        "Agent heist/planner",
        "uid-agent",
        True,
    )
    assert [(s.kind, s.namespace, s.name, s.issuer, s.client_id) for s in held.subjects] == [
        ("ServiceAccount", "heist", "bot", None, None),
        ("OAuthClient", None, None, OAUTH, "cli"),
    ]
    assert (held.deny, held.namespaces, held.scopes) == (("*",), None, ())
    assert entry is not None
    assert conditions(entry.status) == {
        "Ready": ("True", "Ready"), "Accepted": ("True", "Accepted"), "Suspended": ("True", "Suspended"),
        "Propagated": ("True", "Propagated"),
    }  # fmt: skip
    told = {c["type"]: c["message"] for c in entry.status["conditions"]}
    assert told["Suspended"] == "incident 7"


async def test_one_that_is_not_suspended_publishes_nothing() -> None:
    async with Stage(Shelf()).running(agent(False)) as stage:
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        assert said(stage)["Suspended"] == ("False", "NotSuspended")
        assert not stage.replica.snapshot.bindings


async def test_suspending_waits_for_nothing_and_a_resumption_for_the_policies() -> None:
    shelf = EarlyShelf()
    async with Stage(shelf, look_within=30.0).running(agent(False)) as stage:
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        shelf.error = ClusterUnavailable("no answer")
        await write(stage, agent(True, 2, status=status_of(stage)))
        assert stopped(stage) == {"planner"}, "however the policies are"
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        shelf.error = None
        await write(stage, agent(False, 3, status=status_of(stage)))
        await until(lambda: said(stage).get("Suspended") == ("False", "NotSuspended"))
        assert stopped(stage) == set()


async def test_a_resumption_waits_while_the_policies_cannot_be_read() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        shelf.error = ClusterUnavailable("no answer")
        await write(stage, agent(False, 2, status=status_of(stage)))
        await until(lambda: said(stage).get("Accepted") == WAITS)
        assert said(stage).items() >= HELD.items()
        assert stopped(stage) == {"planner"}
        shelf.error = None
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        assert (stopped(stage), said(stage)["Suspended"]) == (set(), ("False", "NotSuspended"))


@pytest.mark.parametrize("name", ["agents-resume", "bindings-release"])
async def test_a_resumption_that_no_policy_checked_is_refused_until_it_is_written_again(name: str) -> None:
    shelf = Shelf()
    whole = shelf.manifests
    async with Stage(shelf).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        shelf.manifests = shelf.without(name)
        await until(lambda: stage.policies.admitted.problem is not None)
        await write(stage, agent(False, 2, status=status_of(stage)))
        await until(lambda: said(stage).get("Accepted") == REFUSED)
        assert said(stage).items() >= HELD.items()
        shelf.manifests = whole
        await until(lambda: stage.policies.admitted.problem is None)
        assert (stopped(stage), said(stage)["Accepted"]) == ({"planner"}, REFUSED)
        await write(stage, agent(False, 3, status=status_of(stage), reason="again"))
        await until(lambda: said(stage).get("Ready") == ("True", "Ready"))
        assert stopped(stage) == set()


async def test_a_leader_who_takes_over_knows_by_the_status_who_was_suspended() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        status = status_of(stage)
    # resumed while no operator and no policy was there
    shelf.manifests = shelf.without("agents-resume")
    async with Stage(shelf).running(agent(False, 2, status=status)) as stage:
        await until(lambda: said(stage).get("Accepted") == REFUSED)
        assert stopped(stage) == {"planner"}


async def test_deleting_a_suspended_agent_lets_it_in_again_only_if_the_policies_were_there() -> None:
    shelf = Shelf()
    whole = shelf.manifests
    async with Stage(shelf).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        shelf.manifests = shelf.without("agents-resume")
        await until(lambda: stage.policies.admitted.problem is not None)
        await write(stage, deleted(agent(True, 1, status=status_of(stage))))
        await until(lambda: said(stage).get("Accepted") == REFUSED)
        assert stopped(stage) == {"planner"}
        entry = stage.world.get(Ref("Agent", "heist/planner"))
        assert entry is not None
        assert FINALIZER in entry.finalizers, "it is there until somebody may resume it"
        shelf.manifests = whole
        await until(lambda: stage.policies.admitted.problem is None)
        # the API server asked whoever did this for `resume`
        resumed = deleted(agent(False, 2, status=status_of(stage)))
        await write(stage, resumed)
        await until(lambda: stopped(stage) == set())
        await until(lambda: not _finalizers(stage))


async def test_deleting_it_under_the_policies_ends_the_suspension_and_lets_the_object_go() -> None:
    async with Stage(Shelf()).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        await write(stage, deleted(agent(True, 1, status=status_of(stage))))
        await until(lambda: stopped(stage) == set())
        await until(lambda: not _finalizers(stage))


def _finalizers(stage: Stage) -> tuple[str, ...]:
    entry = stage.world.get(Ref("Agent", "heist/planner"))
    return () if entry is None else entry.finalizers


async def test_an_agent_that_cannot_be_read_any_more_stays_suspended() -> None:
    async with Stage(Shelf()).running(agent(True)) as stage:
        await until(lambda: said(stage).get("Suspended") == ("True", "Suspended"))
        await write(stage, agent(False, 2, status=status_of(stage), mode="no such mode"))
        await until(lambda: said(stage).get("Accepted") == ("False", "Invalid"))
        assert stopped(stage) == {"planner"}


async def test_what_it_stops_and_starts_again_is_an_event() -> None:
    async with staged(tool("calculator"), binding("planner", ["calculator:use"]), agent(False)) as stage:
        await until(lambda: stage.said("heist/planner", "Agent").get("Ready") == ("True", "Ready"))
        for generation, suspended in ((2, True), (3, False)):
            reason = "Suspended" if suspended else "NotSuspended"
            entry = stage.world.get(Ref("Agent", "heist/planner"))
            assert entry is not None
            stage.world.upsert("Agent", agent(suspended, generation, status=dict(entry.status)))
            await until(_told(stage, reason))


def _told(stage: Any, reason: str) -> Callable[[], bool]:
    return lambda: any(each == reason for _, each in stage.told())
