"""What a check may cost is reckoned from schema and arguments, and ordinary schemas are not remarked on."""

import json
import time
from typing import Any

import pytest

import manifests
from toolcrib.lint.weaknesses import SearchLint
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib.schemas.argument_cost import BUDGET
from toolcrib.schemas.cost import SchemaCost


def cost(schema: dict[str, Any], arguments: Any) -> float:
    return SchemaCost(schema).of(arguments, json.dumps(arguments, separators=(",", ":")).encode())


def items(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"l": {"type": "array", "items": schema}}}


def tower(height: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"minProperties": 1}
    for _ in range(height):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": "integer"}}
    return schema


REFERENCES = {
    "$defs": {
        "a": {"allOf": [{"$ref": "#/$defs/b"}] * 30},
        "b": {"allOf": [{"$ref": "#/$defs/c"}] * 30},
        "c": {"minimum": 0},
    },
    **items({"$ref": "#/$defs/a"}),
}
HEAVY: dict[str, tuple[dict[str, Any], Any]] = {
    "branches under an array": (
        items({"anyOf": [{"const": f"k{i}"} for i in range(3_000)]}), {"l": ["k2999"] * 1_000},
    ),
    "options that are objects": (items({"enum": [{"k": i} for i in range(2_000)]}), {"l": [{"k": 1}] * 1_000}),
    "options that are fractions": (items({"enum": [i + 0.5 for i in range(4_000)]}), {"l": [3.5] * 1_000}),
    "constants that are objects": (
        items({"anyOf": [{"const": {"k": i}} for i in range(1_000)]}), {"l": [{"k": 999}] * 1_000},
    ),
    "long integers": (items({"minimum": 5}), {"l": [10**4_200] * 200}),
    "unique long integers": (
        {"properties": {"l": {"uniqueItems": True}}}, {"l": [2**64 + i for i in range(2_000)]},
    ),
    "a large pattern": ({"properties": {"s": {"pattern": "[ab]*a[ab]{4000}c"}}}, {"s": "ab" * 15_000}),
    "patterns of names": (
        {"patternProperties": {f"a{{0,50}}{i}$": {} for i in range(100)}}, {f"k{i}": 1 for i in range(9_000)},
    ),
    "patterns of every name": (
        {"propertyNames": {"pattern": "[k0-9]*k[k0-9]{200}c"}}, {f"k{i}": 1 for i in range(90_000)},
    ),
    "references that multiply": (REFERENCES, {"l": [1] * 10_000}),
    "a tower of unevaluatedProperties": (tower(14), {"a": 1, "b": 2}),
    "nested contains": (
        {"properties": {"l": {"contains": {"allOf": [{"contains": {"minimum": i}} for i in range(500)]}}}},
        {"l": [[-1] * 50] * 500},
    ),
    "conditions": (
        items({"allOf": [{"if": {"required": [f"k{i}"]}, "then": {"minProperties": i}} for i in range(800)]}),
        {"l": [{"a": 1}] * 5_000},
    ),
    "dependent schemas": (
        items({"dependentSchemas": {f"k{i}": {"minProperties": 1} for i in range(1_000)}}), {"l": [{}] * 9_000},
    ),
    "texts beside options that are lists": (items({"enum": [[]] * 9_900 + ["x"]}), {"l": ["x"] * 200_000}),
    "nulls beside options that are objects": (items({"enum": [{}] * 9_900 + [None]}), {"l": [None] * 180_000}),
    "texts that are none of the options": (items({"not": {"enum": [{}, *([[]] * 9_900)]}}), {"l": ["x"] * 200_000}),
    "truths beside options that are numbers": (items({"enum": [*range(9_000), True]}), {"l": [True] * 150_000}),
    "the smallest divisor": (items({"multipleOf": 5e-324}), {"l": [1.7e308] * 12_000}),
    "divisors of the largest number": (items({"multipleOf": 0.1}), {"l": [1.7e308] * 12_000}),
    "bounds of the smallest numbers": (items({"minimum": 0.5}), {"l": [2.2250738585072014e-308] * 12_000}),
    "options in fractions and small numbers": (items({"const": {"a": 5e-324}}), {"l": [{"a": 1e-300}] * 12_000}),
    "short sets of small fractions": (
        items({"uniqueItems": True}), {"l": [[(i + 1) * 5e-324 for i in range(15)] for _ in range(100)]},
    ),
    "short sets of fractions": (
        items({"uniqueItems": True}), {"l": [[i + 0.1 for i in range(15)] for _ in range(2_000)]},
    ),
    "short sets of objects that differ last": (
        items({"uniqueItems": True}),
        {"l": [[{**{f"k{j}": 1e-300 for j in range(50)}, "z": i} for i in range(15)] for _ in range(9)]},
    ),
    "sets in sets": (
        {"properties": {"l": {"uniqueItems": True, "items": {"uniqueItems": True, "items": {"uniqueItems": True}}}}},
        {"l": [[[1e-300 * (i + 1), [i]] for i in range(12)] for _ in range(12)]},
    ),
    "divisors": (items({"multipleOf": 0.01}), {"l": [1.25] * 90_000}),
}  # fmt: skip


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_check_is_recognised_fast(name: str) -> None:
    schema, arguments = HEAVY[name]
    table = SchemaCost(schema)
    text = json.dumps(arguments, separators=(",", ":")).encode()
    started = time.thread_time()
    assert table.of(arguments, text) > BUDGET
    assert time.thread_time() - started < 0.2


