"""No arguments within the limits hold the process longer than the budget, whatever schema `schemas.check` accepted."""

import gc
import importlib
import math
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from suites import examples
from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas import safety as schema_safety
from toolcrib.schemas.argument_cost import BUDGET
from toolcrib.schemas.cost import SchemaCost
from toolcrib_registry.calls.arguments import Arguments, serialised
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.errors import ArgumentsTooComplex, InvalidArguments
from toolcrib_registry.calls.validators import Validators, compiled

MOST = 0.1
"""Seconds: twice the budget. The reckoning in Python, the check, and the first error."""


def taken(schema: dict[str, Any], arguments: Any) -> tuple[str, float]:
    """How a call ended, and the seconds of processor time that it took on the event loop: its schema is compiled.

    The least of up to ten calls where one takes too long: neighbours on a core only ever add to it.
    """
    outcome, seconds = once(schema, arguments)
    for _ in range(9):
        if seconds < MOST:
            break
        again, more = once(schema, arguments)
        assert again == outcome
        seconds = min(seconds, more)
    return outcome, seconds


def once(schema: dict[str, Any], arguments: Any) -> tuple[str, float]:
    checked = Arguments(CallBounds(), validators := Validators())
    validators.of("d", lambda: schema)
    gc.disable()  # a collection goes through all that the test runner holds
    started = time.thread_time()
    try:
        checked.check("d", schema, arguments)
        outcome = "fits"
    except ArgumentsTooComplex:
        outcome = "too complex"
    except InvalidArguments as error:
        named = error.extra["errors"] or "larger than" in error.detail
        outcome = "invalid" if named else "invalid, and nobody knows why"
    finally:
        seconds = time.thread_time() - started
        gc.enable()
    return outcome, seconds


PATTERNS = st.sampled_from(
    ["[ab]*a[ab]{4000}c", "(a|b)*a(a|b){200}$", "^[a-z]+$", "(.*a){20}$", "[^c]*a[^c]{300}c"]
)
VALUES = st.one_of(
    st.integers(-3, 3), st.just(10**400), st.just(2**64 + 1), st.just(0.5), st.sampled_from(["a", "ab" * 50, ""]),
    st.none(), st.booleans(), st.sampled_from([1.7e308, 5e-324, 2.2250738585072014e-308, 1.2345678901234567]),
    st.builds(lambda n: {"a": n}, st.integers(0, 3)), st.builds(lambda n: [n] * 3, st.integers(0, 3)),
)  # fmt: skip
LEAVES = st.one_of(
    st.sampled_from([{}, {"type": "integer"}, {"minLength": 1}, {"minimum": 0.5}, {"multipleOf": 0.01}]),
    st.builds(lambda p: {"pattern": p}, PATTERNS),
    st.builds(lambda n: {"enum": [{"a": i} for i in range(n)]}, st.integers(1, 600)),
    st.builds(lambda n: {"enum": [i + 0.5 for i in range(n)]}, st.integers(1, 1_500)),
    st.builds(lambda n: {"anyOf": [{"const": f"k{i}"} for i in range(n)]}, st.integers(1, 1_000)),
    st.just({"uniqueItems": True}),
    st.just({"$ref": "#/$defs/r"}),
)


FRACTIONS = st.sampled_from([0.1, 0.01, 5e-324, 1e-300, 1.7e308])
BOXES = st.sampled_from([[], {}, [1], {"a": None}])
SCALARS = st.sampled_from(
    ["x", None, True, 7, 1.7e308, 5e-324, 1e-100, 2.2250738585072014e-308, 1.2345678901234567, 10**300]
)
PAIRED = st.one_of(
    st.builds(lambda box, n, last: {"enum": [box] * n + [last]}, BOXES, st.integers(1_000, 9_000), SCALARS),
    st.builds(lambda n, k: {"allOf": [{"multipleOf": n}] * k}, FRACTIONS, st.integers(1, 20)),
    st.builds(lambda n, k: {"allOf": [{"minimum": n}] * k}, FRACTIONS, st.integers(1, 40)),
    st.builds(lambda n, k: {"not": {"enum": [n] * k + ["x"]}}, FRACTIONS, st.integers(1, 40)),
)
"""Cheap for most values, and dear for a scalar that is no option, or a fraction that takes many digits."""


KEYWORDS = ["items", "contains", "not", "additionalProperties", "propertyNames", "unevaluatedItems"]


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda name, parts: {name: parts}, st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda s, n: {"anyOf": [s] * n}, inner, st.integers(1, 20)),
        st.builds(lambda name, s: {name: s}, st.sampled_from(KEYWORDS), inner),
        st.builds(lambda s, t: {"allOf": [s], "unevaluatedProperties": t}, inner, inner),
        st.builds(lambda s, t: {"if": s, "then": t, "properties": {"a": s}}, inner, inner),
        st.builds(lambda p, s: {"patternProperties": {p: s}}, PATTERNS, inner),
        st.builds(lambda s: {"dependentSchemas": {"a": s}, "prefixItems": [s]}, inner),
    )  # fmt: skip


