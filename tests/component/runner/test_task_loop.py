"""The task loop with the scripted endpoint, over real HTTP on both sides."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from realparts.processes import free_port
from small_registry import Problem, SmallRegistry, SmallTool, serving
from stub_server import Answer, Asked, answering
from toolcrib_runner import DynamicToolAgent, Pace, RunnerMetrics, health, scripted
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.discovery import Rediscovery
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.ports import Function, FunctionCall, Message, Model, Reply
from toolcrib_runner.session.conversation import CUT, MAX_RESULT
from toolcrib_runner.tasks import Bounds, Outcome, Way

FAST = Pace(first_retry=0.02, longest_retry=0.1, poll=0.05, settle=0.05, safety=30)
TOKEN = "token-1"
QUICK = Bounds(turns=10, model_patience=5, seconds=30)


def text_tool(name: str, run: Callable[..., Any], **types: str) -> SmallTool:
    parameters = {n: {"type": t, "description": "", "required": True} for n, t in types.items()}
    return SmallTool(name, run, f"The {name}", parameters)


def calculator() -> SmallTool:
    return text_tool("calculator", lambda expression: {"result": 5}, expression="string")


def file_reader() -> SmallTool:
    return text_tool("file_reader", lambda filename: f"contents of {filename}", filename="string")


@pytest.fixture
def model() -> Iterator[OpenAIModel]:
    with scripted.serving() as url:
        model = OpenAIModel(url, scripted.MODEL, lambda: "none")
        yield model
        model.close()


class Recording:
    """A model that passes on to another and keeps what it was asked."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner
        self.asked: list[list[Message]] = []
        self.offered: list[list[str]] = []

    def complete(self, messages: Sequence[Message], functions: Sequence[Function], timeout: float) -> Reply:
        self.asked.append(list(messages))
        self.offered.append([f["function"]["name"] for f in functions])
        return self._inner.complete(messages, functions, timeout)

    def close(self) -> None:
        self._inner.close()


