"""What the operator relies on of workloads, in memory and at a real API server."""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from manifests import manifest
from realparts.apiserver import ApiServer
from toolcrib.resources import parse
from toolcrib.resources.agents import Agent
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.adapters.memory import MemoryWorkloads
from toolcrib_operator.adapters.workloads import KubeWorkloads
from toolcrib_operator.errors import Conflict
from toolcrib_operator.ports import Workloads
from toolcrib_operator.settings import AgentSettings
from toolcrib_operator.workloads import state
from toolcrib_operator.workloads.comparison import holds
from toolcrib_operator.workloads.manifests import workload

PLACE = "workloads"
SETTINGS = AgentSettings(image="i", registry_url="https://r", ca_config_map="ca")
MODEL = {"name": "m", "baseURL": "https://models.example/v1", "apiKeySecretRef": {"name": "model"}}


@pytest.fixture(scope="module", params=["memory", pytest.param("api server", marks=pytest.mark.real)])
def workloads(request: pytest.FixtureRequest) -> Iterator[Workloads]:
    if request.param == "memory":
        yield MemoryWorkloads()
        return
    server: ApiServer = request.getfixturevalue("apiserver")
    server.create_namespace(PLACE)
    kube = Kube(server.admin_kubeconfig)
    yield KubeWorkloads(kube)
    kube.close()


def wanted(name: str, **spec: Any) -> dict[str, Any]:
    made = manifest("Agent", name, PLACE, **{"run": {}, "model": MODEL} | spec)
    made["metadata"]["uid"] = f"uid-{name}"
    agent = parse(made)
    assert isinstance(agent, Agent)
    return workload(agent, SETTINGS)


def there(workloads: Workloads, made: dict[str, Any]) -> Any:
    found = {state.ref_of(each): each for each in asyncio.run(workloads.there(PLACE))}  # type: ignore[arg-type]
    return found.get(state.ref_of(made))


@pytest.mark.parametrize("run", [{}, {"task": "count"}], ids=["Deployment", "Job"])
def test_what_is_written_is_there_as_it_was_written_until_it_is_deleted(
    workloads: Workloads, run: Any
) -> None:
    made = wanted("whole", run=run)
    written = asyncio.run(workloads.apply(made, uid=None))
    found = there(workloads, made)

    assert holds(made, written)
    assert holds(made, found)
    assert (state.owner_of(found), found["metadata"]["uid"]) == ("uid-whole", written["metadata"]["uid"])
    with pytest.raises(Conflict):
        asyncio.run(workloads.delete(state.ref_of(made), uid="another"))
    asyncio.run(workloads.delete(state.ref_of(made), uid=written["metadata"]["uid"]))
    left = there(workloads, made)
    assert left is None or left["metadata"].get("deletionTimestamp")
    if left is None:
        asyncio.run(workloads.delete(state.ref_of(made), uid=written["metadata"]["uid"]))


def test_another_manifest_takes_the_place_of_the_first_and_its_fields_go(workloads: Workloads) -> None:
    first, second = wanted("edited", mode="auto"), wanted("edited", run={"replicas": 3})
    uid = asyncio.run(workloads.apply(first, uid=None))["metadata"]["uid"]
    made = asyncio.run(workloads.apply(second, uid=uid))

    assert holds(second, made)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert "TOOLCRIB_MODE" not in {each["name"] for each in container["env"]}
    again = asyncio.run(workloads.apply(second, uid=uid))
    assert again["metadata"]["generation"] == made["metadata"]["generation"], "nothing changed"


def test_nothing_is_made_or_changed_by_the_uid_of_another(workloads: Workloads) -> None:
    made = wanted("held")
    written = asyncio.run(workloads.apply(made, uid=None))
    other = copy.deepcopy(made)
    other["spec"]["replicas"] = 9
    with pytest.raises(Conflict):
        asyncio.run(workloads.apply(other, uid="6f2a1c1e-0000-4000-8000-000000000000"))
    assert holds(made, there(workloads, made))
    assert there(workloads, made)["metadata"]["uid"] == written["metadata"]["uid"]
