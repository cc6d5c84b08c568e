"""What a model's reply asks for, in each dialect."""

import json

import pytest

from toolcrib_runner.modes import dialects
from toolcrib_runner.modes.dialects import FUNCTIONS, MAX_READ, Kind, Step, steps
from toolcrib_runner.modes.kinds import Dialect
from toolcrib_runner.ports import FunctionCall, Reply


def asked(text: str, dialect: Dialect = Dialect.TEXT) -> list[tuple[Kind, tuple[str, ...], str]]:
    return [(s.kind, s.names, s.arguments) for s in steps(Reply(text=text), dialect, discovering=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEARCH: read a csv; mean of numbers", [(Kind.SEARCH, ("read a csv", "mean of numbers"), "")]),
        ("GET_SCHEMA: a, b", [(Kind.DESCRIBE, ("a", "b"), "")]),
        ("I think:\n**READY: `a`, b.**", [(Kind.READY, ("a", "b"), "")]),
        ("READY: none", [(Kind.READY, (), "")]),
        ("READY:", [(Kind.READY, (), "")]),
        ('CALL: a {"x": "READY: b"}', [(Kind.CALL, ("a",), '{"x": "READY: b"}')]),
        ('CALL: a\n```json\n{"x":\n 1}\n```', [(Kind.CALL, ("a",), '{"x":\n 1}')]),
        ("CALL: a", [(Kind.CALL, ("a",), "{}")]),
        ("CALL: a {not json", [(Kind.CALL, ("a",), "{not json")]),
        ("CALL: a {}\nCALL: b {}", [(Kind.CALL, ("a",), "{}"), (Kind.CALL, ("b",), "{}")]),
        ("The tool READY: is done", []),
        ("", []),
    ],
)  # fmt: skip
def test_commands_are_lines_of_a_text(text: str, expected: list[tuple[Kind, tuple[str, ...], str]]) -> None:
    assert asked(text) == expected
    assert asked(text, Dialect.LENIENT) == expected
    assert asked(text, Dialect.NATIVE) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "arguments": {"a": 1}}',
        'Sure!\n```json\n{"name": "add", "arguments": {"a": 1}}\n```',
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        '{"function": {"name": "add", "arguments": {"a": 1}}}',
        '{"name": "call_tool", "arguments": {"name": "add", "arguments": {"a": 1}}}',
        '{broken {"name": "add", "parameters": {"a": 1}}',
    ],
)  # fmt: skip
def test_a_call_written_as_json_is_read_where_the_dialect_is_lenient(text: str) -> None:
    assert [(k, n, json.loads(a)) for k, n, a in asked(text, Dialect.LENIENT)] == [
        (Kind.CALL, ("add",), {"a": 1})
    ]
    assert asked(text, Dialect.TEXT) == []


@pytest.mark.parametrize("text", ['{"name": 1}', "{" * 5000, '{"a": {"b": 1}}', "[1, 2]", '{"name": "x"}'])
def test_other_json_is_an_answer(text: str) -> None:
    assert asked(text, Dialect.LENIENT) == []


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("search_tools", '{"query": "a; b"}', (Kind.SEARCH, ("a", "b"), "")),
        ("describe_tool", '{"names": ["a", 1, "b"]}', (Kind.DESCRIBE, ("a", "1", "b"), "")),
        ("describe_tool", '{"name": "a, b"}', (Kind.DESCRIBE, ("a", "b"), "")),
        ("ready", "{}", (Kind.READY, (), "")),
        ("ready", "garbage", (Kind.READY, ("garbage",), "")),
        ("call_tool", '{"name": "a", "arguments": {"x": 1}}', (Kind.CALL, ("a",), '{"x": 1}')),
        ("call_tool", '{"name": "a", "arguments": "{\\"x\\": 1}"}', (Kind.CALL, ("a",), '{"x": 1}')),
        ("call_tool", "garbage", (Kind.CALL, ("",), "{}")),
        ("a", '{"x": 1}', (Kind.CALL, ("a",), '{"x": 1}')),
    ],
)  # fmt: skip
def test_functions_are_read_as_what_they_ask_for(
    name: str, arguments: str, expected: tuple[Kind, tuple[str, ...], str]
) -> None:
    call = FunctionCall("1", name, arguments)
    (step,) = steps(Reply(calls=(call,)), Dialect.NATIVE, discovering=True)
    assert (step.kind, step.names, step.arguments) == expected
    assert step.call == call


def test_where_the_tools_themselves_are_offered_every_function_is_a_tool() -> None:
    call = FunctionCall("1", "ready", "{}")
    assert steps(Reply(calls=(call,)), Dialect.NATIVE, discovering=False) == (
        Step(Kind.CALL, ("ready",), "{}", call),
    )


def test_the_four_functions_are_those_of_the_contract() -> None:
    assert [f["function"]["name"] for f in FUNCTIONS] == [
        "search_tools",
        "describe_tool",
        "ready",
        "call_tool",
    ]


def test_of_a_text_that_repeats_itself_the_first_commands_are_read() -> None:
    read = steps(Reply(text="SEARCH: a\n" * 1_000), Dialect.TEXT, discovering=True)
    assert len(read) == dialects.MAX_STEPS


def test_commands_are_read_as_far_as_a_reply_is_short() -> None:
    assert asked("x" * (MAX_READ - 20) + "\nSEARCH: a") != []
    assert asked("x" * MAX_READ + "\nSEARCH: a") == []
