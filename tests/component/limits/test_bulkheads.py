"""One agent's 1,024 slow calls on a running registry: how many are let in, what the others are told, who is delayed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from holding import HELD, Crowd, HoldingBackend, crowd, holding_backend
from realparts.processes import wait_until
from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process

SLOW_CALLS = 1_024
MOST = 256
"""Calls of one agent at one time, by default."""
SHARE = 64
"""Of those, at one backend."""


@dataclass
class Stage:
    """The registry while the crowd's calls are held at `shared`."""

    registry: RegistryProcess
    shared: HoldingBackend
    other: HoldingBackend
    crowd: Crowd
    audit: Path

    def call(self, account: str, name: str) -> httpx.Response:
        token = mint(f"system:serviceaccount:team:{account}")
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{self.registry.url}/tools/{name}", headers=headers, json={}, timeout=60)

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.registry.metrics_url}/metrics").text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("bulkheads")
    audit = folder / "decisions.jsonl"
    with holding_backend() as shared, holding_backend() as other:
        tools = (
            tool("slow", backend=backend(shared.port, HELD, timeout=120.0)),
            tool("quick", backend=backend(shared.port, "/quick")),
            tool("elsewhere", backend=backend(other.port, "/elsewhere")),
        )
        everything = ("slow:use", "quick:use", "elsewhere:use")
        bindings = (binding("greedy", everything), binding("modest", everything))
        config = configuration(folder, egress={"loopback": True}, audit=str(audit))
        with process(config) as registry:
            registry.publish(*tools, bindings=bindings)
            token = mint("system:serviceaccount:team:greedy")
            with crowd(registry.agents, token, "slow", SLOW_CALLS) as made:
                found = Stage(registry, shared, other, made, audit)
                wait_until(lambda: made.statuses.total() >= SLOW_CALLS - MOST and shared.held >= SHARE, 60)
                yield found
                release(found)


def release(stage: Stage) -> None:
    """Answer what is held until all calls have ended."""

    def over() -> bool:
        stage.shared.answer()
        return stage.crowd.statuses.total() == SLOW_CALLS

    wait_until(over, 60)


def test_an_agent_without_a_limit_has_256_calls_in_progress_and_the_others_are_told(stage: Stage) -> None:
    assert stage.crowd.statuses == {429: SLOW_CALLS - MOST}
    told = stage.crowd.bodies[429]
    assert told["code"] == "limit_exceeded"
    assert told["limit"] == "default_concurrent"
    assert "256 calls" in told["detail"]
    assert "maxConcurrent" in told["detail"]
    assert "retry-after: 1\r\n" in stage.crowd.headers[429]


def test_one_agent_holds_a_quarter_of_a_backend_and_its_other_calls_wait(stage: Stage) -> None:
    assert stage.shared.came[HELD] == SHARE
    assert stage.metric("toolcrib_backend_calls_in_progress") == SHARE
    assert stage.metric("toolcrib_backend_calls_waiting") == MOST - SHARE


@pytest.mark.parametrize("name", ["quick", "elsewhere", "slow"])
def test_another_agents_calls_reach_any_backend_while_the_slow_ones_are_held(stage: Stage, name: str) -> None:
    at = stage.other if name == "elsewhere" else stage.shared
    path = HELD if name == "slow" else f"/{name}"
    before = at.came[path]
    if name == "slow":
        with crowd(stage.registry.agents, mint("system:serviceaccount:team:modest"), "slow", 1):
            wait_until(lambda: at.came[path] == before + 1, 30)
            stage.shared.answer(newest=1)
        return
    assert stage.call("modest", name).status_code == 200
    assert at.came[path] == before + 1
    assert stage.shared.held == SHARE


def test_what_the_default_limit_refuses_is_counted_and_recorded(stage: Stage) -> None:
    refused = SLOW_CALLS - MOST
    series = 'toolcrib_limited_calls_total{grant="team/greedy",kind="AgentScopeBinding",limit="default_concurrent"}'
    assert stage.metric(series) == refused

    def recorded() -> bool:
        lines = [json.loads(line) for line in stage.audit.read_text().splitlines()]
        return any(line.get("outcome") == "limit_exceeded" for line in lines)

    wait_until(recorded, 30)
