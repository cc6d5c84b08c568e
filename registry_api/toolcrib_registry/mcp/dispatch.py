"""From a request to what becomes of it: which methods there are in which revision, and what their parameters must be."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from mcp_types.methods import CLIENT_REQUESTS, validate_client_request
from pydantic import ValidationError

from toolcrib import wording
from toolcrib_registry.mcp import envelope, following, offered, results
from toolcrib_registry.mcp.messages import RpcRequest
from toolcrib_registry.mcp.outcomes import Listening, Outcome, Plain
from toolcrib_registry.mcp.protocol import (
    HANDSHAKE,
    INVALID_PARAMS,
    LATEST_HANDSHAKE,
    METHOD_NOT_FOUND,
    SERVED,
    SERVER_INFO,
    RpcError,
    is_stateless,
)
from toolcrib_registry.mcp.requests import Client, Endpoint, ToolCall
from toolcrib_registry.upstream.lists import CHANGING

log = logging.getLogger(__name__)
_METHODS = frozenset({
    "initialize", "ping", "logging/setLevel", "server/discover", "tools/list", "tools/call", "subscriptions/listen",
    "resources/subscribe", "resources/unsubscribe",
    *offered.METHODS,
})  # fmt: skip
_FOLLOWING = ("resources/subscribe", "resources/unsubscribe")
"""Where there are streams."""
_MOST_MISTAKES = 5
_MOST_VALUES = 2_000
"""JSON values of parameters besides those that go on to a tool: each may be wrong in several ways, which takes long."""
_MOST_RESPONSES = 64


async def answer(endpoint: Endpoint, client: Client, request: RpcRequest) -> Outcome:
    """What becomes of a request.

    Raises:
        RpcError: it is refused, or answered with an error.
    """
    version, method, params = client.version, request.method, request.params
    envelope.check(request, version, client.fields)
    served = method in _METHODS and (endpoint.changes or method not in _FOLLOWING)
    if not served or (method, version) not in CLIENT_REQUESTS:
        raise RpcError(METHOD_NOT_FOUND, "Method not found.", refused=is_stateless(version))
    _check(method, version, params)
    match method:
        case "tools/call":
            return await endpoint.call(client, ToolCall.of(params, version))
        case "tools/list":
            return await endpoint.list(client, params.get("cursor"))
        case "initialize":
            return Plain(_initialized(endpoint, params["protocolVersion"]))
        case "server/discover":
            fields = {
                "supportedVersions": list(SERVED),
                "capabilities": _capabilities(endpoint, follow=True),
                "instructions": endpoint.instructions,
            }
            return Plain(results.complete(version, fields, keep_ms=results.LONG_MS))
        case "subscriptions/listen":
            wanted = params["notifications"]
            uris = dict.fromkeys(wanted.get("resourceSubscriptions") or ())
            if len(uris) > following.MOST:
                raise _invalid(f"resourceSubscriptions has more than {following.MOST} URIs", version)
            return Listening(
                frozenset(kind for kind in CHANGING if wanted.get(kind.wanted) is True), tuple(uris)
            )
        case "resources/subscribe":
            await endpoint.offered.follow(client, params["uri"], endpoint.sessions.of(client).followed)
        case "resources/unsubscribe":
            endpoint.sessions.unfollow(client, params["uri"])
        case "logging/setLevel":
            endpoint.sessions.of(client).level = params["level"]
    if method in offered.METHODS:
        return await endpoint.offered.answer(client, method, params)
    return Plain(results.complete(version, {}))


def _capabilities(endpoint: Endpoint, *, follow: bool) -> dict[str, Any]:
    """The same for every caller: what is offered to whom is seen by its lists alone. `follow`: resources can be."""
    lists = {"listChanged": endpoint.changes}
    resources = {**lists, "subscribe": follow}
    return {"tools": lists, "resources": resources, "prompts": lists, "completions": {}}


def _initialized(endpoint: Endpoint, asked: str) -> bytes:
    """The handshake's answer. Nothing of it is kept: each request names its revision by itself."""
    version = asked if asked in HANDSHAKE else LATEST_HANDSHAKE
    fields = {
        "protocolVersion": version,
        "capabilities": {**_capabilities(endpoint, follow=endpoint.changes), "logging": {}},
        "serverInfo": SERVER_INFO,
        "instructions": endpoint.instructions,
    }
    return results.complete(version, fields)


def _check(method: str, version: str, params: dict[str, Any]) -> None:
    own = params
    if "inputResponses" in params:
        own = {key: value for key, value in params.items() if key != "inputResponses"}
        responses = params["inputResponses"]
        if responses is not None and not _are_responses(responses):
            raise _invalid(f"inputResponses must be an object of at most {_MOST_RESPONSES} objects", version)
    if _has_more_than(_MOST_VALUES, [value for key, value in own.items() if key != "arguments"]):
        raise _invalid(f"they have more than {_MOST_VALUES} values", version)
    try:
        validate_client_request(method, version, own)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:_MOST_MISTAKES]
        told = "; ".join(
            f"{'.'.join(str(step)[:64] for step in e['loc'])}: {wording.said(e)[:200]}" for e in found
        )
        raise _invalid(told, version) from None


def _invalid(told: str, version: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Invalid params: {told}", refused=is_stateless(version))


def _are_responses(value: Any) -> bool:
    """Whether the tool can be given them; what is in them is for it alone to judge."""
    return (
        type(value) is dict
        and len(value) <= _MOST_RESPONSES
        and all(type(each) is dict for each in value.values())
    )


def _has_more_than(most: int, values: list[Any]) -> bool:
    """Whether there are more JSON values than that, in each other or beside each other."""
    left, stack = most, list[Iterable[Any]]([values])
    while stack:
        for value in stack.pop():
            if type(value) is dict or type(value) is list:
                left -= len(value)
                if left < 0:
                    return True
                stack.append(value.values() if type(value) is dict else value)
    return False
