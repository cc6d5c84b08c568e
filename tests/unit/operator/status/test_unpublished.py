"""Nothing is said of a generation that no replica can have: not before it is judged, nor before it is published."""

from typing import Any

import pytest

from manifests import binding
from operator_stage import ACCOUNT, Stage, staged
from toolcrib_operator.objects import Ref
from toolcrib_operator.status.planner import Plan
from waiting import until

pytestmark = pytest.mark.anyio

PLANNER = Ref("AgentScopeBinding", "heist/planner")


def edited(stage: Stage, *scopes: str) -> dict[str, Any]:
    """The binding with other scopes, as the API server tells of it: a new generation with the former status."""
    entry = stage.world.get(PLANNER)
    assert entry is not None
    made = binding("planner", list(scopes))
    made["metadata"] |= {"uid": entry.uid, "generation": entry.generation + 1, "resourceVersion": "99"}
    return made | {"status": dict(entry.status)}


async def test_a_confirmation_of_the_former_generation_is_none_of_the_next() -> None:
    async with staged(binding("planner", ["a:use", "b:use"]), ACCOUNT) as stage:
        await until(lambda: stage.said().get("Propagated") == ("True", "Propagated"))
        planner, assessor = stage.loop._planner, stage.loop.assessor

        # from here on nothing else runs: a status is written at whatever moment something makes it due
        stage.world.upsert("AgentScopeBinding", edited(stage, "a:use"))
        before_it_is_judged = planner.plan(PLANNER, 0.0)
        assessor.judge([PLANNER])
        before_it_is_gathered = planner.plan(PLANNER, 0.0)
        assessor.batch()
        before_it_is_published = planner.plan(PLANNER, 0.0)

    assert [before_it_is_judged, before_it_is_gathered, before_it_is_published] == [Plan()] * 3


async def test_an_edit_is_confirmed_once_the_replicas_have_it() -> None:
    async with staged(binding("planner", ["a:use", "b:use"]), ACCOUNT) as stage:
        await until(lambda: stage.said().get("Propagated") == ("True", "Propagated"))

        stage.world.upsert("AgentScopeBinding", edited(stage, "a:use"))

        def confirmed() -> bool:
            entry = stage.world.get(PLANNER)
            assert entry is not None
            found = {c["type"]: c for c in entry.status["conditions"]}["Propagated"]
            return bool(found["status"] == "True" and found["observedGeneration"] == entry.generation == 2)

        await until(confirmed)
