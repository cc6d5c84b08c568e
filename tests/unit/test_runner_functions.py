"""Function names and schemas of a session: valid, one to one, and never changed again."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_runner import functions
from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.errors import InvalidArguments
from toolcrib_runner.functions import FunctionNames

VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Few letters, so that names collide often; separators, so that derived names meet real ones; and long ones.
listed_names = st.one_of(
    st.text("ab_.-/", min_size=1, max_size=6),
    st.text("ab_.", min_size=62, max_size=70),
    st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True),
)


@given(st.lists(st.lists(listed_names, max_size=12), max_size=4), st.randoms())
def test_function_names_are_valid_one_to_one_and_fixed(
    rounds: list[list[str]], chance: random.Random
) -> None:
    names, shuffled, given_before = FunctionNames(), FunctionNames(), {}
    for tools in rounds:
        names.assign(tools)
        mixed = list(tools)
        chance.shuffle(mixed)
        shuffled.assign(mixed)
        given_now = {tool: names.function(tool) for tool in set(tools) | set(given_before)}
        assert all(VALID.fullmatch(name) for name in given_now.values())
        assert len(set(given_now.values())) == len(given_now)
        assert all(names.tool(name) == tool for tool, name in given_now.items())
        assert all(given_now[tool] == name for tool, name in given_before.items())
        assert all(shuffled.function(tool) == name for tool, name in given_now.items())
        given_before = given_now


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        ("calculator", "calculator"),
        ("team-a.calculator", "team-a__calculator"),
        ("team-a/calculator", "team-a__calculator"),
        ("read_file-2", "read_file-2"),
    ],
)
def test_a_function_is_called_like_its_tool_else_namespace__name(tool: str, function: str) -> None:
    assert functions.derived(tool) == function


def test_a_derived_name_never_takes_a_tools_own() -> None:
    names = FunctionNames()
    names.assign(["a.b", "a__b"])
    assert names.function("a__b") == "a__b"
    assert re.fullmatch(r"a__b_[0-9a-f]{6}", names.function("a.b"))


def test_an_unknown_function_stands_for_no_tool() -> None:
    assert FunctionNames().tool("calculator") is None


def test_a_tool_becomes_a_function_with_its_parameters() -> None:
    tool = DiscoveredTool(
        "t",
        "/tools/t",
        "does\u202e it",
        (
            Parameter("a", ("string",), "what", required=True),
            Parameter("b", ("array",)),
            Parameter("c"),
            Parameter("d", ("integer", "number")),
        ),
    )
    assert functions.function(tool, "t") == {
        "type": "function",
        "function": {
            "name": "t",
            "description": "does\\u202e it",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "description": "what"},
                    "b": {"type": "array", "items": {}},
                    "c": {},
                    "d": {"type": ["integer", "number"]},
                },
                "required": ["a"],
            },
        },
    }


@pytest.mark.parametrize("written", ["{", "[]", "3", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 100_000])
def test_arguments_of_a_model_that_are_no_json_object_are_refused(written: str) -> None:
    with pytest.raises(InvalidArguments):
        functions.arguments("t", written)


def test_no_arguments_at_all_mean_an_empty_object() -> None:
    assert functions.arguments("t", "") == {}
    assert functions.arguments("t", '{"a": [1]}') == {"a": [1]}


def test_a_full_schema_is_offered_with_its_texts_made_safe() -> None:
    tool = DiscoveredTool("t", "/t", parameters=(Parameter("a", ("string",)),))
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"enum": ["x", "y\u200b"], "description": "one\u200b of"}},
    }
    assert functions.function(tool, "t", schema)["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y\u200b"], "description": "one\\u200b of"}},
    }


def test_a_schema_that_is_not_fit_to_show_is_replaced_by_the_listing() -> None:
    tool = DiscoveredTool("t", "/t", parameters=(Parameter("a", ("string",)),))
    deep: dict[str, object] = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    listed = {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}
    for schema in ({"type": "string"}, {"type": "object", "description": "x" * 20_000}, deep):
        assert functions.function(tool, "t", schema)["function"]["parameters"] == listed
