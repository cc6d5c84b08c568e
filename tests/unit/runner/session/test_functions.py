"""Function names and schemas of a session: valid, one to one, and never changed again."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import model_names
from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.errors import InvalidArguments
from toolcrib_runner.session import functions
from toolcrib_runner.session.functions import FunctionNames

VALID = re.compile(r"[A-Za-z0-9_-]{1,48}")
# Few letters, so that names collide often; separators, so that derived names meet real ones; and long ones.
listed_names = st.one_of(
    st.text("ab_.-/", min_size=1, max_size=6),
    st.text("ab_.", min_size=46, max_size=70),
    st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True),
)


def listed(name: str) -> DiscoveredTool:
    return DiscoveredTool(name, f"/tools/{name}")


@given(st.lists(st.lists(listed_names, max_size=12), max_size=4), st.randoms())
def test_function_names_are_valid_one_to_one_and_fixed(
    rounds: list[list[str]], chance: random.Random
) -> None:
    names, shuffled, given_before = FunctionNames(), FunctionNames(), {}
    for tools in rounds:
        names.assign(map(listed, tools))
        mixed = list(tools)
        chance.shuffle(mixed)
        shuffled.assign(map(listed, mixed))
        given_now = {tool: names.function(tool) for tool in set(tools) | set(given_before)}
        assert all(VALID.fullmatch(name) for name in given_now.values())
        assert len(set(given_now.values())) == len(given_now)
        assert all(names.tool(name) == tool for tool, name in given_now.items())
        assert all(given_now[tool] == name for tool, name in given_before.items())
        assert all(shuffled.function(tool) == name for tool, name in given_now.items())
        given_before = given_now


def test_a_function_has_the_name_that_the_registry_gives_to_models() -> None:
    names = FunctionNames()
    names.assign(
        [
            listed("calculator"),
            DiscoveredTool("team-a/calculator", "/tools/team-a/calculator"),
            DiscoveredTool("files.read", "/tools/team-a/files-read"),
        ]
    )

    assert names.function("calculator") == "calculator"
    assert names.function("team-a/calculator") == "team-a__calculator"
    assert names.function("files.read") == model_names.model_name("files.read", "team-a/files-read")


def test_a_name_given_in_a_session_never_goes_to_another_tool() -> None:
    names = FunctionNames()
    names.assign([listed("a/b.c")])
    taken = names.function("a/b.c")
    names.assign([DiscoveredTool("b.c", "/tools/a/b.c")])

    assert names.tool(taken) == "a/b.c"
    assert names.function("b.c") != taken


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
