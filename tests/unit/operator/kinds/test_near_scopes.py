"""A binding that reaches no tool: its status names the scope that may be meant, and nothing beyond its own reach."""

import time
from dataclasses import replace
from typing import Any

import pytest

from manifests import binding, tool
from operator_stage import ACCOUNT, SETTINGS, Stage, staged
from published import binding as published_binding
from published import tool as published_tool
from toolcrib.resources import conditions
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, Revision
from toolcrib_operator.kinds.reach import Territories, match, matched_tools, near_scopes
from toolcrib_operator.kinds.statuses import condition
from toolcrib_operator.objects import Ref
from waiting import until

pytestmark = pytest.mark.anyio

TOOLS = (
    published_tool("heist/calculator", scopes=("calculator:use",)),
    published_tool("heist/read", scopes=("file_reader:use",), server="files"),
    published_tool("heist/off", scopes=("simulation:read",), state=ToolState.DISABLED),
    published_tool("bank/vault", scopes=("vault:open",)),
)


def said(*scopes: str, tools: tuple[Any, ...] = TOOLS, namespace: str | None = "heist", **fields: Any) -> str:
    """The message of MatchesNothing, of a binding with these scopes; empty where it matches something."""
    snapshot = Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=tools))
    found = published_binding("grant", namespace, scopes=scopes, **fields)
    matched = matched_tools(found, snapshot)
    near = near_scopes(found, snapshot, Territories().scopes_of(found, snapshot))
    return match(found, matched, near).message


NOTHING = conditions.said(conditions.ConditionReason.MATCHES_NOTHING)
MEANT = " No tool there has the scope 'calculater:use'; did you mean 'calculator:use'?"


@pytest.mark.parametrize("namespace", ["heist", None])
def test_the_nearest_scope_of_its_reach_is_named(namespace: str | None) -> None:
    assert said("calculater:use", namespace=namespace) == NOTHING + MEANT


def test_each_mistyped_scope_is_named_with_the_one_that_may_be_meant() -> None:
    message = said("calculater:use", "Files:use", "zzz")
    assert message.startswith(NOTHING + MEANT)
    assert "'Files:use'; did you mean 'file_reader:use'?" in message
    assert "zzz" not in message


@pytest.mark.parametrize(
    ("scope", "fields"),
    [
        ("vault:opn", {}),  # of a namespace that the binding does not reach
        ("simulation:reed", {}),  # of a tool that nobody sees
        ("calculater:use", {"servers": ("files",)}),  # of a tool of no server
        ("calculater:use", {"allow": ("read",)}),
        ("calculater:use", {"deny": ("calculator",)}),
        ("nothing like it", {}),
    ],
)
def test_a_scope_that_would_reach_no_tool_is_not_named(scope: str, fields: dict[str, Any]) -> None:
    assert "did you mean" not in said(scope, **fields)


def test_a_hint_for_a_hundred_bindings_over_a_thousand_scopes_is_found_once() -> None:
    many = tuple(published_tool(f"heist/t{i}", scopes=(f"team{i}:use",)) for i in range(1_000))
    snapshot = Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=many))
    territories, found = Territories(), published_binding("grant", "heist", scopes=("taem7:use",))
    began = time.process_time()
    for _ in range(100):
        assert "'taem7:use'; did you mean" in near_scopes(
            found, snapshot, territories.scopes_of(found, snapshot)
        )
    assert time.process_time() - began < 0.5
    assert said("taem7:use", tools=(*many, *TOOLS)) == ""  # more are not looked through


def hint(stage: Stage) -> str:
    entry = stage.world.get(Ref("AgentScopeBinding", "heist/planner"))
    found = condition(entry.status, "MatchesNothing") if entry is not None else None
    return "" if found is None else str(found["message"])


async def test_the_status_names_it_once_such_a_tool_is_there_and_keeps_it() -> None:
    settings = replace(SETTINGS, rewrite_every=0.2)
    async with staged(binding("planner", ["calculater:use"]), ACCOUNT, settings=settings) as stage:
        await until(lambda: hint(stage) == NOTHING)
        stage.world.upsert("Tool", tool("calculator"))
        await until(lambda: hint(stage) == NOTHING + MEANT)
        await until(lambda: stage.said()["Ready"] == ("True", "Ready"))
        world = stage.world
    world.touch([Ref("AgentScopeBinding", "heist/planner"), Ref("Tool", "heist/calculator")])
    async with staged(world=world) as second:
        await until(lambda: second.said("heist/calculator", "Tool").get("Ready") == ("True", "Ready"))
        assert hint(second) == NOTHING + MEANT
        second.world.remove("Tool", "heist/calculator")
        await until(lambda: hint(second) == NOTHING)
