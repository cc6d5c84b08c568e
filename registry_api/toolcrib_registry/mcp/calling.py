"""Calls of governed tools, and how their failures are told.

What a model can do something about is a result that says so; a tool that the caller may not call is unknown, as one that
does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib_registry.calls import service
from toolcrib_registry.calls.errors import InvalidArguments
from toolcrib_registry.failures import Failure
from toolcrib_registry.mcp import results
from toolcrib_registry.mcp.outcomes import Called, Outcome, Plain
from toolcrib_registry.mcp.protocol import INVALID_PARAMS, RpcError
from toolcrib_registry.mcp.requests import Client, Parts

MOST_ERRORS = 5
_UNKNOWN = ("not_permitted", "tool_not_found")
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


async def call(parts: Parts, client: Client, name: str, arguments: dict[str, Any]) -> Outcome:
    """Call the tool that `name` means: decided, limited, recorded and counted as every call.

    Raises:
        RpcError: there is no such tool for the caller.
    """
    try:
        named, answer = await service.call(parts, client.asker, name, arguments, client.request_id)
    except Failure as failure:
        return Plain(failed(client.version, failure, arguments))
    return Called(results.of_tool(client.version, answer), named)


def failed(version: str, failure: Failure, arguments: Mapping[str, Any]) -> bytes:
    """The result of a call that failed.

    Raises:
        RpcError: there is no such tool for the caller.
    """
    if failure.code in _UNKNOWN:
        raise unknown_tool()
    return results.of_failure(version, failure.code, _told(failure, arguments), failure.retry_after)


def unknown_tool() -> RpcError:
    """The same for denied and absent tools. It does not repeat the name, so that both are equal to the byte."""
    return RpcError(INVALID_PARAMS, "Unknown tool")


def _told(failure: Failure, arguments: Mapping[str, Any]) -> str:
    if isinstance(failure, InvalidArguments):
        errors = failure.extra.get("errors") or ()
        lines = [_mistake(error, arguments) for error in errors[:MOST_ERRORS]]
        return "\n".join((f"Invalid arguments: {failure.detail}.", *lines))
    text = f"{failure.detail.rstrip('.')}."
    if ids := failure.extra.get("tool_ids"):
        text = f"{text} tool_ids: {', '.join(ids)}"
    if (upstream := failure.extra.get("upstream")) is not None:
        text = f"{text}\n{results.shown(upstream)}"
    return text


def _mistake(error: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """Where a value does not fit, what is expected, and of which type it is. The value itself may be a secret."""
    pointer = error["pointer"]
    return f"- {pointer or '/'}: {error['message']} (got {_kind(arguments, pointer)})"


def _kind(value: Any, pointer: str) -> str:
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if type(value) is dict and key in value:
            value = value[key]
        elif type(value) is list and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return "something else"
    return kind_of(value)


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    return "null" if value is None else _KINDS.get(type(value), "something else")
