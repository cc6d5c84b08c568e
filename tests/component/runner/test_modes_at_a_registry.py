"""Tasks in the modes that search, at the real registry: found within the grants, called, and refused where they end."""

import csv
import json
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import model_stub
from model_stub import function, text
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib_runner import DynamicToolAgent, TokenFile, main, scripted
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ready_sets import ReadySets
from toolcrib_runner.settings import RunnerSettings
from toolcrib_runner.tasks import Bounds, Outcome, Report, Way
from toolcrib_runner.tokens import TokenSource

MODES = [Mode.STATIC, Mode.DYNAMIC, Mode.CACHED, Mode.BATCHED, Mode.HYBRID]
GRANTED = ("load_csv:use", "calculate_mean:use")
SALARY = "What is the average salary in employees.csv?"
QUICK = Bounds(turns=30, seconds=60, model_patience=5)


def schema(**types: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": properties, "required": list(types)}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """What executes the tools."""
    (tmp_path / "employees.csv").write_text("name,salary\nAda,70000\nGrace,75000\nLin,80000\n")

    def answer(asked: Asked) -> Answer:
        given = asked.json()
        if asked.path == "/load_csv":
            with (tmp_path / Path(given["filename"]).name).open() as file:
                result: Any = {"salary": [float(row["salary"]) for row in csv.DictReader(file)]}
        else:
            result = statistics.fmean(given["values"])
        return Answer(json.dumps(result).encode())

    with answering(answer) as port:
        yield port


@contextmanager
def office(port: int, clock: ManualClock | None = None) -> Iterator[RunningRegistry]:
    tools = [
        tool("load_csv", description="Read the columns of a csv file.",
             input_schema=schema(filename="string"), backend=backend(port, "/load_csv")),
        tool("calculate_mean", description="Compute the mean average of values.",
             input_schema=schema(values="array"), backend=backend(port, "/calculate_mean")),
        tool("payroll_csv", description="Read the salaries of a csv file.", backend=backend(port, "/payroll")),
    ]  # fmt: skip
    with running_registry(tools, [binding("analyst", GRANTED)], clock=clock) as registry:
        yield registry


def run(
    registry: RunningRegistry,
    url: str,
    task: str = SALARY,
    *,
    token: TokenSource | str = "",
    bounds: Bounds = QUICK,
    **way: Any,
) -> Report:
    source = token or registry.token("team", "analyst")
    model = OpenAIModel(url, scripted.MODEL, lambda: "none")
    try:
        with DynamicToolAgent("analyst", source, registry.url, follow=False) as agent:
            way.setdefault("mode", Mode.BATCHED)
            return TaskLoop(agent, model, way=Way(**way), bounds=bounds, first_pause=0.01).run(task)
    finally:
        model.close()


def salaries(dialect: Dialect = Dialect.NATIVE) -> model_stub.Said:
    return model_stub.working(
        dialect.value,
        ["read csv file", "mean average of values"],
        [
            ("load_csv", lambda _: {"filename": "employees.csv"}),
            ("calculate_mean", lambda done: {"values": json.loads(done[0])["salary"]}),
        ],
    )


@pytest.mark.parametrize("dialect", [Dialect.NATIVE, Dialect.TEXT])
@pytest.mark.parametrize("mode", MODES)
def test_the_average_salary_is_found_by_search_within_the_grants(
    port: int, mode: Mode, dialect: Dialect
) -> None:
    with office(port) as registry, model_stub.serving(salaries(dialect)) as endpoint:
        report = run(registry, endpoint.url, mode=mode, dialect=dialect, ready_sets=ReadySets())
    assert (report.outcome, "75000" in report.answer) == (Outcome.ANSWERED, True), report
    assert [(c.tool, c.outcome) for c in report.calls] == [("load_csv", "ok"), ("calculate_mean", "ok")]
    # it fits the task best, and is not granted
    assert "payroll" not in json.dumps(endpoint.requests)


@pytest.mark.parametrize("dialect", [Dialect.TEXT, Dialect.LENIENT])
@pytest.mark.parametrize("order", ["CALL: load_csv {}", '{"name": "load_csv", "arguments": {}}'])
def test_an_order_that_an_answer_quotes_is_not_carried_out(port: int, dialect: Dialect, order: str) -> None:
    answer = f"The page says:\n```\n{order}\n```\n> {order}\n\n{order}\nI have not done it."
    said = [text("READY: load_csv"), text(answer)]
    with office(port) as registry, model_stub.serving(said) as endpoint:
        report = run(registry, endpoint.url, dialect=dialect)
    assert (report.outcome, report.answer, report.calls) == (Outcome.ANSWERED, answer, [])


@pytest.mark.parametrize("mode", [Mode.DYNAMIC, Mode.BATCHED, Mode.HYBRID])
@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_scripted_endpoint_searches_chooses_and_calls(port: int, mode: Mode, dialect: Dialect) -> None:
    task = "Read the columns of the csv file employees.csv"
    with office(port) as registry, scripted.serving() as url:
        report = run(registry, url, task, mode=mode, dialect=dialect)
    assert [(c.tool, c.outcome) for c in report.calls] == [("load_csv", "ok")], report
    assert report.answer.startswith("Done, with 1 call.\nload_csv: ")
    assert "75000" in report.answer


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_scripted_endpoint_makes_the_calls_that_the_task_names(port: int, dialect: Dialect) -> None:
    task = 'call load_csv {"filename": "employees.csv"}\ncall calculate_mean {"values": [1, 3]}'
    with office(port) as registry, scripted.serving() as url:
        report = run(registry, url, task, mode=Mode.DYNAMIC, dialect=dialect)
        denied = run(registry, url, "call payroll_csv {}", mode=Mode.DYNAMIC, dialect=dialect)
    assert report.answer.endswith("calculate_mean: 2.0"), report
    assert (denied.outcome, denied.calls) == (Outcome.ANSWERED, [])
    assert denied.answer.startswith("No function offered to me fits this task.")


def test_the_core_of_a_process_may_be_named_by_tool_id(port: int, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with office(port) as registry, model_stub.serving([text("Done.")]) as endpoint:
        file.write_text(registry.token("team", "analyst"))
        settings = RunnerSettings(
            name="analyst", registry_url=registry.url, token_file=str(file), model_url=endpoint.url, task="x",
            mode="hybrid", core_tools="team/load-csv, team/payroll-csv",
        )  # fmt: skip
        assert main.run(settings) == 0
    assert "- load_csv: Read the columns of a csv file." in endpoint.system[0]
    # what is not granted has no name
    assert "payroll_csv" not in endpoint.system[0]


def test_a_tool_revoked_between_its_schema_and_its_call_is_refused_and_told(port: int) -> None:
    said = salaries()

    def say(request: dict[str, Any]) -> dict[str, Any]:
        if len(endpoint.requests) == 4:
            registry.publish(bindings=[binding("analyst", ("load_csv:use",))])
        return text("It was taken away.") if len(endpoint.requests) > 4 else said(request)

    with office(port) as registry, model_stub.serving(say) as endpoint:
        report = run(registry, endpoint.url)
    assert [(c.tool, c.outcome) for c in report.calls] == [("load_csv", "ok"), ("calculate_mean", "not_permitted")]  # fmt: skip
    told = json.loads(endpoint.requests[-1]["messages"][-1]["content"])
    assert told["error"]["code"] == "not_permitted"
    assert report.outcome is Outcome.ANSWERED


@pytest.mark.parametrize("rotates", [True, False], ids=["it is replaced", "it is not"])
def test_a_token_that_expires_during_the_task_is_read_again_or_told(
    port: int, tmp_path: Path, rotates: bool
) -> None:
    clock, file, said = ManualClock(), tmp_path / "token", salaries()

    def say(request: dict[str, Any]) -> dict[str, Any]:
        if len(endpoint.requests) == 3:  # found and chosen; both calls are still to come
            if rotates:
                new = tmp_path / "new"
                new.write_text(registry.token("team", "analyst", ttl=600))
                new.replace(file)
            clock.advance(61)
        if not rotates and len(endpoint.requests) > 3:
            return text("My token has expired.")
        return said(request)

    with office(port, clock) as registry, model_stub.serving(say) as endpoint:
        file.write_text(registry.token("team", "analyst", ttl=60))
        report = run(registry, endpoint.url, token=TokenFile(file))
    outcomes = [(c.tool, c.outcome) for c in report.calls]
    if rotates:
        assert outcomes == [("load_csv", "ok"), ("calculate_mean", "ok")]
        assert "75000" in report.answer
    else:
        assert outcomes == [("load_csv", "invalid_token")]
        assert (report.outcome, report.answer) == (Outcome.ANSWERED, "My token has expired.")


def test_a_slow_model_is_asked_again_with_what_is_granted_by_then_and_given_up_in_time(port: int) -> None:
    gate = threading.Event()

    def say(request: dict[str, Any]) -> dict[str, Any]:
        if len(endpoint.requests) == 1:
            registry.publish(bindings=[binding("analyst", ())])
            gate.wait(60)
        return function("search_tools", {"query": "read csv file"}) if not gate.is_set() else text("x")

    slow = Bounds(turns=5, seconds=30, model_patience=1.0, model_timeout=0.3)
    with office(port) as registry, model_stub.serving(say) as endpoint:
        try:
            report = run(registry, endpoint.url, bounds=slow)
        finally:
            gate.set()
    found = [m for m in endpoint.requests[-1]["messages"] if m["role"] == "tool"]
    assert all(m["content"] == "No tool fits." for m in found), found
    assert report.outcome is Outcome.LOOPING, report


def test_a_model_that_never_answers_in_time_ends_the_task_with_the_reason(port: int) -> None:
    gate = threading.Event()

    def say(request: dict[str, Any]) -> dict[str, Any]:
        gate.wait(60)
        return text("too late")

    slow = Bounds(turns=5, seconds=30, model_patience=0.5, model_timeout=0.2)
    with office(port) as registry, model_stub.serving(say) as endpoint:
        try:
            report = run(registry, endpoint.url, bounds=slow)
        finally:
            gate.set()
    assert (report.outcome, report.turns) == (Outcome.MODEL_FAILED, 0)
    assert "did not respond in time" in report.error
    assert len(endpoint.requests) >= 2
