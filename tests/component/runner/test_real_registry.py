"""The runner against the real registry, over real HTTP: discovery, grants, calls, the live stream, the whole task."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib_runner import (
    DynamicToolAgent,
    InvalidArguments,
    NotPermitted,
    Pace,
    TokenFile,
    ToolFailed,
    ToolUnavailable,
    Unauthorized,
    UpstreamFailed,
    scripted,
)
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.ports import Function, Message, Observer, Reply
from toolcrib_runner.session.conversation import Session
from toolcrib_runner.tasks import Outcome

# Slow polling: what arrives within the deadlines below arrived by the live stream.
PACE = Pace(first_retry=0.05, longest_retry=0.2, poll=60, settle=0.5, safety=60)
EXPRESSION = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
SCENARIO = {
    "type": "object",
    "properties": {"scenario": {"type": "string", "enum": ["quiet", "loud"]}},
    "required": ["scenario"],
}
GRANTED = ("calculator:use", "file_reader:use", "simulation:use")


class Backend:
    """What executes the tools: path → (status, answer), each given the arguments."""

    def __init__(self) -> None:
        self.port = 0
        self.routes: dict[str, Callable[[dict[str, Any]], tuple[int, Any]]] = {
            "/calculator": lambda a: (200, {"result": f"of {a['expression']}"}),
            "/file_reader": lambda a: (200, "the text"),
            "/simulation": lambda a: (200, {"scenario": a["scenario"]}),
        }


@pytest.fixture
def executing() -> Iterator[Backend]:
    made = Backend()

    def answer(asked: Asked) -> Answer:
        status, result = made.routes[asked.path](asked.json())
        return Answer(json.dumps(result).encode(), status)

    with answering(answer) as made.port:
        yield made


@contextmanager
def granting(executing: Backend, clock: ManualClock | None = None) -> Iterator[RunningRegistry]:
    port = executing.port
    tools = [
        tool("calculator", input_schema=EXPRESSION, backend=backend(port, "/calculator")),
        tool("file_reader", backend=backend(port, "/file_reader")),
        tool("simulation", input_schema=SCENARIO, backend=backend(port, "/simulation")),
        tool("secret", backend=backend(port, "/secret")),
        tool("pending"),
    ]
    with running_registry(tools, [binding("planner", GRANTED)], clock=clock) as registry:
        yield registry


@pytest.fixture
def registry(executing: Backend) -> Iterator[RunningRegistry]:
    with granting(executing) as registry:
        yield registry


def agent_of(registry: RunningRegistry, **options: Any) -> DynamicToolAgent:
    token = registry.token("team", "planner")
    return DynamicToolAgent("planner", token, registry.url, **{"pace": PACE, **options})


def test_an_agent_has_exactly_what_is_granted_and_calls_it(registry: RunningRegistry) -> None:
    with agent_of(registry, follow=False) as agent:
        assert list(agent.tools) == ["calculator", "file_reader", "simulation"]
        assert "- calculator(expression): The tool calculator." in agent.generate_tool_prompt_context()
        assert agent.use_tool("calculator", expression="2 + 3") == {"result": "of 2 + 3"}
        assert agent.use_tool("file_reader") == "the text"
        assert not agent.rediscover()
        assert agent.get_usage_stats()["usage_by_tool"] == {"calculator": 1, "file_reader": 1}


def test_a_grant_and_its_end_reach_the_agent_by_themselves(registry: RunningRegistry) -> None:
    with agent_of(registry) as agent:
        registry.publish(bindings=[binding("planner", ("calculator:use", "pending:use"))])
        assert agent.wait_for(lambda tools: list(tools) == ["calculator", "pending"], 30)
        with pytest.raises(ToolUnavailable) as unavailable:
            agent.use_tool("pending")
        assert unavailable.value.code == "no_backend"
        registry.publish(remove_bindings=["uid-team-planner"])
        assert agent.wait_for(lambda tools: not tools, 30)
        with pytest.raises(NotPermitted):
            agent.use_tool("calculator", expression="1")
        assert agent.generate_tool_prompt_context() == "No tools available."


def test_a_call_of_a_revoked_tool_is_refused_also_before_the_agent_knows(registry: RunningRegistry) -> None:
    with agent_of(registry, follow=False) as agent:
        registry.publish(bindings=[binding("planner", ("file_reader:use",))])
        with pytest.raises(NotPermitted) as refused:
            agent.use_tool("calculator", expression="1")
        assert refused.value.status == 403


def test_errors_of_the_registry_and_of_tools_are_typed(registry: RunningRegistry, executing: Backend) -> None:
    executing.routes["/calculator"] = lambda a: (422, {"detail": "division by zero"})
    executing.routes["/file_reader"] = lambda a: (500, {})
    with agent_of(registry, follow=False) as agent:
        with pytest.raises(InvalidArguments) as invalid:
            agent.use_tool("simulation", scenario="neither")
        assert invalid.value.status == 400
        assert invalid.value.problems
        with pytest.raises(ToolFailed) as failed:
            agent.use_tool("calculator", expression="1/0")
        assert failed.value.answer == {"detail": "division by zero"}
        with pytest.raises(UpstreamFailed):
            agent.use_tool("file_reader")


def test_a_token_that_expired_is_replaced_from_its_file(executing: Backend, tmp_path: Path) -> None:
    live = threading.Event()

    class Watching(Observer):
        def following(self, agent: str, connected: bool) -> None:
            if connected:
                live.set()

    file, clock = tmp_path / "token", ManualClock()
    with granting(executing, clock) as registry, ExitStack() as stack:
        file.write_text(registry.token("team", "planner", ttl=60))
        agent = stack.enter_context(
            DynamicToolAgent("planner", TokenFile(file), registry.url, pace=PACE, observer=Watching())
        )
        assert live.wait(30)
        clock.advance(59)
        assert agent.use_tool("file_reader") == "the text"
        assert len(agent.tools) == 3
        clock.advance(1)
        # The stream ends with the token; what follows is a discovery as nobody.
        assert agent.wait_for(lambda tools: not tools, 30)
        with pytest.raises(Unauthorized):
            agent.use_tool("file_reader")
        replacement = tmp_path / "new"
        replacement.write_text(registry.token("team", "planner"))
        replacement.replace(file)
        agent.rediscover()
        assert list(agent.tools) == ["calculator", "file_reader", "simulation"]
        assert agent.use_tool("file_reader") == "the text"


def test_a_model_is_offered_the_full_schemas_of_the_tools(registry: RunningRegistry) -> None:
    class Asking:
        """A model that keeps what it is offered and says nothing."""

        offered: Sequence[Function] = ()

        def complete(
            self, messages: Sequence[Message], functions: Sequence[Function], timeout: float
        ) -> Reply:
            self.offered = functions
            return Reply("done")

        def close(self) -> None:
            pass

    model = Asking()
    with agent_of(registry, follow=False) as agent:
        TaskLoop(agent, model).run("x")
    schemas = {f["function"]["name"]: f["function"]["parameters"] for f in model.offered}
    # The enum is nowhere in the listing.
    assert schemas["simulation"] == SCENARIO
    assert schemas["file_reader"] == {"type": "object", "properties": {}}


def test_two_tools_of_one_name_are_told_apart(registry: RunningRegistry, executing: Backend) -> None:
    other = tool("calculator", namespace="other", backend=backend(executing.port, "/file_reader"))
    grant = binding("planner", GRANTED, namespace="other")
    registry.publish([other], [grant])
    with agent_of(registry, follow=False) as agent:
        assert {"calculator", "other/calculator"} <= set(agent.tools)
        assert agent.use_tool("calculator", expression="1") == {"result": "of 1"}
        assert agent.use_tool("other/calculator") == "the text"


def test_a_model_is_offered_every_tool_under_the_name_that_the_registry_gives_to_models(
    registry: RunningRegistry, executing: Backend
) -> None:
    more = [
        tool("calculator", namespace="other", backend=backend(executing.port, "/calculator")),
        tool("file.reader", object_name="reader", namespace="other", backend=backend(executing.port, "/file_reader")),
    ]  # fmt: skip
    scopes = ["calculator:use", "file.reader:use"]
    registry.publish(more, [binding("planner", scopes, namespace="other")])
    asked = registry.http.post(
        registry.url + "/v1/load",
        headers=registry.auth("team", "planner"),
        json={"tools": ["calculator", "other/calculator", "file.reader"]},
    ).json()
    given = {t["name"]: t["_meta"]["toolcrib.dev/model-name"] for t in asked["tools"]}
    with scripted.serving() as url, agent_of(registry, follow=False) as agent:
        session = Session("", "x", tool_context=True)
        offered = {f["function"]["name"] for f in session.functions(agent.tools)}
        context = session.messages(agent.tools)[0]["content"]
        model = OpenAIModel(url, scripted.MODEL, lambda: "none")
        dotted = given["file.reader"]
        report = TaskLoop(agent, model).run(f"call {dotted} {{}}\ncall other/calculator {{}}", "You plan.")
        model.close()
        used = agent.usage_stats().usage_by_tool

    assert given["calculator"] == "calculator"
    assert given["other/calculator"] == "other__calculator"
    assert set(given.values()) <= offered
    assert all(f"- {name}(" in context for name in given.values())
    assert used == {"file.reader": 1, "other/calculator": 1}, report


def test_a_task_runs_to_its_end_and_a_revocation_on_the_way_is_told_to_the_model(
    registry: RunningRegistry, executing: Backend
) -> None:
    def compute(arguments: dict[str, Any]) -> tuple[int, Any]:
        registry.publish(bindings=[binding("planner", ("calculator:use", "file_reader:use"))])
        return 200, 5

    executing.routes["/calculator"] = compute
    task = "\n".join(
        (
            "call file_reader {}",
            'call calculator {"expression": "2 + 3"}',
            'call simulation {"scenario": "quiet"}',
        )
    )
    with scripted.serving() as url, agent_of(registry) as agent:
        model = OpenAIModel(url, scripted.MODEL, lambda: "none")
        report = TaskLoop(agent, model).run(task, "You plan.")
        model.close()
        assert agent.usage_stats().usage_by_tool == {"calculator": 1, "file_reader": 1}
    assert report.outcome is Outcome.ANSWERED
    assert [(c.tool, c.outcome) for c in report.calls] == [
        ("file_reader", "ok"),
        ("calculator", "ok"),
        ("simulation", "not_permitted"),
    ]
    assert "not_permitted" in report.answer
