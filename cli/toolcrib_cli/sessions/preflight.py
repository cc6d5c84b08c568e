"""What is checked before a session's first turn: each part within two seconds, by name; then who has discovered what."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from toolcrib_cli.session_store.rows import View
from toolcrib_cli.sessions import memory
from toolcrib_cli.sessions.definition import Agent, Need
from toolcrib_cli.sessions.team import Team
from toolcrib_runner.adapters.registry_http import RegistryHttp
from toolcrib_runner.discovery import Discovered
from toolcrib_runner.errors import ModelUnavailable, RegistryUnavailable, RunnerError, TokenUnavailable

T = TypeVar("T")
WITHIN = 2.0
"""Seconds that a part has to answer."""
_SLACK = 0.25
"""Seconds more for a client to say by itself, and better, what was late."""
_MOST_NAMESPACES = 32
"""Of one search, the registry's bound."""


@dataclass(frozen=True, slots=True)
class Check:
    """One part, and what is wrong with it; `problem` is empty where it answers."""

    part: str
    of: str
    need: Need
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found."""

    checks: tuple[Check, ...]
    views: tuple[View, ...]

    @property
    def missing(self) -> list[Check]:
        """What is required and away."""
        return [check for check in self.checks if check.problem and check.need is Need.REQUIRED]

    @property
    def degraded(self) -> list[Check]:
        """What the session does without."""
        return [check for check in self.checks if check.problem and check.need is Need.DEGRADE]


@dataclass(frozen=True, slots=True)
class _Asked:
    checks: tuple[Check, ...]
    view: View | None = None


def run(team: Team) -> Preflight:
    """Check everything side by side."""
    each_model = _one_a_model(team)
    at_once = len(team.definition.agents) + len(each_model)  # none waits for one that hangs
    with ThreadPoolExecutor(at_once, thread_name_prefix="toolcrib-preflight") as pool:
        agents = [pool.submit(_agent, team, agent) for agent in team.definition.agents]
        models = [pool.submit(_model, team, agent) for agent in each_model]
        asked = [each.result() for each in agents]
        checks = [check for each in asked for check in each.checks] + [each.result() for each in models]
    return Preflight(tuple(checks), tuple(each.view for each in asked if each.view is not None))


def _one_a_model(team: Team) -> list[Agent]:
    return list({team.definition.model_of(agent): agent for agent in team.definition.agents}.values())


def _in_time(ask: Callable[[], T], late: RunnerError) -> T:
    """What `ask` returns or raises, or `late`. Its own timeouts end neither the lookup of a name nor an answer that drips."""
    answered: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answer = ask()
        except BaseException as error:
            answered.put(partial(_raise, error))
        else:
            answered.put(lambda: answer)

    threading.Thread(target=work, name="toolcrib-check", daemon=True).start()
    try:
        answer = answered.get(timeout=WITHIN + _SLACK)
    except queue.Empty:
        raise late from None
    return answer()


def _raise(error: BaseException) -> Any:
    raise error


def _from_registry(ask: Callable[[], T]) -> T:
    return _in_time(ask, RegistryUnavailable("the registry did not respond in time"))


def _agent(team: Team, agent: Agent) -> _Asked:
    """The registry and the issuer, as one agent sees them, and its memory."""
    registry = team.registry(agent, WITHIN)
    needs = team.definition.needs
    try:
        found = _from_registry(registry.discover)
        assert found is not None  # only an ETag makes it None
        checks = [Check("registry", team.url, Need.REQUIRED)]
        problem = "" if found.authenticated else "the registry does not accept its token"
        checks.append(Check("issuer", agent.account, Need.REQUIRED, problem))
        if needs.memory is not None:
            checks.append(_memory(agent, needs.memory, registry, found))
        checks.append(_backends(agent, needs.backends, registry, found))
        return _Asked(tuple(checks), _view(agent, found))
    except TokenUnavailable as error:
        return _Asked((Check("issuer", agent.account, Need.REQUIRED, str(error)),))
    except RunnerError as error:
        return _Asked((Check("registry", team.url, Need.REQUIRED, str(error)),))
    finally:
        registry.close()


def _memory(agent: Agent, need: Need, registry: RegistryHttp, found: Discovered) -> Check:
    """Whether the agent may use both tools, and a recall is answered."""
    listed = {tool.name: tool for tool in found.tools}
    lacking = [name for name in (memory.RECALL, memory.STORE) if name not in listed]
    problem = f"{agent.account} is not granted {' and '.join(lacking)}" if lacking else ""
    if not lacking:
        asked = memory.question(agent.account, "preflight")
        try:
            _from_registry(lambda: registry.call(listed[memory.RECALL], asked))
        except RunnerError as error:
            problem = str(error)
    return Check("memory", agent.name, need, problem)


def _view(agent: Agent, found: Discovered) -> View:
    tools = {tool.name: tool.scopes for tool in sorted(found.tools, key=lambda each: each.name)}
    return View(agent.name, agent.account, tools, found.scopes)


def _model(team: Team, agent: Agent) -> Check:
    model, problem = team.model(agent), ""
    name = team.definition.model_of(agent).name
    try:
        _in_time(lambda: model.check(WITHIN), ModelUnavailable(f"model {name} did not respond in time"))
    except RunnerError as error:
        problem = str(error)
    return Check("model", name, team.definition.needs.model, problem)


def _backends(agent: Agent, need: Need, registry: RegistryHttp, found: Discovered) -> Check:
    """Whether the registry takes the backends of the agent's tools for up."""
    namespaces = sorted({tool.tool_id.partition("/")[0] for tool in found.tools})[:_MOST_NAMESPACES]
    try:
        down = _from_registry(lambda: registry.unavailable(namespaces)) if namespaces else ()
        problem = f"down: {', '.join(down)}" if down else ""
    except RunnerError as error:
        problem = str(error)
    return Check("tool backends", agent.account, need, problem)
