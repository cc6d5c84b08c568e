"""Reading discovery answers: every field is checked, and one bad tool hides no other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_runner import discovery
from toolcrib_runner.discovery import DiscoveredTool, Parameter, Rediscovery
from toolcrib_runner.errors import RegistryAnswerInvalid

ENTRY = {
    "name": "t",
    "endpoint": "/tools/t",
    "scopes": ["t:use"],
    "description": "d",
    "parameters": {"a": {"type": "string|integer", "description": "x", "required": True}},
    "returns": "r",
    "host": "h",
    "port": 80,
}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def document(*tools: Any) -> dict[str, Any]:
    return {"authenticated": True, "scopes": ["t:use"], "tools": list(tools)}


def test_a_discovery_answer_is_read_field_by_field() -> None:
    found = discovery.read(document(ENTRY), '"e"')
    assert found.tools == (
        DiscoveredTool(
            "t",
            "/tools/t",
            "d",
            (Parameter("a", ("string", "integer"), "x", True),),
            ("t:use",),
            "r",
            "h",
            80,
        ),
    )
    assert (found.authenticated, found.scopes, found.etag, found.skipped) == (True, ("t:use",), '"e"', 0)


@given(st.sampled_from(sorted(ENTRY)), json_values)
def test_no_field_of_an_entry_can_break_the_reading(field: str, value: Any) -> None:
    found = discovery.read(document({**ENTRY, field: value}, {**ENTRY, "name": "good"}))
    assert "good" in {tool.name for tool in found.tools}
    assert len(found.tools) + found.skipped == 2


@pytest.mark.parametrize("endpoint", ["", "tools/t", "https://evil/x", "/tools/t\r\nx: y", "/a b", 7])
def test_an_endpoint_that_is_no_path_is_not_called(endpoint: Any) -> None:
    assert discovery.read(document({**ENTRY, "endpoint": endpoint})).tools == ()


@pytest.mark.parametrize("answer", [None, [], "x", {}, {"tools": {}}])
def test_an_answer_that_is_no_discovery_is_an_error(answer: Any) -> None:
    with pytest.raises(RegistryAnswerInvalid):
        discovery.read(answer)


def test_a_rediscovery_is_true_only_if_something_changed() -> None:
    before = {"a": DiscoveredTool("a", "/a"), "b": DiscoveredTool("b", "/b")}
    assert not discovery.compare(before, before)
    changed = discovery.compare(before, {"a": DiscoveredTool("a", "/other"), "c": DiscoveredTool("c", "/c")})
    assert changed == Rediscovery(gained=("c",), lost=("b",), unchanged=("a",), changed=("a",))
    assert changed
