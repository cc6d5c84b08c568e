"""Running kopf: what ends it for a moment, and what ends it for good."""

import threading
from pathlib import Path
from typing import Any

import pytest

from toolcrib_operator.adapters.cluster import PAGE, Cluster
from toolcrib_operator.adapters.kube import Kube
from toolcrib_operator.watches.recorder import Memo, watch
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

    async def __call__(self, *, stop_flag: threading.Event, settings: Any, **_: Any) -> None:
        self.runs += 1
        self.page = settings.watching.chunk_size
        if self._statuses:
            raise Answered(self._statuses.pop(0))
        self._stop.set()
        assert stop_flag.wait(60), "kopf is not told to stop"


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
    assert run(kube).page == PAGE <= 100
