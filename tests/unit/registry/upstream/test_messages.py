"""Messages of servers are read strictly; numbers keep their digits."""

from typing import Any

import pytest

from toolcrib.schemas import header_marks
from toolcrib_registry.upstream import header_fields, messages
from toolcrib_registry.upstream.errors import AnswerBroken, RefusedByRpc
from toolcrib_registry.upstream.messages import Notification, Result, ServerRequest


def test_each_kind_of_message_is_told_apart() -> None:
    assert messages.read({"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}, 3) == Result({"a": 1})
    assert messages.read({"jsonrpc": "2.0", "method": "n", "params": []}, 3) == Notification("n", {})
    assert messages.read({"jsonrpc": "2.0", "method": "ping", "id": "x"}, 3) == ServerRequest("x", "ping")
    error = messages.read({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "m"}}, 3)
    assert isinstance(error, RefusedByRpc)
    assert (error.code, error.message) == (-32700, "m")


@pytest.mark.parametrize(
    "value",
    [
        7, None, [], {}, {"id": 3, "result": {}}, {"jsonrpc": "2.0", "id": 4, "result": {}},
        {"jsonrpc": "2.0", "id": 3}, {"jsonrpc": "2.0", "id": 3, "error": {"code": "x"}},
        {"jsonrpc": "2.0", "id": [], "method": "ping"}, {"jsonrpc": "2.0", "id": 4, "error": {"code": 1}},
    ],
)  # fmt: skip
def test_what_is_no_message_for_us_is_refused(value: Any) -> None:
    with pytest.raises(AnswerBroken):
        messages.read(value, 3)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b"[" * 5_000, b"\xff", b"[12345678901234567890123, NaN]"]
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(AnswerBroken):
        messages.parsed(text)


def test_large_integers_keep_their_digits_both_ways() -> None:
    value = {"n": 2**80, "ü": "größe"}

    assert messages.parsed(messages.encoded(value)) == value


@pytest.mark.parametrize(
    ("text", "field"),
    [("", ""), ("eu-1", "eu-1"), ("a b", "a b"), (" a", "=?base64?IGE=?="), ("é", "=?base64?w6k=?="),
     ("a\nb", "=?base64?YQpi?="), ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=")],
)  # fmt: skip
def test_values_are_wrapped_where_a_field_cannot_carry_them(text: str, field: str) -> None:
    assert header_fields.wrapped(text) == field


def test_fields_repeat_what_is_there_and_a_wrong_mark_has_none() -> None:
    schema = {
        "properties": {
            "a": {"type": "boolean", "x-mcp-header": "A"},
            "b": {"properties": {"c": {"type": "integer", "x-mcp-header": "C"}}},
            "d": {"type": "string", "x-mcp-header": "D"},
        }
    }
    mirrors = header_marks.marks(schema)

    assert mirrors is not None
    assert header_fields.fields_of(mirrors, {"a": True, "b": {"c": 7}}) == {
        "mcp-param-a": "true", "mcp-param-c": "7",
    }  # fmt: skip
    assert header_marks.marks({"properties": {"a": {"type": "object", "x-mcp-header": "A"}}}) is None
