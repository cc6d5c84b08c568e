"""What checking arguments costs: reckoned, measured, and their ratio, by class of schema.

Reckoned must never be less than measured; `python bench/run.py arguments` fails where it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from toolcrib.schemas.argument_cost import BUDGET
from toolcrib.schemas.cost import SchemaCost
from toolcrib_registry.calls.arguments import serialised
from toolcrib_registry.calls.validators import compiled

LEAST_OF, MOST_RUNS = 5, 60
WORTH = 0.1
"""Seconds of one class. The least of many runs is what checking costs; a shared processor adds up to half to one run."""

Class = tuple[str, Callable[[int], tuple[dict[str, Any], Any]]]


def run(quick: bool) -> dict[str, Any]:
    """Grow the arguments of each class to what is still checked, measure, and print; the figures."""
    figures: dict[str, Any] = {}
    print(
        f"\n{'class':48} {'size':>7} {'reckoned ms':>12} {'measured ms':>12} {'ratio':>7} {'reckoning ms':>13}"
    )
    for name, make in _classes():
        size = 1
        while size < (1 << 12 if quick else 1 << 17):
            _, arguments = make(size * 2)
            body = serialised(arguments)
            if len(body) > 1 << 20 or SchemaCost(make(1)[0]).of(arguments, body) > BUDGET:
                break
            size *= 2
        figures[name] = one = _measured(*make(size))
        row = [one["reckoned_ms"], one["measured_ms"], one["ratio"], one["reckoning_ms"]]
        print(f"{name:48} {size:7} {row[0]:12.3f} {row[1]:12.3f} {row[2]:7.1f} {row[3]:13.2f}")
    low = [name for name, one in figures.items() if one["ratio"] < 1]
    if low:
        raise AssertionError(f"reckoned less than measured: {', '.join(low)}")
    return figures


def _measured(schema: dict[str, Any], arguments: Any) -> dict[str, float]:
    table, validator, body = SchemaCost(schema), compiled(schema), serialised(arguments)
    started = time.thread_time()
    reckoned = table.of(arguments, body)
    reckoning = time.thread_time() - started
    taken: list[float] = []
    # neighbours on a core only ever add to it: what seems too low is looked at more often
    while len(taken) < LEAST_OF or (
        len(taken) < MOST_RUNS and (sum(taken) < WORTH or min(taken) > reckoned / 1e9)
    ):
        started = time.thread_time()
        validator.is_valid(arguments)
        taken.append(time.thread_time() - started)
    return {
        "reckoned_ms": reckoned / 1e6,
        "measured_ms": min(taken) * 1e3,
        "ratio": reckoned / 1e9 / max(min(taken), 1e-9),
        "reckoning_ms": reckoning * 1e3,
    }


def _items(schema: dict[str, Any], value: Any) -> Callable[[int], tuple[dict[str, Any], Any]]:
    return lambda n: ({"properties": {"l": {"items": schema}}}, {"l": [value] * n})


def _unique(value: Callable[[int], Any]) -> Callable[[int], tuple[dict[str, Any], Any]]:
    return lambda n: ({"properties": {"l": {"uniqueItems": True}}}, {"l": [value(i) for i in range(n)]})


def _sets(value: Callable[[int], Any], length: int) -> Callable[[int], tuple[dict[str, Any], Any]]:
    """Many lists of so many values, each made for itself: the same object is equal without a look."""
    schema = {"properties": {"l": {"items": {"uniqueItems": True}}}}
    return lambda n: (schema, {"l": [[value(i) for i in range(length)] for _ in range(n)]})


_FEW: dict[str, Callable[[int], Any]] = {
    "numbers": lambda i: i,
    "long numbers": lambda i: 2**52 + i,
    "numbers of twelve digits": lambda i: 10**11 + i,
    "long numbers, one half": lambda i: 2**52 + i if i else 0.5,
    "numbers, one small fraction": lambda i: 2**52 + i if i else 5e-324,
    "halves": lambda i: i + 0.5,
    "halves and numbers": lambda i: 2**52 + i if i % 2 else i + 0.5,
    "small fractions": lambda i: (i + 1) * 5e-324,
    "numbers and small fractions": lambda i: 2**52 + i if i % 2 else (i + 1) * 5e-324,
    "objects of small fractions": lambda i: {**{f"k{j}": (j + 1) * 5e-324 for j in range(8)}, "z": i},
    "lists of texts": lambda i: [*(["xy"] * 50), i],
    "texts alike": lambda i: "x" * 500 + str(i),
}


def _keys(schema: dict[str, Any]) -> Callable[[int], tuple[dict[str, Any], Any]]:
    return lambda n: (schema, {f"k{i}": 1 for i in range(n)})


def _text(pattern: str, alphabet: str, end: str = "") -> Callable[[int], tuple[dict[str, Any], Any]]:
    chosen = random.Random(1)
    return lambda n: (
        {"properties": {"s": {"pattern": pattern}}},
        {"s": "".join(chosen.choice(alphabet) for _ in range(n)) + end},
    )


def _tower(height: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"minProperties": 1}
    for _ in range(height):
        schema = {"anyOf": [{"required": ["none"]}, schema], "unevaluatedProperties": {"type": "integer"}}
    return schema


def _classes() -> Iterator[Class]:
    many = range(200)
    yield (
        "rows",
        _items({"properties": {"id": {"type": "integer"}, "n": {"type": "string"}}}, {"id": 1, "n": "x"}),
    )
    yield "integers", _items({"type": "integer"}, 1)
    yield "bounds", _items({"minimum": 0, "maximum": 9, "exclusiveMinimum": -1}, 1)
    yield "bounds in fractions", _items({"minimum": 0.5, "maximum": 9.5}, 1)
    yield "multipleOf 0.01", _items({"multipleOf": 0.01}, 1.25)
    yield "multipleOf of large numbers", _items({"multipleOf": 7}, 10**4_200 * 7)
    yield "minimum of large numbers", _items({"minimum": 7.5}, 10**4_200)
    yield "anyOf of constants", _items({"anyOf": [{"const": f"k{i}"} for i in many]}, "k199")
    yield "anyOf of integer constants", _items({"anyOf": [{"const": i} for i in many]}, 199)
    yield (
        "oneOf of objects",
        _items({"oneOf": [{"properties": {"k": {"const": i}}, "required": ["k"]} for i in many]}, {"k": 199}),
    )
    yield (
        "if then else",
        _items(
            {
                "allOf": [
                    {"if": {"minimum": i}, "then": {"maximum": 999}, "else": {"type": "integer"}}
                    for i in many
                ]
            },
            1,
        ),
    )
    yield "enum of names", _items({"enum": [f"k{i}" for i in many]}, "k199")
    yield "enum of integers", _items({"enum": [*many, "x"]}, 199)
    yield "enum of fractions", _items({"enum": [i + 0.5 for i in many]}, 199.5)
    yield "enum of objects", _items({"enum": [{"k": i} for i in many]}, {"k": 199})
    yield (
        "enum of alike objects",
        _items(
            {"enum": [{"a": "x" * 20, "b": [1, 2, 3, i]} for i in many]}, {"a": "x" * 20, "b": [1, 2, 3, 199]}
        ),
    )
    yield "enum, large number", _items({"enum": [1, 2, 3, "x"]}, 10**4_200)
    yield "uniqueItems, numbers", _unique(lambda i: i)
    yield "uniqueItems, fractions", _unique(lambda i: i + 0.5)
    for name, few in _FEW.items():
        yield f"uniqueItems, fifteen {name}", _sets(few, 15)
        yield f"uniqueItems, sixteen {name}", _sets(few, 16)
    yield "uniqueItems, objects", _unique(lambda i: {"a": i, "b": [i, "x"]})
    yield "uniqueItems, 2^60", _unique(lambda i: 2**60 + i)
    yield "uniqueItems, 2^64", _unique(lambda i: 2**64 + i)
    yield "uniqueItems, objects of 2^64", _unique(lambda i: {"a": [1, 2, 3], "b": 2**64 + i})
    yield (
        "contains",
        lambda n: ({"properties": {"l": {"not": {"contains": {"type": "null"}}}}}, {"l": [1] * n}),
    )
    yield (
        "nested contains",
        lambda n: (
            {"properties": {"l": {"not": {"contains": {"contains": {"contains": {"type": "null"}}}}}}},
            {"l": [[[1] * 9] * 9] * n},
        ),
    )
    yield "additionalProperties", _keys({"additionalProperties": {"type": "integer"}})
    yield "patternProperties", _keys({"patternProperties": {f"q{i}z?$": {} for i in many}})
    yield "propertyNames", _keys({"propertyNames": {"pattern": "^[a-z0-9]{1,20}$", "maxLength": 20}})
    yield (
        "required and dependent",
        _items(
            {"required": ["k0"], "dependentRequired": {f"k{i}": ["k0"] for i in many}},
            {f"k{i}": 1 for i in many},
        ),
    )
    yield (
        "dependentSchemas",
        _items(
            {"dependentSchemas": {f"k{i}": {"minProperties": 1} for i in many}}, {f"k{i}": 1 for i in many}
        ),
    )
    yield (
        "unevaluatedProperties",
        _keys({"allOf": [{"properties": {"k1": {}}}] * 20, "unevaluatedProperties": True}),
    )
    yield "tower of unevaluatedProperties", _keys(_tower(8))
    yield (
        "recursion",
        lambda n: (
            {"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "properties": {"l": {"$ref": "#/$defs/n"}}},
            {"l": [[[1, [2]]]] * n},
        ),
    )
    yield "pattern, many states", _text("[ab]*a[ab]{4000}c", "ab", "bc")
    yield "pattern, lazy", _text("[ab]*?a[ab]{2500}?c", "ab", "bc")
    yield "pattern, optional pieces", _text("(?:[ab]{0,2})*a(?:[ab]{0,2}){200}d", "a", "bd")
    yield "pattern, Unicode", _text("[^c]*é[^c]{300}c", "éa日", "dc")
    yield "pattern, slug", _text("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "abc-1")
    yield "pattern, short texts", _items({"pattern": "^(.*a){10}$"}, "ab" * 20)
