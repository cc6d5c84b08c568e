"""Schemas in the form that clients of MCP demand, which mean the same."""

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.schemas.objects import of_objects

ANY = {"a": {"type": "string"}}
VALUES = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text(max_size=2), max_size=3)


@pytest.mark.parametrize(
    ("schema", "formed"),
    [
        ({}, {"type": "object"}),
        ({"properties": ANY}, {"type": "object", "properties": ANY}),
        ({"type": "object", "properties": {"a": True}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"type": "object", "properties": {"a": False}},
            {"type": "object", "properties": {"a": {"not": {}}}},
        ),
        ({"type": "array"}, {"type": "array"}),
        ({"type": ["object", "null"]}, {"type": ["object", "null"]}),
    ],
)
def test_the_root_says_objects_and_no_property_is_a_boolean(
    schema: dict[str, Any], formed: dict[str, Any]
) -> None:
    before = copy.deepcopy(schema)

    assert of_objects(schema) == formed
    assert schema == before, "it may be somebody else's"


def test_a_schema_that_has_the_form_is_not_copied() -> None:
    schema = {"type": "object", "properties": ANY, "additionalProperties": False}

    assert of_objects(schema) is schema


@given(
    st.dictionaries(st.sampled_from("abc"), st.booleans() | st.just({"type": "integer"}), max_size=3), VALUES
)
def test_the_form_allows_what_the_schema_allows(properties: dict[str, Any], value: dict[str, Any]) -> None:
    schema = {"properties": properties}

    assert jsonschema_rs.is_valid(of_objects(schema), value) == jsonschema_rs.is_valid(schema, value)
