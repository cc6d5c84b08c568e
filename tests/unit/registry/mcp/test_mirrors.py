"""Header fields that repeat what stands in the body."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_registry.mcp import mirrors
from toolcrib_registry.mcp.protocol import HEADER_MISMATCH, RpcError

_PLAIN = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)
_ANY = st.text(st.characters(exclude_categories=("Cs",)))
_LATIN = st.text(st.characters(max_codepoint=0xFF))
_NAME = st.text("abcXYZ-_", min_size=1, max_size=8)


def wrapped(text: str) -> str:
    """The text as a client sends it where no field can carry it."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _read(fields: list[tuple[str, str]]) -> mirrors.Fields:
    return mirrors.fields_of((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


@given(_ANY)
def test_every_text_comes_through_a_sentinel(text: str) -> None:
    assert mirrors.decoded(wrapped(text)) == text


@given(_LATIN)
def test_every_field_is_decoded_taken_as_it_is_or_refused(field: str) -> None:
    assert mirrors.decoded(field) == field or (field.startswith("=?base64?") and field.endswith("?="))


@given(_LATIN)
def test_a_sentinel_has_one_form(inner: str) -> None:
    found = mirrors.decoded(f"=?base64?{inner}?=")
    assert found is None or "\n" in inner or wrapped(found) == f"=?base64?{inner}?="


@pytest.mark.parametrize(
    "inner",
    ["YQ", "YQ=", "YQ===", "YR==", "YWI", "YWJ=", "Y Q==", "YQ==\t", "_w==", "-w==", "/w==", "é", "=", "====", "YQ==YQ=="],
)  # fmt: skip
def test_wrong_padding_alphabet_and_bits_are_refused(inner: str) -> None:
    assert mirrors.decoded(f"=?base64?{inner}?=") is None


@given(st.lists(st.tuples(st.sampled_from(["mcp-name", "mcp-method", "mcp-other"]), _PLAIN), max_size=5))
def test_a_field_is_there_once_or_not_at_all(fields: list[tuple[str, str]]) -> None:
    values = [value for name, value in fields if name == "mcp-name"]
    if len(values) > 1:
        with pytest.raises(RpcError) as refused:
            mirrors.one(_read(fields), "mcp-name")
        assert (refused.value.code, refused.value.refused) == (HEADER_MISMATCH, True)
    else:
        assert mirrors.one(_read(fields), "mcp-name") == (values[0] if values else None)


@given(_PLAIN, _PLAIN, st.booleans())
def test_a_name_is_let_in_only_if_it_is_the_one_in_the_body(name: str, shown: str, as_base64: bool) -> None:
    field = wrapped(shown) if as_base64 else shown
    fields = [("mcp-method", "tools/call"), ("mcp-name", field)]
    same = mirrors.decoded(field) == name
    try:
        mirrors.check(_read(fields), "tools/call", {"name": name})
    except RpcError:
        assert not same
    else:
        assert same


_VALUES: dict[str, Any] = {"string": _PLAIN, "integer": st.integers(), "boolean": st.booleans()}


@st.composite
def _marked(draw: Any) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]:
    """A schema, arguments that fit it, and the fields of a client that follows the rules."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    arguments: dict[str, Any] = {}
    fields: list[tuple[str, str]] = []
    for n, kind in enumerate(draw(st.lists(st.sampled_from(sorted(_VALUES)), max_size=4))):
        into, at = arguments, schema
        for step in draw(st.lists(_NAME, max_size=2)):
            at = at["properties"].setdefault(f"o{step}", {"type": "object", "properties": {}})
            into = into.setdefault(f"o{step}", {})
        at["properties"][f"p{n}"] = {"type": kind, "x-mcp-header": f"H{n}"}
        if draw(st.booleans()):
            value = into[f"p{n}"] = draw(_VALUES[kind])
            text = str(value).lower() if kind == "boolean" else str(value)
            as_base64 = draw(st.booleans()) or text.startswith("=?base64?")
            fields.append((f"mcp-param-h{n}", wrapped(text) if as_base64 else text))
    return schema, arguments, fields


@given(_marked(), st.data())
def test_what_an_honest_client_sends_is_let_in_and_what_another_changes_is_not(
    made: tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]], data: Any
) -> None:
    schema, arguments, fields = made
    found = mirrors.mirrors_of(schema)
    mirrors.check_arguments(found, arguments, _read(fields))
    if not fields:
        return
    at = data.draw(st.integers(0, len(fields) - 1))
    name, value = fields[at]
    for changed in (
        [],
        [(name, value), (name, value)],
        [(name, value + "x")],
        [(name, wrapped("other one"))],
    ):
        with pytest.raises(RpcError):
            mirrors.check_arguments(found, arguments, _read([*fields[:at], *changed, *fields[at + 1 :]]))


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "Root", "type": "string"},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "é"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A"}},
         "anyOf": [{"properties": {"b": {"type": "string", "x-mcp-header": "B"}}}]},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}},
        {"$defs": {"a": {"properties": {"b": {"type": "string", "x-mcp-header": "B"}}}}},
    ],
)  # fmt: skip
def test_a_wrong_mark_takes_all_marks_of_the_tool_away(schema: dict[str, Any]) -> None:
    assert mirrors.mirrors_of(schema) == ()


def test_a_property_may_be_called_as_a_keyword() -> None:
    schema = {"properties": {"properties": {"type": "string", "x-mcp-header": "A"}, "x-mcp-header": {"type": "string"}}}  # fmt: skip
    assert mirrors.mirrors_of(schema) == ((("properties",), "A", "string"),)


@pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x0b", "\x0c", "\x1c", "\xe2\x80\x83"])
def test_only_what_http_takes_for_white_space_is_taken_off_a_field(blank: str) -> None:
    assert mirrors.one(_read([("mcp-name", " \tx\t ")]), "mcp-name") == "x"
    assert mirrors.one(_read([("mcp-name", f"x{blank}")]), "mcp-name") == f"x{blank}"
    assert mirrors.one(_read([("mcp-name", f"{blank}x")]), "mcp-name") == f"{blank}x"
