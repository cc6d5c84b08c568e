"""JSON-RPC 2.0: messages as they come, and answers as they go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib_registry.mcp.protocol import INVALID_REQUEST, RpcError

MOST_IN_A_BATCH = 16
_LONGEST_ID = 512
Id = int | str


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A message that is owed an answer."""

    id: Id
    method: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RpcNotification:
    """A message that is owed none."""

    method: str


@dataclass(frozen=True, slots=True)
class RpcResponse:
    """A client's answer. Nothing is asked of clients here, so it answers nothing."""


RpcMessage = RpcRequest | RpcNotification | RpcResponse


def read(value: Any) -> RpcMessage:
    """The message that a JSON value is.

    Raises:
        RpcError: it is none.
    """
    if type(value) is not dict or value.get("jsonrpc") != "2.0":
        raise invalid('The body must be a JSON-RPC 2.0 message: an object with "jsonrpc": "2.0".')
    method, params = value.get("method"), value.get("params")
    if method is None and "id" in value and ("result" in value or "error" in value):
        return RpcResponse()
    if type(method) is not str:
        raise invalid("The message has no method.")
    if params is not None and type(params) is not dict:
        raise invalid("params must be an object.")
    if "id" not in value:
        return RpcNotification(method)
    return RpcRequest(_id(value["id"]), method, params or {})


def id_of(value: Any) -> Id | None:
    """The id of a message that may not be one, for the error about it."""
    try:
        return _id(value["id"]) if type(value) is dict and "id" in value else None
    except RpcError:
        return None


def _id(value: Any) -> Id:
    if type(value) is int and abs(value) < 1 << 63:
        return value
    if type(value) is str and len(value) <= _LONGEST_ID:
        return value
    raise invalid(f"The id must be an integer of 64 bits or a string of at most {_LONGEST_ID} characters.")


def invalid(message: str) -> RpcError:
    """Refuse what is not a message."""
    return RpcError(INVALID_REQUEST, message, refused=True)


def answered(id_: Id, result: bytes) -> bytes:
    """The response with `result`, which is JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(id_), result)


def failed(id_: Id | None, error: RpcError) -> bytes:
    """The response with `error`."""
    shown: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    return orjson.dumps({"jsonrpc": "2.0", "id": id_, "error": shown})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification of ours."""
    return orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params})