SCHEMAS = st.builds(
    lambda top, referenced: {"properties": {"l": top, "o": top}, "$defs": {"r": referenced}, **top},
    st.recursive(LEAVES, grown, max_leaves=8),
    st.recursive(st.sampled_from([{"minimum": 0}, {"items": {"$ref": "#/$defs/r"}}]), grown, max_leaves=4),
)
MANY = st.sampled_from([1, 10, 100, 1_000, 5_000])


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a failing case: rather that than none
@settings(
    examples(60),
    # shrinking would repeat what takes long
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(SCHEMAS, VALUES, MANY, st.integers(0, 60))
def test_generated_schemas_and_arguments_are_refused_fast_or_checked_within_the_budget(
    schema: dict[str, Any], value: Any, many: int, depth: int
) -> None:
    arguments = {
        "l": [value] * many,
        "o": {f"k{i}": value for i in range(many)},
        "d": [[[value] * 5] * 5] * depth,
        "s": "ab" * many,
    }
    try:
        schema_safety.check(schema)
    except SchemaUnsafe:
        return
    outcome, seconds = taken(schema, arguments)
    assert outcome in ("fits", "invalid", "too complex")
    assert seconds < MOST


@settings(
    examples(40),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(PAIRED, SCALARS, st.booleans())
def test_scalars_beside_every_kind_of_option_are_refused_or_checked_within_what_was_reckoned(
    schema: dict[str, Any], value: Any, negated: bool
) -> None:
    """Not at once: as many as are still reckoned to fit, since that is where too low a price shows."""
    schema = {"properties": {"l": {"items": {"anyOf": [schema, {}]} if negated else schema}}}
    table, many = SchemaCost(schema), 1
    while many < 120_000:
        arguments = {"l": [value] * (many * 2)}
        body = serialised(arguments)
        if len(body) > 1 << 20 or table.of(arguments, body) > BUDGET:
            break
        many *= 2
    arguments = {"l": [value] * many}
    reckoned = table.of(arguments, serialised(arguments))
    validator = compiled(schema)
    # neighbours on a core only ever add to it, some for a second or two
    seconds = math.inf
    for _ in range(60):
        seconds = min(seconds, timed(validator, arguments))
        if seconds * 1e9 <= reckoned:
            break
    assert seconds * 1e9 <= reckoned


def timed(validator: Any, arguments: Any) -> float:
    """Seconds of processor time that one check takes."""
    gc.disable()
    try:
        started = time.thread_time()
        validator.is_valid(arguments)
        return time.thread_time() - started
    finally:
        gc.enable()


def items(schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"l": {"items": schema}}}


def test_one_failed_item_does_not_build_every_error_of_every_branch() -> None:
    """2.7 KB of arguments took 9.7 s and 510 MB."""
    schema = items({"anyOf": [{"const": f"k{i}"} for i in range(2_000)]})
    tracemalloc.start()
    outcome, seconds = once(schema, {"l": ["x"] * 300})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome == "invalid"
    assert seconds < 2.0, "tracing memory makes it slower"
    assert peak < 64 << 20


def test_the_first_error_has_its_place_also_where_the_arguments_are_many() -> None:
    schema = items({"anyOf": [{"type": "string"}, {"type": "null"}]})
    with pytest.raises(InvalidArguments) as refused:
        Arguments(CallBounds()).check("d", schema, {"l": ["x"] * 5_000 + [1]})
    assert [e["pointer"] for e in refused.value.extra["errors"]] == ["/l/5000"]
    assert "alternatives" in refused.value.extra["errors"][0]["message"]


def test_a_refused_check_says_what_to_do() -> None:
    schema = items({"enum": [{"k": i} for i in range(2_000)]})
    with pytest.raises(ArgumentsTooComplex) as refused:
        Arguments(CallBounds()).check("d", schema, {"l": [{"k": 1}] * 5_000})
    assert refused.value.code == "arguments_too_complex"
    assert "50 ms" in refused.value.detail
    assert "fewer or shorter" in refused.value.detail


@pytest.mark.slow
def test_what_is_reckoned_is_never_less_than_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(Path(__file__).parents[3] / "bench")
    sys.path.insert(0, folder)
    try:
        figures = importlib.import_module("arguments").run(quick=True)
    finally:
        sys.path.remove(folder)
    assert len(figures) > 30
    assert "reckoned ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    "unit", ["1", "1e", "1.", "9" * 15 + ".", "1e+1", "\\", '"', '\\"', "e", "0" * 17, "-1 "]
)
@pytest.mark.parametrize("schema", [{"uniqueItems": True}, {"enum": [[0.5], ["x"]]}])
def test_reckoning_takes_no_longer_for_long_rows_of_digits_and_marks(schema: Any, unit: str) -> None:
    text = unit * (400_000 // len(unit))

    outcome, seconds = taken({"type": "object", "properties": {"l": schema}}, {"l": [text]})

    assert outcome in ("fits", "invalid", "too complex")
    assert seconds < MOST
