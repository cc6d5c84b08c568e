"""A run takes effect once its author was asked for his rights, and no other edit asks anew; what it rests on is named."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

import policy_stage
from manifests import manifest
from operator_harness import conditions
from policy_stage import REFUSED, WAITS, Shelf, Stage
from toolcrib_operator.adapters.memory import MemoryWorkloads
from toolcrib_operator.errors import ClusterUnavailable, Invalid
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import AgentSettings
from waiting import until

pytestmark = pytest.mark.anyio
AGENTS = AgentSettings(
    namespaces=("heist",), image="i", registry_url="https://r", every=0.05, backoff=(0.05, 0.1)
)
ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "planner", "namespace": "heist", "uid": "u1"}}


def agent(generation: int = 1, *, status: Any = None, name: str = "planner", **spec: Any) -> dict[str, Any]:
    made = manifest("Agent", name, "heist", **{"run": {}, "serviceAccountName": "planner"} | spec)
    made["metadata"] |= {
        "uid": f"uid-{name}", "generation": generation, "resourceVersion": str(1000 * generation),
    }  # fmt: skip
    return made if status is None else made | {"status": status}


class Run(Stage):
    """A stage whose operator runs agents."""

    def __init__(
        self, shelf: Shelf, settings: AgentSettings = AGENTS, workloads: MemoryWorkloads | None = None
    ) -> None:
        super().__init__(shelf, agents=settings, workloads=workloads)

    def said(self, name: str = "planner") -> dict[str, tuple[str, str]]:
        entry = self.world.get(Ref("Agent", f"heist/{name}"))
        return {} if entry is None else conditions(entry.status)

    def told(self, kind: str) -> str:
        return str(next(c["message"] for c in self.status()["conditions"] if c["type"] == kind))

    def status(self) -> Any:
        entry = self.world.get(Ref("Agent", "heist/planner"))
        assert entry is not None
        return dict(entry.status)

    @property
    def runs(self) -> set[str]:
        return {ref.name for ref in self.workloads.objects}

    async def edit(self, made: dict[str, Any]) -> None:
        await self.loop.published(self.world.upsert("Agent", made))


@contextlib.asynccontextmanager
async def running(
    shelf: Shelf, *objects: dict[str, Any], settings: AgentSettings = AGENTS
) -> AsyncIterator[Run]:
    stage = Run(shelf, settings)
    async with stage.running(ACCOUNT, *objects):
        yield stage


@pytest.mark.guarantee
async def test_a_run_that_no_policy_checked_is_not_run_until_it_is_another() -> None:
    shelf = Shelf()
    whole = shelf.manifests
    shelf.manifests = shelf.without("agents-run")
    async with running(shelf, agent()) as stage:
        await until(lambda: stage.said().get("Accepted") == REFUSED)
        await until(lambda: stage.said().get("Deployed") == ("False", "AdmissionPolicyMissing"))
        shelf.manifests = whole
        await until(lambda: stage.policies.admitted.problem is None)
        # whom nobody asks: an edit of something else
        await stage.edit(agent(2, status=stage.status(), suspended=True))
        await until(lambda: stage.said().get("Suspended") == ("True", "Suspended"))
        assert stage.said()["Deployed"] == ("False", "AdmissionPolicyMissing")
        assert not stage.runs
        assert """-n heist --type=merge -p '{"spec":{"run":{"attempt":2}}}'""" in stage.told("Deployed")
        await stage.edit(agent(3, status=stage.status(), suspended=True, run={"attempt": 2}))
        await until(lambda: stage.runs == {"agent-planner"})
        await until(lambda: stage.status()["run"]["admitted"])


@pytest.mark.guarantee
async def test_what_an_operator_accepted_that_knew_no_runs_is_not_run() -> None:
    accepted = policy_stage.accepted_condition("True", "Accepted", 1)
    status = {"observedGeneration": 1, "conditions": [accepted]}
    async with running(Shelf(), agent(status=status)) as stage:
        await until(lambda: stage.said().get("Deployed") == ("False", "AdmissionPolicyMissing"))
        assert not stage.runs


async def test_a_run_waits_while_the_policies_cannot_be_read_and_what_runs_stays() -> None:
    shelf = Shelf()
    async with running(shelf, agent()) as stage:
        await until(lambda: stage.said().get("Deployed") == ("True", "Deployed"))
        before = stage.workloads.objects.copy()
        shelf.error = ClusterUnavailable("no answer")
        await stage.edit(agent(2, status=stage.status(), run={"replicas": 5}))
        await until(lambda: stage.said().get("Accepted") == WAITS)
        assert stage.said()["Deployed"] == WAITS
        assert stage.workloads.objects == before
        shelf.error = None
        await until(lambda: [o["spec"]["replicas"] for o in stage.workloads.objects.values()] == [5])


async def test_an_edit_of_something_else_asks_nothing_anew() -> None:
    shelf = Shelf()
    async with running(shelf, agent()) as stage:
        await until(lambda: stage.said().get("Deployed") == ("True", "Deployed"))
        shelf.manifests = shelf.without("agents-run")
        await until(lambda: stage.policies.admitted.problem is not None)
        await stage.edit(agent(2, status=stage.status(), suspended=True))
        await until(lambda: stage.said().get("Suspended") == ("True", "Suspended"))
        assert (stage.said()["Accepted"], stage.runs) == (("True", "Accepted"), {"agent-planner"})


@pytest.mark.parametrize(
    ("settings", "account", "reason"),
    [
        (dataclasses.replace(AGENTS, namespaces=("other",)), True, "NamespaceNotRun"),
        (dataclasses.replace(AGENTS, image=""), True, "NoImage"),
        (AGENTS, False, "AccountMissing"),
    ],
)
async def test_what_a_run_rests_on_is_named(settings: AgentSettings, account: bool, reason: str) -> None:
    wanted = agent(serviceAccountName="planner" if account else "nobody")
    async with running(Shelf(), wanted, settings=settings) as stage:
        await until(lambda: stage.said().get("Deployed") == ("False", reason))
        assert stage.said()["Ready"] == ("False", "NotDeployed")
        assert not stage.runs


async def test_one_agent_that_cannot_be_written_holds_up_no_other_and_is_tried_again() -> None:
    failing = True

    class Choosy(MemoryWorkloads):
        async def apply(self, manifest: Any, *, uid: str | None) -> dict[str, Any]:
            if failing and manifest["metadata"]["name"] == "agent-bad":
                raise Invalid("the quota is full")
            return await super().apply(manifest, uid=uid)

    stage = Run(Shelf(), workloads=Choosy())
    async with stage.running(ACCOUNT, agent(name="bad"), agent()):
        await until(lambda: stage.said("bad").get("Deployed") == ("False", "DeployFailed"))
        await until(lambda: stage.said().get("Deployed") == ("True", "Deployed"))
        failing = False
        await until(lambda: stage.said("bad").get("Deployed") == ("True", "Deployed"))


async def test_a_workload_of_another_agent_of_the_name_that_is_gone_is_replaced() -> None:
    async with running(Shelf(), agent()) as stage:
        await until(lambda: stage.said().get("Deployed") == ("True", "Deployed"))
        made = agent()
        made["metadata"] |= {"uid": "uid-later", "resourceVersion": "9000"}
        stage.world.remove("Agent", "heist/planner", "8000")
        await stage.edit(made)
        await until(
            lambda: (
                [o["metadata"]["ownerReferences"][0]["uid"] for o in stage.workloads.objects.values()]
                == ["uid-later"]
            )
        )
