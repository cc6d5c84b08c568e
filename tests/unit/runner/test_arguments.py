"""Whether arguments fit a tool's discovered parameters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_runner import arguments
from toolcrib_runner.discovery import DiscoveredTool, Parameter
from toolcrib_runner.errors import InvalidArguments

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("types", "value", "fits"),
    [
        (("string",), "x", True), (("string",), 1, False), (("integer",), 1, True), (("integer",), 1.0, True),
        (("integer",), True, False), (("number",), 1, True), (("number",), 1.5, True), (("number",), "1", False),
        (("boolean",), False, True), (("boolean",), 0, False), (("array",), [1], True), (("array",), {}, False),
        (("object",), {"a": 1}, True), (("object",), [], False), (("string", "integer"), 3, True),
        (("string", "integer"), 3.5, False), ((), object, False), ((), 3, True), (("unheard-of",), 3, True),
        (("string",), None, True),
    ],
)  # fmt: skip
def test_a_value_fits_its_parameters_type(types: tuple[str, ...], value: Any, fits: bool) -> None:
    tool = DiscoveredTool("t", "/t", parameters=(Parameter("a", types),))
    if fits:
        arguments.check(tool, {"a": value})
    else:
        with pytest.raises(InvalidArguments):
            arguments.check(tool, {"a": value})


def test_all_problems_of_the_arguments_are_told_at_once() -> None:
    tool = DiscoveredTool(
        "t", "/t", parameters=(Parameter("a", ("string",), required=True), Parameter("b", ("integer",)))
    )
    with pytest.raises(InvalidArguments) as refused:
        arguments.check(tool, {"b": "x", "c": 1})
    assert len(refused.value.problems) == 3


@given(json_values)
def test_whatever_json_can_carry_passes_where_any_type_will_do(value: Any) -> None:
    arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": value})


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud800": 1}])
def test_text_that_is_not_unicode_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="not valid Unicode"):
        arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": value})


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(InvalidArguments, match="nested deeper"):
        arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": deep})
