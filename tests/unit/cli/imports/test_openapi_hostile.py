"""`toolcrib import openapi` and documents that are written to break it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openapi_documents import body, document, one, operation, whole
from placed_arguments import OVERRIDING
from suites import examples
from toolcrib import resources
from toolcrib_cli.imports.openapi import writing

COLLIDING = ("/2832", "/3686")
"""Of `GET` and these sha256 begins with the same six digits."""


def test_names_stay_apart_where_even_the_six_digits_meet() -> None:
    paths = {path: {"get": operation(operationId="same")} for path in COLLIDING}

    names = [m["spec"]["name"] for m in whole(document(paths)).manifests]

    assert len(set(names)) == 2
    assert len({name[: len("same-") + 6] for name in names}) == 1


@pytest.mark.parametrize("path", ["/../admin", "/a/./b", "/a/%2e%2E/b", "/a?x={y}"])
def test_a_path_that_leads_elsewhere_or_has_a_placeholder_in_a_query_is_left_out(path: str) -> None:
    assert len(whole(document({path: {"get": operation()}})).left_out) == 1


def test_a_body_of_schemas_that_multiply_is_left_out_before_they_do() -> None:
    schemas: dict[str, Any] = {
        f"S{i}": {"allOf": [{"$ref": f"#/components/schemas/S{i + 1}"}] * 8} for i in range(14)
    }
    schemas["S14"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    given = body({"$ref": "#/components/schemas/S0"})

    result = whole(document({"/x": {"post": operation(**given)}}, components={"schemas": schemas}))

    assert [why for _, why in result.left_out] == ["its body is put together from more than 1,000 schemas"]


@pytest.mark.parametrize("style", [[], {}])
def test_a_style_that_is_no_text_concerns_its_parameter_alone(style: Any) -> None:
    assert (
        "q" not in one(parameters=[{"name": "q", "in": "query", "style": style}])["inputSchema"]["properties"]
    )


@pytest.mark.parametrize("note", [5, " Not ours."])
def test_a_note_in_a_schema_of_the_document_is_no_part_of_the_description(note: Any) -> None:
    schema = {"type": "string", "_note": note}
    given = {"name": "q", "in": "query", "description": "What to find.", "schema": schema}

    assert one(parameters=[given])["inputSchema"]["properties"]["q"]["description"] == "What to find."


def test_lone_surrogates_leave_their_operation_out_and_the_others_in() -> None:
    twins = {f"S{chr(code)}": {"type": "string"} for code in (0xD800, 0xD801)}
    refers = {name: {"$ref": f"#/components/schemas/{name}"} for name in twins}
    paths = {
        "/a\ud800": {"get": operation()},
        "/b": {"post": operation(**body({"type": "object", "properties": refers}))},
        "/ok": {"get": operation(operationId="ok")},
    }

    result = whole(document(paths, components={"schemas": twins}))

    assert [m["spec"]["name"] for m in result.manifests] == ["ok"]
    assert {why for _, why in result.left_out} == {"it holds a lone surrogate, which is not a character"}


@pytest.mark.parametrize("name", [*OVERRIDING, "X_Remote_User", "remote_user", "X_API_Version"])
def test_a_header_that_overrides_the_request_is_no_argument_and_left_out_by_name(name: str) -> None:
    given = [{"name": name, "in": "header"}, {"name": "X-Api-Version", "in": "header"}]

    result = whole(document({"/x": {"get": operation(parameters=given)}}))

    ((where, what, why),) = result.parameters_left_out
    assert (where, what) == ("GET /x", f"header {name}")
    assert name in why
    (manifest,) = result.manifests
    assert list(manifest["spec"]["inputSchema"]["properties"]) == ["X-Api-Version"]
    assert f"# Left out: GET /x, header {name}: {why}.\n" in list(writing.documents(result, "t"))[-1]


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X_Remote_User"])
def test_an_operation_that_requires_a_header_that_overrides_the_request_is_left_out_by_its_name(
    name: str,
) -> None:
    given = [{"name": name, "in": "header", "required": True}]

    ((_, why),) = whole(document({"/x": {"get": operation(parameters=given)}})).left_out

    assert name in why


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["object", "#/paths", "array"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "$ref", "items", "allOf", "anyOf", "required", "enum", "schema", "content", "in",
                         "name", "parameters", "requestBody", "responses", "application/json", "nullable", "minimum", "url", "servers",
                         "default", "pattern", "additionalProperties", "tags", "security", "operationId", "example", "a"]),
        inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@examples(300)
@given(JUNK, JUNK, JUNK)
def test_whatever_stands_in_a_document_an_operation_becomes_a_tool_or_is_left_out(
    first: Any, second: Any, third: Any
) -> None:
    fields = {
        "parameters": first,
        "requestBody": {"content": {"application/json": {"schema": second}}},
        "responses": third,
    }
    content = document({"/x/{id}": {"post": fields, "get": first, "put": {"requestBody": second}, "parameters": third}},
                       components=third, security=second)  # fmt: skip

    result = whole(content)

    for manifest in result.manifests:
        resources.parse(manifest, strict=True)
