"""A registry whose one tool, `ask`, does what a test says."""

from collections.abc import Iterator

import pytest

from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from scripted_backend import ScriptedBackend

GRANTS = [binding("bot", ("ask:use",)), binding("other", ("ask:use",))]


@pytest.fixture(scope="module")
def backend_of_tests() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def running(backend_of_tests: ScriptedBackend, clock: ManualClock) -> Iterator[RunningRegistry]:
    with running_registry([tool("ask")], GRANTS, backend=backend_of_tests, clock=clock) as found:
        yield found


@pytest.fixture
def scripted(backend_of_tests: ScriptedBackend) -> ScriptedBackend:
    """The backend, with nothing given to it yet."""
    backend_of_tests.given.clear()
    backend_of_tests.cancelled.clear()
    return backend_of_tests


@pytest.fixture
def asking(running: RunningRegistry, scripted: ScriptedBackend) -> RunningRegistry:
    """The registry, with its tool and grants as they were."""
    running.publish([tool("ask")], GRANTS)
    running.heartbeat()
    return running
