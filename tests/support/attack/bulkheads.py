"""E. Slow calls: those of some agents, or of some backends, delay nobody else, and an agent has so many and no more."""

from __future__ import annotations

import contextlib
import random
from contextlib import ExitStack
from dataclasses import dataclass

from attack.stage import Stage, Target, hold
from holding import HELD, Crowd, HoldingBackend, crowd, holding_backend
from realparts.processes import wait_until
from registry_harness import backend, binding, tool
from toolcrib.wire.publish import PublishedBinding, PublishedLimits

CASES = 20
"""Of the cases that are asked for, one round: some hundred calls."""
MOST = 256
"""Calls of one agent at one time that no binding bounds, by default."""
OF_ONE = 64
"""Calls of one agent that one backend answers at one time."""
PATIENCE = 60.0
TOOLS = ("slow:use", "quick:use", "elsewhere:use")


@dataclass(frozen=True)
class Greedy:
    """An agent that makes so many slow calls at one time; `limit` is the maxConcurrent of its binding."""

    name: str
    calls: int
    limit: int | None

    @property
    def refused(self) -> int:
        return max(0, self.calls - (MOST if self.limit is None else self.limit))


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Crowds of one to three agents at one backend, with and without limits, and what the others are answered meanwhile."""
    target = stage.target("bulkheads", egress={"loopback": True})
    return sum(_round(target, draw) for _ in range(max(1, count // CASES)))


def _round(target: Target, draw: random.Random) -> int:
    agents = [
        Greedy(f"greedy{n}", draw.randint(80, 420), draw.choice([None, None, 16, 100]))
        for n in range(draw.randint(1, 3))
    ]
    with holding_backend() as shared, holding_backend() as other, ExitStack() as stack:
        target.publish(
            [
                tool("slow", backend=backend(shared.port, HELD, timeout=120.0)),
                tool("quick", backend=backend(shared.port, "/quick")),
                tool("elsewhere", backend=backend(other.port, "/elsewhere")),
            ],
            [binding("modest", TOOLS), *(_grant(agent) for agent in agents)],
        )
        made = []
        for agent in agents:
            token = target.auth(f"team/{agent.name}")["Authorization"].removeprefix("Bearer ")
            made.append(stack.enter_context(crowd(target.running.agents, token, "slow", agent.calls)))
        try:
            asked = _meanwhile(target, draw, shared, agents, made)
        finally:
            _released(shared, made)
    for agent, calls in zip(agents, made, strict=True):
        case = {"agent": agent, "answers": dict(calls.statuses)}
        told = calls.bodies.get(429, {"code": "limit_exceeded"})
        hold("an agent has as many calls at one time as its limit, and the others are refused",
             calls.statuses[429] == agent.refused and told["code"] == "limit_exceeded", **case)  # fmt: skip
        # what waited longer than 5 s for its turn is told that the backend is busy
        rest = calls.statuses[200] + calls.statuses[503]
        hold("all other calls are answered", rest == agent.calls - agent.refused, **case)
    return asked + sum(agent.calls for agent in agents)


def _grant(agent: Greedy) -> PublishedBinding:
    limits = None if agent.limit is None else PublishedLimits(concurrent=agent.limit)
    return binding(agent.name, TOOLS, limits=limits)


def _meanwhile(
    target: Target, draw: random.Random, shared: HoldingBackend, agents: list[Greedy], made: list[Crowd]
) -> int:
    """What others are answered while the slow calls are held."""
    held = sum(min(OF_ONE, agent.calls - agent.refused) for agent in agents)
    refused = sum(agent.refused for agent in agents)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: shared.held >= held and sum(c.statuses[429] for c in made) >= refused, PATIENCE)
    told = sum(c.statuses[429] for c in made)
    hold("what exceeds an agent's limit is refused at once", told == refused, refused=told, agents=agents)
    hold(
        "no agent holds more than its share of a backend",
        shared.came[HELD] == held,
        came=shared.came[HELD],
        agents=agents,
    )
    names = [draw.choice(["quick", "elsewhere"]) for _ in range(6)]
    for name in names:
        answer = target.call(name, {}, account="team/modest")
        case = {"agents": agents, "tool": name, "answer": answer.text}
        hold("slow calls of others delay nobody", answer.status_code == 200, **case)
        hold("they are still slow", shared.held == held, waiting=shared.held, **case)
    return len(names)


def _released(shared: HoldingBackend, made: list[Crowd]) -> None:
    def over() -> bool:
        shared.answer()
        return all(calls.statuses.total() == calls.number for calls in made)

    wait_until(over, 60)
