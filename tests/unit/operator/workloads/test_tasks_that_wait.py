"""A task begins once what was granted to its account is in effect: one that began before would end without a tool."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from manifests import binding, manifest, tool
from operator_harness import conditions
from policy_stage import Shelf, Stage
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import AgentSettings
from waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.guarantee]
AGENTS = AgentSettings(namespaces=("heist",), image="i", registry_url="https://r", every=0.05)
WAITS = ("False", "WaitsForTools")
ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "planner", "namespace": "heist", "uid": "u1"}}
MODEL = {"name": "m", "baseURL": "https://models.example/v1"}


def versioned(made: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    name = f"uid-{made['kind']}-{made['metadata']['name']}"
    made["metadata"] |= {"uid": name, "generation": generation, "resourceVersion": str(1000 * generation)}
    return made


def agent(generation: int = 1, **spec: Any) -> dict[str, Any]:
    body = {"run": {"task": "open it"}, "model": MODEL, "serviceAccountName": "planner"} | spec
    return versioned(manifest("Agent", "planner", "heist", **body), generation)


TOOL, GRANT = versioned(tool("drill")), versioned(binding("planner", ["drill:use"]))


class Tasks(Stage):
    """A stage whose operator runs agents."""

    @property
    def jobs(self) -> int:
        return len(self.workloads.objects)

    @property
    def deployed(self) -> dict[str, Any]:
        entry = self.world.get(Ref("Agent", "heist/planner"))
        found = () if entry is None else entry.status.get("conditions") or ()
        return next((c for c in found if c["type"] == "Deployed"), {})

    async def waits(self, words: str) -> None:
        await until(lambda: words in self.deployed.get("message", ""), what=f"{self.deployed}")
        entry = self.world.get(Ref("Agent", "heist/planner"))
        assert entry is not None
        assert conditions(entry.status)["Deployed"] == WAITS
        assert conditions(entry.status)["Ready"][0] == "False"
        assert not self.jobs


@contextlib.asynccontextmanager
async def staged(*objects: dict[str, Any], settings: AgentSettings = AGENTS) -> AsyncIterator[Tasks]:
    stage = Tasks(Shelf(), agents=settings)
    async with stage.running(ACCOUNT, *objects):
        yield stage


async def test_a_task_waits_for_its_accounts_first_tool() -> None:
    async with staged(agent(), TOOL) as stage:
        await stage.waits("No binding in effect gives ServiceAccount heist/planner a tool yet.")
        await stage.write(GRANT)
        await until(lambda: stage.jobs == 1)
        await until(lambda: stage.deployed["reason"] == "Deployed")


async def test_a_task_waits_until_every_replica_has_confirmed_the_grant() -> None:
    async with staged(TOOL) as stage:
        await until(lambda: stage.replica.snapshot.revision is not None)
        stage.replica.down = True
        stage.world.upsert("AgentScopeBinding", GRANT)
        stage.world.upsert("Agent", agent())
        await stage.waits("Not every registry replica has confirmed AgentScopeBinding heist/planner yet.")
        stage.replica.down = False
        await until(lambda: stage.jobs == 1)


async def test_a_task_that_nobody_grants_a_tool_begins_after_a_while() -> None:
    settings = dataclasses.replace(AGENTS, grants_within=0.3)
    async with staged(agent(), settings=settings) as stage:
        await until(lambda: stage.jobs == 1)


async def test_a_task_does_not_begin_while_its_agent_is_suspended() -> None:
    settings = dataclasses.replace(AGENTS, grants_within=0.0)
    async with staged(agent(suspended=True), TOOL, GRANT, settings=settings) as stage:
        await stage.waits("once the agent is resumed")
        stage.world.upsert("Agent", agent(2))
        await until(lambda: stage.jobs == 1)


async def test_what_has_begun_waits_for_nothing() -> None:
    async with staged(agent(), TOOL, GRANT) as stage:
        await until(lambda: stage.jobs == 1)
        stage.world.upsert("Agent", agent(2, suspended=True))
        await until(lambda: stage.deployed.get("observedGeneration") == 2)
        assert (stage.jobs, stage.deployed["reason"]) == (1, "Deployed")
