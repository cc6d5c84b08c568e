"""Running kopf: what ends it for a moment, and what ends it for good."""

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import kopf
import pytest

from manifests import tool
from toolcrib_operator.adapters.cluster import Cluster
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.kinds.tool import TOOL_KIND
from toolcrib_operator.objects import Ref
from toolcrib_operator.watches.recorder import Forgetful, Memo, recorder, watch
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""


class Answered(Exception):
    """What kopf raises: an error with the status of the API server's answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class Operator:
    """In the place of kopf: each run ends as it is told, then one goes on until all is stopped."""

    def __init__(self, stop: threading.Event, *statuses: int) -> None:
        self._stop, self._statuses = stop, list(statuses)
        self.runs = 0

    async def __call__(self, **given: Any) -> None:
        self.runs += 1
        self.given = given
        if self._statuses:
            raise Answered(self._statuses.pop(0))
        self._stop.set()
        assert given["stop_flag"].wait(60), "kopf is not told to stop"


@pytest.fixture
def kube(tmp_path: Path) -> Kube:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return Kube(tmp_path / "kubeconfig")


def run(kube: Kube, *statuses: int) -> Operator:
    stop = threading.Event()
    operator = Operator(stop, *statuses)
    memo = Memo(World(), Resync(World(), Cluster(kube)))
    watch(kube, memo, stop, pause=0.01, operate=operator)
    return operator


def test_a_definition_that_goes_away_under_its_watch_ends_no_process(kube: Kube) -> None:
    assert run(kube, 404, 404).runs == 3


def test_a_watch_that_is_refused_ends_it(kube: Kube) -> None:
    with pytest.raises(Answered, match="403"):
        run(kube, 403)


def test_its_first_list_comes_by_pages_of_a_few_tools(kube: Kube) -> None:
    assert run(kube).given["settings"].watching.chunk_size == TOOL_KIND.page <= 100


def test_the_installed_kopf_has_every_option_that_it_is_given(kube: Kube) -> None:
    inspect.signature(kopf.operator).bind(**run(kube).given)


@pytest.mark.anyio
async def test_nothing_of_a_recorded_object_stays_with_kopf(kube: Kube) -> None:
    world = World()
    manifest = tool("calculator", inputSchema={"type": "object", "properties": {"a": {}}})
    manifest["metadata"] |= {"uid": "u1", "managedFields": [{}], "annotations": {"much": "of it"}}
    await recorder("Tool")({"type": None, "object": manifest}, Memo(world, Resync(world, Cluster(kube))))
    assert world.get(Ref("Tool", "heist/calculator"))
    assert manifest == {"metadata": {"namespace": "heist", "name": "calculator", "uid": "u1"}}


@pytest.mark.anyio
async def test_kopf_remembers_no_object(kube: Kube) -> None:
    memories = Forgetful()
    assert await memories.recall({"metadata": {"uid": "u1"}}) is not None
    assert not list(memories.iter_all_memories())
    assert await asyncio.to_thread(lambda: type(run(kube).given["memories"])) is Forgetful
