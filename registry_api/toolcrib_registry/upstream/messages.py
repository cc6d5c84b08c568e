"""JSON-RPC 2.0 as a client has it: what is sent, and what comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolcrib_registry.upstream.errors import AnswerBroken, RefusedByRpc
from toolcrib_registry.upstream.protocol import METHOD_NOT_FOUND

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_SHOWN = 4_096


@dataclass(frozen=True, slots=True)
class Result:
    """What was asked for."""

    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Notification:
    """What the server tells unasked."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """What the server asks of us."""

    id: int | str
    method: str


Message = Result | Notification | ServerRequest | RefusedByRpc


def request(id_: int, method: str, params: Mapping[str, Any]) -> bytes:
    """A request of ours."""
    return encoded({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A notification of ours."""
    return encoded({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})


def answer_to(asked: ServerRequest) -> bytes:
    """What a server gets that asks something of us: only `ping` is offered."""
    if asked.method == "ping":
        return encoded({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "unsupported: this client offers none of its own"}
    return encoded({"jsonrpc": "2.0", "id": asked.id, "error": error})


def encoded(value: Any) -> bytes:
    """JSON, integers of any size included; half a surrogate pair becomes `?`."""
    try:
        return orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode(
            errors="replace"
        )


def _plain(value: Any) -> Any:
    """What orjson takes and the standard library does not: JSON that is encoded already."""
    if isinstance(value, orjson.Fragment):
        return json.loads(value.contents)
    raise TypeError(type(value).__name__)


def parsed(text: bytes) -> Any:
    """The value of a JSON text; integers keep all digits.

    Raises:
        AnswerBroken: it is none.
    """
    try:
        if _LONG_NUMBER.search(text) is not None:  # orjson makes them floats
            return json.loads(text, parse_constant=_no_constant)
        return orjson.loads(text)
    except (ValueError, RecursionError):
        raise AnswerBroken("the server's answer is not JSON") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def read(value: Any, expected: int, status: int = 200) -> Message:
    """The message that a JSON value is.

    Args:
        value: as it came.
        expected: the id of what was asked.
        status: of HTTP.

    Raises:
        AnswerBroken: it is none, or the answer to something that was not asked here.
    """
    if type(value) is not dict or value.get("jsonrpc") != "2.0":
        raise AnswerBroken("the server's answer is not a JSON-RPC 2.0 message")
    method, params = value.get("method"), value.get("params")
    if type(method) is str:
        if "id" not in value:
            return Notification(method, params if type(params) is dict else {})
        if type(value["id"]) not in (int, str):
            raise AnswerBroken("the server's request has no sound id")
        return ServerRequest(value["id"], method)
    error = value.get("error")
    # a request that could not be read is answered without its id
    if type(error) is dict and value.get("id") in (expected, None):
        return _refusal(error, status)
    if value.get("id") != expected or type(value.get("id")) is bool:
        raise AnswerBroken("the server answered another request than the one that was sent")
    result = value.get("result")
    if type(result) is not dict:
        raise AnswerBroken("the server's answer has no result")
    return Result(result)


def _refusal(error: dict[str, Any], status: int) -> RefusedByRpc:
    code, message = error.get("code"), error.get("message")
    if type(code) is not int:
        raise AnswerBroken("the server's error has no code")
    text = message[:_SHOWN] if isinstance(message, str) else ""
    return RefusedByRpc(code, text, error.get("data"), status)
