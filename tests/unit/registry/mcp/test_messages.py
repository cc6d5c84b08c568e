"""JSON-RPC messages as they come and go."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib_registry.mcp import messages
from toolcrib_registry.mcp.messages import RpcNotification, RpcRequest, RpcResponse
from toolcrib_registry.mcp.protocol import INVALID_REQUEST, RpcError

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | _JSON,
        "id": st.integers(-5, 5) | _JSON,
        "method": st.sampled_from(["ping", "tools/list"]) | _JSON,
        "params": st.dictionaries(_TEXT, _JSON, max_size=3) | _JSON,
        "result": _JSON,
        "error": _JSON,
    },
)


@given(_FIELDS | _JSON)
def test_every_json_value_is_a_message_or_refused_with_400(value: Any) -> None:
    try:
        found = messages.read(value)
    except RpcError as error:
        refused = json.loads(messages.failed(messages.id_of(value), error))
        if refused["error"]["code"] != INVALID_REQUEST or not error.refused:
            raise
        assert refused["id"] is None or refused["id"] == value["id"]
        return
    assert value["jsonrpc"] == "2.0"
    match found:
        case RpcRequest():
            assert (found.id, found.method) == (value["id"], value["method"])
            assert type(found.id) in (int, str)
            assert found.params == (value.get("params") or {})
        case RpcNotification():
            assert "id" not in value
            assert found.method == value["method"]
        case RpcResponse():
            assert "result" in value or "error" in value
            assert value.get("method") is None


@given(
    st.integers(-(2**63) + 1, 2**63 - 1) | st.text(st.characters(exclude_categories=("Cs",)), max_size=512)
)
def test_an_id_goes_back_as_it_came(id_: int | str) -> None:
    found = messages.read({"jsonrpc": "2.0", "id": id_, "method": "ping"})
    assert isinstance(found, RpcRequest)
    answer = json.loads(messages.answered(found.id, b'{"a":1}'))
    assert (type(answer["id"]), answer) == (type(id_), {"jsonrpc": "2.0", "id": id_, "result": {"a": 1}})


@pytest.mark.parametrize("id_", [None, True, False, 1.0, 2**63, -(2**63), "x" * 513, [], {}])
def test_what_is_no_id(id_: Any) -> None:
    with pytest.raises(RpcError):
        messages.read({"jsonrpc": "2.0", "id": id_, "method": "ping"})
    assert messages.id_of({"id": id_}) is None


def test_an_error_has_data_only_where_there_is_some() -> None:
    assert json.loads(messages.failed(1, RpcError(-1, "x"))) == {
        "jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"},
    }  # fmt: skip
    assert json.loads(messages.failed("a", RpcError(-1, "x", {"b": 2})))["error"]["data"] == {"b": 2}