class Saying:
    """A model that says what it is told to, again and again at the end."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def complete(self, messages: Sequence[Message], functions: Sequence[Function], timeout: float) -> Reply:
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def close(self) -> None:
        pass


def calling(number: int, **usage: int) -> Reply:
    return Reply(calls=(FunctionCall("1", "calculator", f'{{"expression": "{number}"}}'),), **usage)


def tool_results(messages: Sequence[Message]) -> list[str]:
    return [m["content"] for m in messages if m["role"] == "tool"]


def test_a_task_calls_two_tools_and_ends_with_an_answer(model: OpenAIModel) -> None:
    recording = Recording(model)
    task = 'call calculator {"expression": "2 + 3"}\ncall file_reader {"filename": "plan.txt"}'
    with serving(SmallRegistry(calculator(), file_reader())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST) as agent:
            report = TaskLoop(agent, recording, bounds=QUICK).run(task, "You plan.")
            stats = agent.get_usage_stats()
    assert report.outcome is Outcome.ANSWERED
    assert report.answer == (
        'Done, with 2 calls.\ncalculator: {"result": 5}\nfile_reader: contents of plan.txt'
    )
    assert [(c.tool, c.outcome) for c in report.calls] == [("calculator", "ok"), ("file_reader", "ok")]
    assert report.turns == 3
    assert report.prompt_tokens > 0
    assert report.completion_tokens > 0
    assert stats["usage_by_tool"] == {"calculator": 1, "file_reader": 1}
    assert recording.asked[0] == [
        {"role": "system", "content": "You plan."},
        {"role": "user", "content": task},
    ]
    assert recording.offered[0] == ["calculator", "file_reader"]


def test_the_tools_are_listed_in_a_message_too_where_it_is_asked_for(model: OpenAIModel) -> None:
    recording = Recording(model)
    with serving(SmallRegistry(calculator(), file_reader())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST) as agent:
            TaskLoop(agent, recording, bounds=QUICK, way=Way(tool_context=True)).run("hello", "You plan.")
    # The order is a contract: system prompt, tool context, conversation.
    assert recording.asked[0] == [
        {"role": "system", "content": "You plan."},
        {
            "role": "system",
            "content": "Available tools:\n- calculator(expression): The calculator\n"
            "- file_reader(filename): The file_reader",
        },
        {"role": "user", "content": "hello"},
    ]


def test_more_tools_than_a_model_may_be_offered_are_refused_with_their_number_and_a_way_out(
    model: OpenAIModel,
) -> None:
    recording = Recording(model)
    with serving(SmallRegistry(*(text_tool(f"t{n}", lambda: 1) for n in range(129)))) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST) as agent:
            report = TaskLoop(agent, recording, bounds=QUICK).run("call t1 {}")
            registry.revoke("t7")
            agent.rediscover()
            after = TaskLoop(agent, recording, bounds=QUICK).run("call t1 {}")
    assert report.outcome is Outcome.TOO_MANY_TOOLS
    assert "planner sees 129 tools, but a model takes at most 128" in report.error
    assert "narrow its bindings" in report.error
    assert "/mcp" in report.error
    assert after.outcome is Outcome.ANSWERED
    assert len(recording.offered[0]) == 128


def test_a_task_whose_tools_become_too_many_ends(model: OpenAIModel) -> None:
    registry = SmallRegistry()
    agents: list[DynamicToolAgent] = []

    def grow() -> Any:
        registry.set_tools(*(text_tool(f"t{n}", lambda: 1) for n in range(3)))
        agents[0].rediscover()
        return 5

    registry.set_tools(text_tool("grow", grow))
    with serving(registry), DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
        agents.append(agent)
        report = TaskLoop(agent, model, bounds=QUICK, max_functions=2).run("call grow {}")
    assert report.outcome is Outcome.TOO_MANY_TOOLS
    assert [(c.tool, c.outcome) for c in report.calls] == [("grow", "ok")]


def test_a_tool_revoked_during_the_task_is_refused_and_the_model_is_told(model: OpenAIModel) -> None:
    registry = SmallRegistry()

    def compute(expression: str) -> Any:
        registry.revoke("file_reader")
        return 5

    registry.set_tools(text_tool("calculator", compute, expression="string"), file_reader())
    recording = Recording(model)
    task = 'call calculator {"expression": "1"}\ncall file_reader {"filename": "plan.txt"}'
    with serving(registry), DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
        report = TaskLoop(agent, recording, bounds=QUICK).run(task)
    assert [(c.tool, c.outcome) for c in report.calls] == [
        ("calculator", "ok"),
        ("file_reader", "not_permitted"),
    ]
    told = json.loads(tool_results(recording.asked[-1])[-1])
    assert told["error"]["code"] == "not_permitted"
    assert told["error"]["retry"] is False
    assert report.outcome is Outcome.ANSWERED
    assert "not_permitted" in report.answer


def test_what_the_model_is_told_follows_the_grants_while_the_task_runs(model: OpenAIModel) -> None:
    registry = SmallRegistry()
    agents: list[DynamicToolAgent] = []

    def compute(expression: str) -> Any:
        registry.revoke("file_reader")
        assert agents[0].wait_for(lambda tools: "file_reader" not in tools, 30)
        return 5

    registry.set_tools(text_tool("calculator", compute, expression="string"), file_reader())
    recording = Recording(model)
    with serving(registry), DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST) as agent:
        agents.append(agent)
        loop = TaskLoop(agent, recording, bounds=QUICK, way=Way(tool_context=True))
        loop.run('call calculator {"expression": "1"}')
    assert recording.offered == [["calculator", "file_reader"], ["calculator"]]
    assert recording.asked[1][0]["content"] == "Available tools:\n- calculator(expression): The calculator"


def test_the_registry_going_down_is_an_error_of_the_call_and_the_task_goes_on(model: OpenAIModel) -> None:
    recording = Recording(model)
    with ExitStack() as up:
        port = free_port()
        registry = up.enter_context(serving(SmallRegistry(calculator()), port))
        agent = DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST)
        assert registry.wait_for_watchers(1)
    with agent:
        report = TaskLoop(agent, recording, bounds=QUICK).run('call calculator {"expression": "1"}')
        assert report.outcome is Outcome.ANSWERED
        assert [c.outcome for c in report.calls] == ["registry_unavailable"]
        assert json.loads(tool_results(recording.asked[-1])[0])["error"]["retry"] is True
        with serving(SmallRegistry(calculator()), port):
            report = TaskLoop(agent, recording, bounds=QUICK).run('call calculator {"expression": "1"}')
            assert [c.outcome for c in report.calls] == ["ok"]


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("nothing", "{}", "tool_not_found"),
        ("calculator", "{", "invalid_arguments"),
        ("calculator", "[]", "invalid_arguments"),
        ("calculator", '{"expression": 1}', "invalid_arguments"),
        ("calculator", '{"expression": "1", "x": 1}', "invalid_arguments"),
    ],
)
def test_a_call_that_makes_no_sense_is_answered_not_executed(name: str, arguments: str, code: str) -> None:
    model = Saying(Reply(calls=(FunctionCall("1", name, arguments),)), Reply("done"))
    with serving(SmallRegistry(calculator())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            report = TaskLoop(agent, model, bounds=QUICK).run("x")
        assert not [r for r in registry.requests if r.startswith("POST /tools/")]
    assert [c.outcome for c in report.calls] == [code]
    assert report.answer == "done"


@pytest.mark.parametrize(
    ("bounds", "outcome", "turns"),
    [
        (Bounds(turns=3), Outcome.OUT_OF_TURNS, 3),
        (Bounds(tokens=25), Outcome.OUT_OF_TOKENS, 3),
    ],
)
def test_a_model_that_never_ends_is_ended(bounds: Bounds, outcome: Outcome, turns: int) -> None:
    endless = Saying(*(calling(n, prompt_tokens=5, completion_tokens=5) for n in range(5)))
    with serving(SmallRegistry(calculator())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            report = TaskLoop(agent, endless, bounds=bounds).run("x")
    assert (report.outcome, report.turns) == (outcome, turns)


def test_tokens_are_estimated_where_the_endpoint_counts_none() -> None:
    said = Reply("x" * 4_000, calling(1).calls)
    with serving(SmallRegistry(calculator())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            report = TaskLoop(agent, Saying(said), bounds=Bounds(tokens=1_000)).run("x")
    assert (report.outcome, report.turns) == (Outcome.OUT_OF_TOKENS, 1)
    assert 1_000 < report.completion_tokens < 1_050
    assert 0 < report.prompt_tokens < 200


def test_estimates_follow_what_the_endpoint_counts() -> None:
    # Four times as many as bytes by four, as in languages that a tokenizer knows little of.
    replies = Saying(calling(1, prompt_tokens=1_000), Reply("done"))
    with serving(
        SmallRegistry(text_tool("calculator", lambda expression: "x" * 8_000, expression="string"))
    ) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            recording = Recording(replies)
            TaskLoop(agent, recording, bounds=Bounds(context=4_000)).run("x")
    assert tool_results(recording.asked[-1]) == [CUT]


def test_a_result_is_shown_up_to_a_bound() -> None:
    recording = Recording(Saying(calling(1), Reply("done")))
    with serving(
        SmallRegistry(text_tool("calculator", lambda expression: "x" * 10**6, expression="string"))
    ) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            TaskLoop(agent, recording, bounds=QUICK).run("x")
    (shown,) = tool_results(recording.asked[-1])
    assert len(shown) == MAX_RESULT


def test_time_is_a_bound_too() -> None:
    now = [0.0]

    def slow(expression: str) -> int:
        now[0] += 100
        return 5

    endless = Saying(*map(calling, range(5)))
    with serving(SmallRegistry(text_tool("calculator", slow, expression="string"))) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            loop = TaskLoop(agent, endless, bounds=Bounds(seconds=250), clock=lambda: now[0])
            report = loop.run("x")
    assert (report.outcome, len(report.calls)) == (Outcome.OUT_OF_TIME, 3)


def test_of_too_many_calls_in_one_reply_the_rest_is_not_executed() -> None:
    calls = tuple(FunctionCall(str(n), "calculator", f'{{"expression": "{n}"}}') for n in range(5))
    with serving(SmallRegistry(calculator())) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            loop = TaskLoop(agent, Saying(Reply(calls=calls), Reply("done")), bounds=Bounds(calls_per_turn=2))
            report = loop.run("x")
    assert [c.outcome for c in report.calls] == ["ok", "ok", "not_executed", "not_executed", "not_executed"]


def test_a_stopped_loop_ends_between_two_steps() -> None:
    stop = threading.Event()

    def compute(expression: str) -> int:
        stop.set()
        return 5

    endless = Saying(Reply(calls=(FunctionCall("1", "calculator", '{"expression": "1"}'),)))
    with serving(SmallRegistry(text_tool("calculator", compute, expression="string"))) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            report = TaskLoop(agent, endless, bounds=QUICK, stop=stop).run("x")
    assert (report.outcome, len(report.calls)) == (Outcome.STOPPED, 1)


class _FlakyModel:
    """An endpoint that answers some statuses first and then passes to the script."""

    def __init__(self, *statuses: int, body: bytes = b'{"error": {"message": "later"}}') -> None:
        self.statuses = list(statuses)
        self.body = body
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> str:
        return f"http://127.0.0.1:{self._stack.enter_context(answering(self._answer))}/v1"

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _answer(self, asked: Asked) -> Answer:
        if (status := self.statuses.pop(0) if self.statuses else 200) != 200:
            return Answer(self.body, status)
        document = scripted.completion(scripted.reply(asked.json()["messages"], []), 1)
        return Answer(json.dumps(document).encode())


def run_with(url: str, bounds: Bounds) -> Any:
    model = OpenAIModel(url, "any", lambda: "secret-key")
    with serving(SmallRegistry()) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, follow=False) as agent:
            report = TaskLoop(agent, model, bounds=bounds, first_pause=0.01).run("x")
    model.close()
    return report


def test_a_model_endpoint_that_stumbles_is_asked_again() -> None:
    with _FlakyModel(503, 429, 500) as url:
        report = run_with(url, QUICK)
    assert report.outcome is Outcome.ANSWERED


def test_a_model_endpoint_that_wants_a_longer_pause_than_is_left_is_given_up_at_once() -> None:
    asked: list[str] = []

    def busy(request: Asked) -> Answer:
        asked.append(request.path)
        return Answer(b"{}", 429, {"Retry-After": "60"})

    with answering(busy) as port:
        report = run_with(f"http://127.0.0.1:{port}/v1", Bounds(model_patience=0.5))
    assert (report.outcome, len(asked)) == (Outcome.MODEL_FAILED, 1)
    assert "returned status 429" in report.error


def test_a_model_endpoint_that_refuses_is_not_asked_again() -> None:
    flaky = _FlakyModel(401, 200)
    with flaky as url:
        report = run_with(url, QUICK)
    assert report.outcome is Outcome.MODEL_FAILED
    assert "returned status 401: later" in report.error
    assert "secret-key" not in report.error
    assert flaky.statuses == [200]


def test_a_model_endpoint_that_stays_away_is_given_up_with_a_clear_message() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        report = run_with(f"http://127.0.0.1:{port}/v1", Bounds(model_patience=0.1))
    assert report.outcome is Outcome.MODEL_FAILED
    assert f"the model endpoint 127.0.0.1:{port} cannot be reached" in report.error


def test_an_endpoint_that_speaks_something_else_is_a_refusal() -> None:
    flaky = _FlakyModel(201, body=b'{"hello": "world"}')
    with flaky as url:
        report = run_with(url, QUICK)
    assert report.outcome is Outcome.MODEL_FAILED
    assert "did not return a chat completion" in report.error


def test_everything_is_counted(model: OpenAIModel) -> None:
    numbers = CollectorRegistry()
    metrics = RunnerMetrics(numbers)
    broken = text_tool("broken", lambda: _raise(Problem(502, "upstream_error")))
    task = 'call calculator {"expression": "1"}\ncall broken\ncall absent'
    with serving(SmallRegistry(calculator(), broken)) as registry:
        with DynamicToolAgent("planner", TOKEN, registry.url, pace=FAST, observer=metrics) as agent:
            assert registry.wait_for_watchers(1)
            report = TaskLoop(agent, model, bounds=QUICK, observer=metrics).run(task)
            with health.serving(numbers, lambda: {"status": "ok"}) as url:
                scraped = httpx.get(url + "/metrics", trust_env=False)
                assert httpx.get(url + "/healthz", trust_env=False).json() == {"status": "ok"}
                assert httpx.get(url + "/other", trust_env=False).status_code == 404

    def value(name: str, **labels: str) -> float | None:
        return numbers.get_sample_value(name, {"agent": "planner", **labels})

    assert value("toolcrib_agent_tool_calls_total", tool="calculator", outcome="ok") == 1
    assert value("toolcrib_agent_tool_calls_total", tool="broken", outcome="upstream_error") == 1
    assert value("toolcrib_agent_tool_call_duration_seconds_count", tool="calculator", outcome="ok") == 1
    assert value("toolcrib_agent_tools_available") == 2
    assert value("toolcrib_agent_tools_changed_total", change="gained") == 2
    assert value("toolcrib_agent_tools_changed_total", change="lost") == 0
    assert value("toolcrib_runner_discoveries_total", outcome="changed") == 1
    assert value("toolcrib_runner_registry_up") == 1
    assert value("toolcrib_runner_model_requests_total", mode="static", outcome="ok") == report.turns
    run = {"mode": "static", "phase": "execution"}
    assert value("toolcrib_agent_tokens_total", **run, kind="prompt") == report.prompt_tokens
    assert value("toolcrib_agent_tokens_total", **run, kind="completion") == report.completion_tokens
    assert (
        'toolcrib_agent_tool_calls_total{agent="planner",outcome="ok",tool="calculator"} 1.0' in scraped.text
    )
    assert "toolcrib_runner_build_info" in scraped.text


def test_tools_are_counted_by_what_became_of_them() -> None:
    numbers = CollectorRegistry()
    RunnerMetrics(numbers).changed(
        "planner", Rediscovery(("new",), ("old", "older"), ("same", "other"), ("other",))
    )

    counted = {
        change: numbers.get_sample_value(
            "toolcrib_agent_tools_changed_total", {"agent": "planner", "change": change}
        )
        for change in ("gained", "lost", "changed", "unchanged")
    }
    assert counted == {"gained": 1, "lost": 2, "changed": 1, "unchanged": None}


def test_labels_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib_runner.metrics.TOOL_BUDGET", 3)
    numbers = CollectorRegistry()
    metrics = RunnerMetrics(numbers)
    for number in range(10):
        metrics.called("a", f"tool-{number}", "ok", 0.1)
    sample = numbers.get_sample_value
    assert sample("toolcrib_agent_tool_calls_total", {"agent": "a", "tool": "other", "outcome": "ok"}) == 7


def _raise(problem: Problem) -> Any:
    raise problem