ROWS = [{"id": i, "name": f"row {i}", "x": 1.5} for i in range(25_000)]
ROW = {"id": {"type": "integer"}, "name": {"type": "string"}, "x": {"type": "number"}}
LIGHT: dict[str, tuple[dict[str, Any], Any]] = {
    "a mebibyte of rows": (items({"type": "object", "properties": ROW, "required": ["id"]}), {"l": ROWS}),
    "rows of nullable fields": (
        items({"properties": {k: {"anyOf": [v, {"type": "null"}]} for k, v in ROW.items()}}), {"l": ROWS},
    ),
    "rows with forty optional fields": (
        items({"properties": {**ROW, **{f"o{i}": {"type": "string"} for i in range(40)}}}), {"l": ROWS},
    ),
    "many numbers": (items({"type": "integer"}), {"l": [1] * 300_000}),
    "a mebibyte of text": ({"properties": {"s": {"type": "string", "maxLength": 2_000_000}}}, {"s": "x, {" * 250_000}),
    "a set of numbers": ({"properties": {"l": {"uniqueItems": True}}}, {"l": list(range(50_000))}),
    "a set of fractions": ({"properties": {"l": {"uniqueItems": True}}}, {"l": [i / 7 for i in range(10_000)]}),
    "rows with sets of tags": (
        items({"properties": {"tags": {"uniqueItems": True}}}), {"l": [{"tags": ["red", "green", "blue"]}] * 12_000},
    ),
    "names from a long list": (items({"enum": [f"k{i}" for i in range(4_000)]}), {"l": ["k3999"] * 5_000}),
    "a long text and a slug": ({"properties": {"s": {"pattern": "^[a-z0-9-]+$"}}}, {"s": "ab" * 50_000}),
    "rows with the number of a card": (
        items({"type": "object", "properties": ROW, "required": ["id"]}), {"l": ROWS, "note": "4111111111111111"},
    ),
    "rows that nobody describes, with long numbers": ({"type": "object"}, {"l": ROWS, "n": 2**70}),
    "rows with ids of twenty digits": (
        items({"type": "object", "properties": ROW}), {"l": [{"id": 10**19 + i, "name": "x"} for i in range(20_000)]},
    ),
    "rows with long fractions and a set of tags": (
        {"properties": {"l": {"items": {"properties": ROW}}, "t": {"uniqueItems": True}}},
        {"l": [{"id": 10**19 + i, "x": 0.30000000000000004} for i in range(15_000)], "t": [1, 2]},
    ),
    "numbers with bounds": (items({"type": "integer", "minimum": 0}), {"l": [1] * 300_000}),
    "rows beside a heavy field": (
        {"properties": {"l": {"items": {"properties": ROW}}, "c": {"enum": [{"k": i} for i in range(150)]}}},
        {"l": ROWS, "c": {"k": 3}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIGHT)
def test_a_large_harmless_call_stays_within_the_budget(name: str) -> None:
    schema, arguments = LIGHT[name]
    assert cost(schema, arguments) <= BUDGET


def test_the_cost_of_a_branch_is_charged_only_where_its_values_are() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"items": {"enum": [{"k": i} for i in range(2_000)]}}}
    }
    assert cost(schema, {"a": "x" * 100_000}) < BUDGET < cost(schema, {"b": [{"k": 1}] * 1_000})


def test_recursion_costs_what_the_arguments_are_deep() -> None:
    schema = {"$defs": {"n": {"properties": {"c": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    assert cost(schema, {"c": {"c": {"c": {}}}}) < BUDGET / 100


@pytest.mark.usefixtures("no_collections")
def test_a_table_stays_small_where_each_level_costs_more_than_the_one_above() -> None:
    schema = {
        "$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "uniqueItems": True}},
        "properties": {"l": {"$ref": "#/$defs/n"}},
    }
    started = time.thread_time()
    table = SchemaCost(schema)
    assert time.thread_time() - started < 0.2
    assert not table.is_costly
    nested: Any = [1, 2]
    for _ in range(28):
        nested = [nested]
    assert table.of({"l": nested}, json.dumps({"l": nested}).encode()) < BUDGET


def tool(schema: dict[str, Any]) -> Tool:
    return Tool.model_validate(manifests.tool("read-file", "team", inputSchema=schema))


@pytest.mark.parametrize(
    ("schema", "odd"),
    [
        (items({"enum": [{"k": i} for i in range(2_000)]}), True),
        ({"type": "object", **tower(12)}, True),
        (
            {
                "type": "object",
                "properties": {"s": {"type": "string", "pattern": "[ab]*a[ab]{4000}c", "description": "x"}},
            },
            True,
        ),
        ({"type": "object", "properties": {"s": {"type": "string", "description": "x"}}}, False),
    ],
)
def test_a_tool_whose_ordinary_calls_would_be_refused_is_remarked_on(
    schema: dict[str, Any], odd: bool
) -> None:
    lint, made = SearchLint(), tool(schema)
    lint.update(made.tool_id, made)
    found = {w.reason: w for w in lint.weaknesses(made)}
    assert (ConditionReason.SCHEMA_COSTLY in found) is odd
    if odd:
        assert found[ConditionReason.SCHEMA_COSTLY].field == "spec.inputSchema"
