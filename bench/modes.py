"""`make bench-modes`: tasks for a real model in each mode of the agent runner, at a real registry. Reported, never a gate.

    make bench-modes ARGS="[--url URL --model NAME [--key-file FILE]] [--modes static,…] [--dialect lenient] [--json FILE]"

Without a URL a small model is served on this machine (500 MB, once). Eight tasks, each with one or two tools that it needs,
among 32: eight that answer what a program computes, and real definitions of `livemcp`. Of each
mode: tasks that end with an answer that has the value (`success`), turns a task, and the share of calls that named a tool that the
task does not need, or none that there is (`wrong`). The same prompts, order and seed in all modes.
`done`: tasks whose tools were all called without an error, whatever the model made of it.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import operator
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import measure
import small_model

from registry_harness import backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_runner import DynamicToolAgent
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ready_sets import ReadySets
from toolcrib_runner.tasks import Bounds, Outcome, Report, Way

HERE = Path(__file__).parent
TOOLS = 32
BOUNDS = Bounds(turns=14, tokens=200_000, seconds=600, context=7_000, model_timeout=300, model_patience=600)
MODES = (Mode.STATIC, Mode.DYNAMIC, Mode.BATCHED, Mode.CACHED, Mode.HYBRID)
SUBSET = HERE / "search" / "subset" / "livemcp"
_RATES = {("EUR", "USD"): 1.1, ("USD", "EUR"): 0.9}
_CLOCKS = {"Asia/Tokyo": "21:34 JST"}
_WEATHER = {"Paris": "rain, 11 degrees", "Oslo": "snow"}
_TABLES = {"employees.csv": {"salary": [70_000, 75_000, 80_000]}}
_OPERATORS: Mapping[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def _computed(node: ast.AST) -> float:
    match node:
        case ast.Expression(body):
            return _computed(body)
        case ast.Constant(int() | float() as value):
            return value
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_computed(left), _computed(right))
        case ast.UnaryOp(op, operand):
            return _OPERATORS[type(op)](_computed(operand))
    raise ValueError("no arithmetic expression")


@dataclass(frozen=True)
class Working:
    """A tool that really works: its parameters by name, with their types, and what it answers."""

    description: str
    parameters: Mapping[str, str]
    run: Callable[..., Any]


WORKING: Mapping[str, Working] = {
    "calculator": Working(
        "Compute an arithmetic expression.",
        {"expression": "string"},
        lambda expression: _computed(ast.parse(expression, mode="eval")),
    ),
    "load_csv": Working(
        "Read the columns of a CSV file.", {"filename": "string"}, lambda filename: _TABLES[filename]
    ),
    "calculate_mean": Working(
        "Compute the mean of a list of numbers.", {"values": "array"}, lambda values: statistics.fmean(values)
    ),
    "current_time_by_timezone": Working(
        "Get the current time in a time zone.", {"tz_name": "string"}, lambda tz_name: _CLOCKS[tz_name]
    ),
    "convert_currency": Working(
        "Convert an amount of money into another currency.",
        {"amount": "number", "source": "string", "target": "string"},
        lambda amount, source, target: round(float(amount) * _RATES[source, target], 2),
    ),
    "get_weather": Working("Get the weather of a city.", {"city": "string"}, lambda city: _WEATHER[city]),
    "count_words": Working("Count the words of a text.", {"text": "string"}, lambda text: len(text.split())),
    "reverse_text": Working("Reverse the characters of a text.", {"text": "string"}, lambda text: text[::-1]),
}


@dataclass(frozen=True)
class Task:
    """What is asked, which tools it takes, and what the answer must hold."""

    text: str
    needs: tuple[str, ...]
    value: str


TASKS = (
    Task("What is 310 / 4 + 12? Use a tool.", ("calculator",), "89.5"),
    Task("What is the average salary in employees.csv?", ("load_csv", "calculate_mean"), "75000"),
    Task("What time is it in Tokyo? Its time zone is Asia/Tokyo.", ("current_time_by_timezone",), "21:34"),
    Task("How many USD are 200 EUR? Use a tool.", ("convert_currency",), "220"),
    Task("What is the weather in Paris?", ("get_weather",), "11"),
    Task('How many words has the text "the quick brown fox jumps"? Use a tool.', ("count_words",), "5"),
    Task('Reverse the text "toolcrib" with a tool.', ("reverse_text",), "bircloot"),
    Task("What is the mean of 4, 8 and 15? Use a tool.", ("calculate_mean",), "9"),
)


@dataclass
class Row:
    """What came of the tasks in one mode."""

    mode: str
    right: int = 0
    done: int = 0
    tasks: int = 0
    turns: list[int] = field(default_factory=list)
    calls: int = 0
    wrong: int = 0
    tokens: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def add(self, task: Task, report: Report) -> None:
        """Count one task."""
        self.tasks += 1
        self.right += right(task, report)
        self.done += set(task.needs) <= {call.tool for call in report.calls if call.outcome == "ok"}
        self.turns.append(report.turns)
        self.calls += len(report.calls)
        self.wrong += sum(call.tool not in task.needs for call in report.calls)
        self.tokens += report.prompt_tokens
        self.ends[report.outcome.value] = self.ends.get(report.outcome.value, 0) + 1


def right(task: Task, report: Report) -> bool:
    """Whether the task ended with an answer that has the value."""
    return report.outcome is Outcome.ANSWERED and task.value in report.answer.replace(",", "")


def catalog(port: int) -> list[PublishedTool]:
    """The working tools, and real definitions that nobody needs."""
    tools = [
        tool(
            name,
            description=each.description,
            input_schema={
                "type": "object",
                "properties": {parameter: {"type": kind} for parameter, kind in each.parameters.items()},
                "required": list(each.parameters),
            },
            backend=backend(port, f"/{name}"),
        )
        for name, each in WORKING.items()
    ]
    for line in (SUBSET / "tools.jsonl").read_text().splitlines():
        row = json.loads(line)
        name = str(row["name"])
        if len(tools) >= TOOLS:
            break
        if name in WORKING or not name.replace("_", "").isalnum() or any(t.name == name for t in tools):
            continue
        properties = {
            p: {"type": "string", "description": str(about)} for p, about in row["parameters"].items()
        }
        schema = {"type": "object", "properties": properties}
        tools.append(
            tool(name, description=row["description"], input_schema=schema, backend=backend(port, "/other"))
        )
    return tools


def _answer(asked: Asked) -> Answer:
    working = WORKING.get(asked.path.removeprefix("/"))
    if working is None:
        return Answer(b'"nothing was found"')
    try:
        return Answer(json.dumps(working.run(**asked.json())).encode())
    except Exception as error:
        return Answer(json.dumps({"detail": f"{type(error).__name__}: {error}"}).encode(), 422)


def measured(url: str, model: str, key: str, modes: list[Mode], dialect: Dialect) -> list[Row]:
    """Work on the tasks in each mode, in turns."""
    rows = {mode: Row(mode.value) for mode in modes}
    with ExitStack() as stack:
        port = stack.enter_context(answering(_answer))
        tools = catalog(port)
        scopes = tuple(f"{t.name}:use" for t in tools)
        registry = stack.enter_context(
            running_registry(tools, [binding("bot", scopes)], embedder=OnnxEmbedder.packaged())
        )
        agent = stack.enter_context(
            DynamicToolAgent("bot", registry.token("team", "bot"), registry.url, follow=False)
        )
        endpoint = OpenAIModel(url, model, lambda: key)
        stack.callback(endpoint.close)
        sets = ReadySets()
        for number, task in enumerate(TASKS, 1):
            for mode, row in rows.items():
                way = Way(mode=mode, dialect=dialect, core=("calculator",), ready_sets=sets)
                report = TaskLoop(agent, endpoint, way=way, bounds=BOUNDS).run(task.text)
                row.add(task, report)
                called = ", ".join(f"{call.tool} {call.outcome}" for call in report.calls) or "no call"
                said = "right" if right(task, report) else "not right"
                print(f"  {number} {mode.value:<8} {said}: {report.outcome}, {called}", flush=True)
    return list(rows.values())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="an OpenAI-compatible endpoint; default: a small model on this machine")
    parser.add_argument("--model", default="", help="its model")
    parser.add_argument("--key-file", type=Path, help="file with its key")
    parser.add_argument("--modes", default=",".join(MODES), help="which, separated by commas")
    parser.add_argument("--dialect", default=Dialect.LENIENT.value, choices=[d.value for d in Dialect])
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    modes, dialect = [Mode(name) for name in options.modes.split(",")], Dialect(options.dialect)
    with ExitStack() as stack:
        url, name = options.url, options.model
        if url is None:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
            url, name = stack.enter_context(small_model.serving(dict(os.environ), log)), small_model.NAME
        key = options.key_file.read_text().strip() if options.key_file else "none"
        rows = measured(url, name or "default", key, modes, dialect)
    measure.table(
        f"{len(TASKS)} tasks, {TOOLS} tools, {name or url}, dialect {dialect.value}",
        ["mode", "success", "done", "turns", "calls", "wrong", "prompt tokens", "ends"],
        [
            [
                row.mode,
                f"{row.right} of {row.tasks}",
                f"{row.done} of {row.tasks}",
                f"{statistics.fmean(row.turns):.1f}",
                str(row.calls),
                f"{row.wrong / row.calls:.0%}" if row.calls else "-",
                f"{row.tokens:,}",
                ", ".join(f"{end} {count}" for end, count in sorted(row.ends.items())),
            ]
            for row in rows
        ],
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
