"""Schemas that somebody else wrote: unsafe ones are refused in bounded time, honest ones pass and compile."""

import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from suites import examples
from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas.patterns import weight
from toolcrib.schemas.safety import MAX_BYTES, check, is_linear

EXAMPLES = Path(__file__).parents[4] / "examples"
DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def nested(levels: int, key: str = "not") -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {key: schema}
    return schema


def laughs(n: int, *, descent: bool) -> dict[str, Any]:
    """Every definition refers to the next one twice: 2**n evaluations, in place or one level down."""
    defs: dict[str, Any] = {f"a{n}": {"type": "string"}}
    for i in range(n):
        twice = [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]
        below = {"additionalProperties": twice[0], "patternProperties": {".": twice[1]}}
        defs[f"a{i}"] = below if descent else {"allOf": twice}
    return {"$defs": defs, "$ref": "#/$defs/a0"}


def chain(n: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(n)}
    return {"$defs": {**defs, f"a{n}": {}}, "properties": {"x": {"$ref": "#/$defs/a0"}}}


UNSAFE: dict[str, Any] = {
    "no object": [],
    "a string": "object",
    "true alone": True,
    "arguments that are a list": {"type": "array"},
    "arguments of two types": {"type": ["object", "null"]},
    "a reference by http": {"$ref": "http://attacker.example/schema"},
    "a reference by https": {"properties": {"a": {"$ref": "https://attacker.example/schema#/a"}}},
    "a reference to a file": {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "a relative reference": {"$ref": "other.json"},
    "a reference by protocol-relative address": {"$ref": "//attacker.example/x"},
    "a reference to an anchor": {"$ref": "#there", "$defs": {"a": {"$anchor": "there"}}},
    "a reference that is no string": {"$ref": {"a": 1}},
    "an empty reference": {"$ref": ""},
    "a reference to nowhere": {"$ref": "#/$defs/missing"},
    "a reference past the end of a list": {"anyOf": [{}], "$ref": "#/anyOf/1"},
    "a reference from the end of a list": {"anyOf": [{}], "$ref": "#/anyOf/-1"},
    "a reference with a number that is none": {"anyOf": [{}], "$ref": "#/anyOf/0x0"},
    "a reference with a padded number": {"anyOf": [{}, {}], "$ref": "#/anyOf/01"},
    "a reference with a huge number": {"anyOf": [{}, {}], "$ref": "#/anyOf/" + "9" * 5_000},
    "a reference to a string": {"title": "a", "$ref": "#/title"},
    "a dynamic reference elsewhere": {"$dynamicRef": "https://attacker.example/#meta"},
    "an anchor that is no name": {"$defs": {"a": {"$anchor": "#there"}}},
    "a dynamic anchor": {"$dynamicAnchor": "meta"},
    "a recursive reference elsewhere": {"$recursiveRef": "http://attacker.example"},
    "a base address": {"$id": "https://attacker.example/"},
    "a base address inside": {"properties": {"a": {"$id": "http://attacker.example/b", "$ref": "#/c"}}},
    "a base address that is a fragment": {"$defs": {"a": {"$id": "#b"}}},
    "an old base address": {"$schema": DRAFT_04, "properties": {"a": {"id": "x", "$ref": "#/b"}}},
    "a vocabulary": {"$vocabulary": {"https://attacker.example/v": True}},
    "an unknown dialect": {"$schema": "https://attacker.example/dialect"},
    "a dialect that is no string": {"$schema": 7},
    "a second dialect": {"properties": {"a": {"$schema": DRAFT_04}}},
    "an unsafe schema where a reference leads": {"default": {"pattern": "(?=a)"}, "$ref": "#/default"},
    "an unsafe schema below an unknown word": {
        "x-hidden": {"a": {"$ref": "http://attacker.example"}}, "allOf": [{"$ref": "#/x-hidden/a"}],
    },
    "an unsafe schema behind percent signs": {
        "%24x": {}, "$x": {"$ref": "file:///etc/passwd"}, "$ref": "#/%24x",
    },
    "a reference to itself": {"$ref": "#"},
    "a cycle of two": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "a cycle through allOf": {"$defs": {"a": {"allOf": [{"anyOf": [{"$ref": "#/$defs/a"}]}]}}},
    "a cycle through if": {"if": {"$ref": "#"}},
    "a cycle through dependencies": {"dependencies": {"a": {"$ref": "#"}}},
    "references that multiply in place": laughs(24, descent=False),
    "references that multiply by descent": laughs(24, descent=True),
    "a long chain of references": chain(400),
    "a chain longer than the stack": chain(1_500),
    "too deep": nested(40),
    "deeper than the stack": nested(100_000),
    "too many nodes": {"enum": list(range(10_001))},
    "too long": {"description": "x" * MAX_BYTES},
    "look-ahead": {"properties": {"a": {"pattern": "^(?=.*a)(?=.*b)"}}},
    "look-behind": {"properties": {"a": {"pattern": "(?<!a)b"}}},
    "a back reference": {"properties": {"a": {"pattern": r"(a+)\1"}}},
    "a huge repeat": {"properties": {"a": {"pattern": "((a{1000}){1000}){1000}"}}},
    "many large patterns": {
        "properties": {f"p{i}": {"pattern": rf"\w{{{150 + i}}}"} for i in range(100)}
    },
    "a broken pattern": {"properties": {"a": {"pattern": "["}}},
    "a long pattern": {"properties": {"a": {"pattern": "a" * 1_025}}},
    "a pattern that is no string": {"properties": {"a": {"pattern": 5}}},
    "look-ahead for names": {"patternProperties": {"(?!x)y": {}}},
    "look-ahead of names": {"propertyNames": {"pattern": "(?!x)y"}},
    "look-ahead in items": {"properties": {"a": {"items": {"pattern": "(?!x)y"}}}},
    "look-ahead in contentSchema": {"properties": {"a": {"contentSchema": {"pattern": "(?!x)y"}}}},
    "look-ahead among old items": {"$schema": DRAFT_07, "items": [{"pattern": "(?!x)y"}]},
    "patternProperties that are a number": {"patternProperties": 5},
    "patternProperties that are a list": {"patternProperties": ["a"]},
    "allOf that is a number": {"allOf": 5, "$ref": "#/$defs/a", "$defs": {"a": {}}},
    "allOf that is an object": {"allOf": {"a": {"$ref": "http://attacker.example"}}},
    "allOf that is empty": {"allOf": []},
    "prefixItems that are an object": {"prefixItems": {}, "$ref": "#/$defs/a", "$defs": {"a": {}}},
    "properties that are a list": {"properties": [{"pattern": "(?=a)"}]},
    "properties that are null": {"properties": None},
    "$defs that is a string": {"$defs": "a"},
    "a subschema that is null": {"properties": {"a": None}},
    "a subschema that is a number": {"properties": {"a": 5}},
    "items that are a number": {"items": 5},
    "items that are a list in the new dialect": {"items": [{}]},
    "an unknown type": {"properties": {"a": {"type": "text"}}},
    "the type null by value": {"properties": {"a": {"type": None}}},
    "no types": {"properties": {"a": {"type": []}}},
    "a type twice": {"properties": {"a": {"type": ["string", "string"]}}},
    "a list for a type's name": {"properties": {"a": {"type": [["string"]]}}},
    "required as in draft 3": {"properties": {"a": {"required": True}}},
    "required twice": {"required": ["a", "a"]},
    "a negative length": {"properties": {"a": {"minLength": -1}}},
    "a bound that is a string": {"properties": {"a": {"minimum": "1"}}},
    "a bound that is true": {"properties": {"a": {"exclusiveMinimum": True}}},
    "a multiple of nothing": {"properties": {"a": {"multipleOf": 0}}},
    "an enum that is no list": {"properties": {"a": {"enum": "a"}}},
    "a number that JSON lacks": {"properties": {"a": {"maximum": float("inf")}}},
    "not a number": {"properties": {"a": {"default": float("nan")}}},
    "half a character": {"description": "\ud800"},
    "bytes": {"description": b"a"},
}  # fmt: skip


@pytest.mark.parametrize("schema", UNSAFE.values(), ids=UNSAFE.keys())
def test_an_unsafe_schema_is_refused_within_bounded_time(schema: Any) -> None:
    started = time.process_time()

    with pytest.raises(SchemaUnsafe) as refused:
        check(schema)

    assert time.process_time() - started < 3
    assert str(refused.value).startswith("/")
    assert len(str(refused.value)) < 500


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "string"},
                "left": {"$ref": "#/$defs/node"},
                "right": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "additionalProperties": False,
        }
    },
}
HONEST: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no parameters": {"type": "object"},
    "a tree": TREE,
    "a schema that is recursive as a whole": {"type": "object", "properties": {"next": {"$ref": "#"}}},
    "one definition used often": {
        "properties": {f"p{i}": {"$ref": "#/definitions/money"} for i in range(200)},
        "definitions": {"money": {"type": "object", "properties": {"amount": {"type": "number"}}}},
    },
    "a property named $ref": {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
    "a property named id": {"properties": {"id": {"type": "string"}, "pattern": {"type": "string"}}},
    "words that look unsafe in values": {
        "properties": {"a": {"const": {"$ref": "http://x"}, "default": {"pattern": "(?="}, "enum": [{"$id": 5}]}},
    },
    "escaped names": {"properties": {"a/b~c": {}, "d e": {}}, "allOf": [{"$ref": "#/properties/a~1b~0c"},
                      {"$ref": "#/properties/d%20e"}]},
    "a reference into a list": {"anyOf": [{"type": "object"}], "properties": {"a": {"$ref": "#/anyOf/0"}}},
    "old tuples": {"$schema": DRAFT_07, "properties": {"a": {"items": [{"type": "string"}, {}]}}},
    "an old bound": {"$schema": DRAFT_04, "properties": {"a": {"minimum": 0, "exclusiveMinimum": True}}},
    "a word of another dialect": {"id": "person", "properties": {"a": {"nullable": True, "x-order": 1}}},
    "named patterns": {"patternProperties": {"^[a-z]{1,32}$": {"type": "string"}}, "additionalProperties": False},
    "common patterns": {"properties": {
        "uuid": {"pattern": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"},
        "mail": {"pattern": r"^[\w.+-]+@[\w-]+\.[\w.-]+$"},
        "date": {"pattern": r"^\d{4}-\d{2}-\d{2}$"},
    }},
    "anchors that nothing refers to": {
        "$defs": {"a": {"$anchor": "there", "type": "string"}, "b": {"$anchor": "there"}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    },
    "whole numbers written as fractions": {"properties": {"a": {"minLength": 1.0}}},
    "conditions": {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": True},
}  # fmt: skip


@pytest.mark.parametrize("schema", HONEST.values(), ids=HONEST.keys())
def test_an_honest_schema_is_accepted_and_compiles(schema: dict[str, Any]) -> None:
    check(schema)

    jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions())


def test_every_schema_of_the_examples_is_accepted() -> None:
    found = 0
    for path in sorted(EXAMPLES.glob("**/*.yaml")):
        for manifest in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            if manifest and manifest.get("kind") == "Tool":
                check(manifest["spec"].get("inputSchema", {"type": "object"}))
                found += 1

    assert found > 2_600


def test_a_result_need_not_be_an_object() -> None:
    check({"type": "array", "items": {"type": "string"}}, arguments=False)

    with pytest.raises(SchemaUnsafe, match=r"^/items"):
        check({"type": "array", "items": 5}, arguments=False)


def test_the_message_points_at_the_place() -> None:
    with pytest.raises(SchemaUnsafe, match=r"^/properties/a~1b/anyOf/1/pattern: look-around"):
        check({"properties": {"a/b": {"anyOf": [{}, {"pattern": "(?=a)"}]}}})


def test_the_largest_patterns_that_pass_compile_quickly() -> None:
    started = time.process_time()

    assert is_linear(r"[\w-]{200}")
    assert not is_linear(r"(\w{1000}){1000}")
    assert not is_linear(r"[\w\d]{99999}")

    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("pattern", "atoms"),
    [
        ("abc", 3),
        ("a{3}", 3),
        ("a{2,5}b", 6),
        ("(ab){10}", 30),
        ("((a{9}){9}){9}", 900),
        ("a{3", 3),
        (r"\{3}", 3),
    ],
)
def test_repeats_multiply_what_they_stand_behind(pattern: str, atoms: int) -> None:
    assert weight(pattern) == pytest.approx(atoms, rel=0.15)


WORDS = st.sampled_from(
    ["type", "properties", "items", "allOf", "anyOf", "$ref", "$defs", "definitions", "pattern", "required", "enum",
     "minimum", "maxLength", "dependencies", "patternProperties", "additionalProperties", "$schema", "format", "if",
     "not", "const", "default", "prefixItems", "contains", "dependentRequired", "uniqueItems", "exclusiveMinimum"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.sampled_from(["object", "string", "#", "#/$defs/a", "#/properties/a", "http://x", "a+", "(?=a)", DRAFT_07]),
)  # fmt: skip
NOISE = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(WORDS, st.just("a")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, NOISE, max_size=4))
@examples(600)
def test_whatever_is_accepted_compiles_and_nothing_else_is_raised(schema: dict[str, Any]) -> None:
    try:
        check(schema, arguments=False)
    except SchemaUnsafe:
        return

    jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions())
