"""Arguments: what is refused, how it is said, and that hostile ones cost nothing."""

import asyncio
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.resources.backends import Method
from toolcrib_registry.calls.arguments import Arguments, CheckedArguments
from toolcrib_registry.calls.backends.http.request import fill
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.errors import CallError, InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.validators import Compiled

LIMITS = CallBounds()


def problems(schema: dict[str, Any], arguments: Any) -> list[dict[str, str]]:
    with pytest.raises(InvalidArguments) as refused:
        Arguments(LIMITS).check("d", schema, arguments)
    errors: list[dict[str, str]] = refused.value.extra["errors"]
    return errors


def test_every_problem_is_named_with_a_pointer() -> None:
    schema = {
        "type": "object",
        "required": ["path"],
        "properties": {"n": {"type": "integer"}, "a/b": {"items": {"maximum": 3}}},
        "additionalProperties": False,
    }
    found = problems(schema, {"n": "x", "a/b": [1, 9], "zz": 1})
    assert {p["pointer"] for p in found} == {"/n", "/a~1b/1", ""}
    assert any('"path" is a required property' in p["message"] for p in found)


def test_values_are_not_repeated_in_messages() -> None:
    found = problems({"properties": {"p": {"type": "integer"}}}, {"p": "hunter2" * 10_000})
    assert "hunter2" not in str(found)
    assert all(len(p["message"]) <= 300 for p in found)


def test_the_list_of_problems_is_bounded() -> None:
    assert (
        len(problems({"additionalProperties": {"type": "integer"}}, {str(i): "x" for i in range(500)})) == 16
    )


def test_names_in_messages_are_shown_escaped() -> None:
    found = problems({"additionalProperties": False}, {"a\u202eb\x1b[31m": 1})
    assert "\u202e" not in str(found)
    assert "\x1b" not in found[0]["message"]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_depth_and_size_are_bounded() -> None:
    arguments = Arguments(LIMITS)
    arguments.check("d", {}, nested(32))
    for wrong in (nested(33), nested(100_000), {"a": "x" * (1 << 20)}):
        with pytest.raises(InvalidArguments):
            arguments.check("d", {}, wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    problems({}, {"a": value})


@pytest.mark.parametrize("arguments", [[], None, "x", 1])
def test_arguments_are_an_object(arguments: Any) -> None:
    problems({}, arguments)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*a){20}$", "^([a-z]+)*\\d$"])
def test_a_pattern_that_freezes_backtracking_engines_is_fast(pattern: str) -> None:
    started = time.monotonic()
    problems({"properties": {"s": {"type": "string", "pattern": pattern}}}, {"s": "a" * 20_000 + "!"})
    assert time.monotonic() - started < 10, "to such an engine it would take for ever"


def test_a_long_list_of_unique_items_is_checked_fast() -> None:
    schema = {"properties": {"l": {"uniqueItems": True}}}
    started = time.monotonic()
    Arguments(LIMITS).check("d", schema, {"l": [{"a": i} for i in range(20_000)]})
    assert time.monotonic() - started < 4


def test_others_have_a_turn_between_the_parts_of_a_large_check() -> None:
    async def counted() -> int:
        seen = 0

        async def other() -> None:
            nonlocal seen
            while True:
                await asyncio.sleep(0)
                seen += 1

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        before = seen
        await Arguments(LIMITS).check_in_turns("d", Compiled({}), {"l": [0] * 40_000}, "bot")
        task.cancel()
        return seen - before

    assert asyncio.run(counted()) >= 3


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "file:///etc/passwd"},
        {"properties": []},
        {"pattern": "(?=a)"},
    ],
)
def test_a_schema_that_would_fetch_or_cannot_be_evaluated_makes_the_call_fail(schema: dict[str, Any]) -> None:
    with pytest.raises(UpstreamProtocol):
        Arguments(LIMITS).check("d", schema, {})


def test_large_integers_keep_their_digits() -> None:
    assert Arguments(LIMITS).check("d", {}, {"n": 10**30}) == b'{"n":1' + b"0" * 30 + b"}"


SCALARS = st.one_of(st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))


@given(
    a=SCALARS,
    b=SCALARS,
    template=st.sampled_from(["/x/{a}", "/{a}/y", "/x/{a}{b}/z", "/x/.{a}/{b}", "/{a}.{b}"]),
)
def test_path_arguments_never_change_the_segments(a: Any, b: Any, template: str) -> None:
    try:
        path, _ = fill(template, Method.POST, CheckedArguments({"a": a, "b": b}, b""), limit=100_000)
    except CallError:
        return
    parts = urlsplit(f"http://h{path}")
    assert (parts.query, parts.fragment) == ("", "")
    assert path.isascii()
    segments = parts.path.split("/")
    assert len(segments) == len(template.split("/"))
    assert not {"", ".", ".."} & set(segments[1:])
    # and servers that decode before they route see the same
    once = [unquote(s) for s in segments[1:]]
    assert not {"", ".", ".."} & set(once)
    assert unquote(parts.path).count("/") == template.count("/")
    assert "\\" not in unquote(parts.path)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "../x", "a\\b", "a\r\nb", "\x00", " ", None, [], {}])
def test_a_path_argument_that_is_no_segment_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments) as refused:
        fill("/x/{a}", Method.GET, CheckedArguments({"a": value}, b""), limit=8_000)
    assert refused.value.extra["errors"][0]["pointer"] == "/a"


def test_a_missing_path_argument_is_named() -> None:
    with pytest.raises(InvalidArguments) as refused:
        fill("/x/{a~b}", Method.GET, CheckedArguments({}, b""), limit=8_000)
    assert refused.value.extra["errors"][0]["pointer"] == "/a~0b"


@pytest.mark.parametrize("value", [{"a": 1}, [[1]], [{"a": 1}]])
def test_a_query_takes_no_objects(value: Any) -> None:
    with pytest.raises(InvalidArguments):
        fill("/x", Method.GET, CheckedArguments({"q": value}, b""), limit=8_000)


@given(st.dictionaries(st.text(), SCALARS))
def test_query_arguments_stay_in_the_query(arguments: dict[str, Any]) -> None:
    try:
        path, body = fill("/x", Method.GET, CheckedArguments(arguments, b""), limit=100_000)
    except CallError:
        return
    assert body is None
    parts = urlsplit(f"http://h{path}")
    assert (parts.path, parts.fragment) == ("/x", "")
    assert len(parts.query.split("&")) == max(1, len(arguments))


def test_a_path_with_query_is_bounded() -> None:
    with pytest.raises(InvalidArguments, match="longer"):
        fill("/x", Method.GET, CheckedArguments({"q": "x" * 9_000}, b""), limit=8_000)
