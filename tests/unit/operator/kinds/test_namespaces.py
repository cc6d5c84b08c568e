"""Tools of a namespace that is being deleted: gone as its deletion begins, whatever is taken away first."""

from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.facts import Batch
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

DENY = binding("deny", [], tools={"deny": ["*"]})
GRANT = cluster_binding("bot", ["calculator:use"], namespaceSelector={})
DENY["spec"].pop("scopes")


def namespace(name: str = "heist", *, ending: bool = False) -> dict[str, Any]:
    stamp = {"deletionTimestamp": "2026-11-22T10:00:00Z"} if ending else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **stamp}}


def started(*objects: dict[str, Any]) -> tuple[World, Assessor]:
    world = World()
    for kind in WATCHED:
        world.replace(kind, [o for o in objects if o["kind"] == kind])
    return world, Assessor(world, LoopSettings())


def turn(world: World, assessor: Assessor) -> Batch:
    assessor.judge(assessor.expand(world.take()[0]))
    return assessor.batch()


def test_a_tool_is_withdrawn_before_the_denial_beside_it_may_go() -> None:
    other = tool("calculator", "bank")
    world, assessor = started(namespace(), namespace("bank"), tool("calculator"), other, DENY, GRANT)
    assert {t.tool_id for t in turn(world, assessor).tools} == {"heist/calculator", "bank/calculator"}

    world.upsert("Namespace", namespace(ending=True))
    begun = turn(world, assessor)
    world.remove("AgentScopeBinding", "heist/deny")
    denial = turn(world, assessor)
    world.upsert("Tool", tool("calculator", description="Changed meanwhile."))
    world.upsert("Tool", tool("late"))
    changed = turn(world, assessor)

    assert (begun.removed.tools, begun.removed.bindings) == (("heist/calculator",), ())
    assert (denial.tools, changed.tools) == ([], [])
    assert len(denial.removed.bindings) == 1


def test_an_operator_that_starts_meanwhile_publishes_none_of_its_tools() -> None:
    world, assessor = started(namespace(ending=True), tool("calculator"), tool("calculator", "bank"), GRANT)

    assert [t.tool_id for t in turn(world, assessor).tools] == ["bank/calculator"]


@pytest.mark.parametrize("seen_to_go", [True, False])
def test_tools_of_a_namespace_that_is_recreated_count_again(seen_to_go: bool) -> None:
    world, assessor = started(namespace(), tool("calculator"), GRANT)
    turn(world, assessor)
    world.upsert("Namespace", namespace(ending=True))
    turn(world, assessor)
    if seen_to_go:  # before its tools are
        world.remove("Namespace", "heist")
        assert turn(world, assessor).tools == []
        world.upsert("Tool", tool("calculator", description="Touched."))
        assert turn(world, assessor).tools == []
    world.upsert("Namespace", namespace())

    assert [t.tool_id for t in turn(world, assessor).tools] == ["heist/calculator"]


def test_nothing_is_remembered_of_a_namespace_that_went_with_all_its_tools() -> None:
    world, assessor = started(namespace(), tool("calculator"), GRANT)
    turn(world, assessor)
    world.upsert("Namespace", namespace(ending=True))
    world.remove("Tool", "heist/calculator")
    turn(world, assessor)
    world.remove("Namespace", "heist")
    turn(world, assessor)
    world.upsert("Tool", tool("calculator"))  # its watch is ahead of that of namespaces

    assert [t.tool_id for t in turn(world, assessor).tools] == ["heist/calculator"]
