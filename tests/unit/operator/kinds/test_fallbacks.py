"""The condition FallbackUsable: it says of each fallback whether it is called, and follows the tools that are named."""

from typing import Any

import pytest

from manifests import tool
from operator_harness import MemoryReplica
from operator_stage import Stage, staged
from waiting import until

pytestmark = pytest.mark.anyio
READS = {"readOnlyHint": True}
USABLE, REFUSED = ("True", "FallbackUsable"), ("False", "FallbackRefused")


def rates(name: str = "rates", **spec: Any) -> dict[str, Any]:
    return tool(name, **({"scopes": ["rates:use"], "annotations": READS} | spec))


def said(stage: Stage, name: str = "rates") -> tuple[str, str] | None:
    return stage.said(f"heist/{name}", "Tool").get("FallbackUsable")


async def test_the_condition_follows_the_tools_that_are_named_and_takes_the_tool_out_of_no_list() -> None:
    replica = MemoryReplica()
    objects = [rates(fallback=["spare"]), rates("spare")]
    async with staged(*objects, replica=replica) as stage:
        await until(lambda: said(stage) == USABLE)
        assert said(stage, "spare") is None

        stage.world.upsert("Tool", rates("spare", scopes=["other:use"]))
        await until(lambda: said(stage) == REFUSED)
        stage.world.upsert("Tool", rates("spare"))
        await until(lambda: said(stage) == USABLE)
        stage.world.upsert("Tool", rates("spare", annotations={"idempotentHint": True}))
        await until(lambda: said(stage) == REFUSED)
        stage.world.upsert("Tool", rates("spare"))
        await until(lambda: said(stage) == USABLE)
        stage.world.remove("Tool", "heist/spare")
        await until(lambda: said(stage) == REFUSED)
        assert stage.said("heist/rates", "Tool")["Ready"] == ("True", "Ready")
        assert replica.snapshot.tools["heist/rates"].fallback == ("heist/spare",)


async def test_a_circle_that_closes_behind_other_tools_is_said_of_each_tool_in_it() -> None:
    names = ("rates", "a", "b")
    objects = [rates(fallback=["a"]), rates("a", fallback=["b"]), rates("b")]
    async with staged(*objects) as stage:
        await until(lambda: [said(stage, n) for n in names] == [USABLE, USABLE, None])
        stage.world.upsert("Tool", rates("b", fallback=["rates"]))
        await until(lambda: [said(stage, n) for n in names] == [REFUSED] * 3)
        stage.world.upsert("Tool", rates("b"))
        await until(lambda: [said(stage, n) for n in names] == [USABLE, USABLE, None])
