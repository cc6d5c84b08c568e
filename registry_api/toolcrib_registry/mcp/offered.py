"""Resources and prompts of the caller's servers, at both endpoints: listed, read, got and completed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from toolcrib.authorizer import Action
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.backends.port import Exchange
from toolcrib_registry.calls.lookup import Named
from toolcrib_registry.failures import Failure
from toolcrib_registry.mcp import results, tool_list
from toolcrib_registry.mcp.calling import Calls, told
from toolcrib_registry.mcp.following import MOST, Followed
from toolcrib_registry.mcp.outcomes import Called, OfView, Outcome, Shown
from toolcrib_registry.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    RpcError,
    is_stateless,
)
from toolcrib_registry.mcp.request_state import StateRefused, about
from toolcrib_registry.mcp.requests import Client, Parts, ToolCall
from toolcrib_registry.mcp.tool_list import ToolList
from toolcrib_registry.offerings.directory import Ambiguous, Listed
from toolcrib_registry.offerings.service import NotOffered, Offerings, Result
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.upstream.lists import Kind

AWAY_META = "toolcrib.dev/servers-away"
"""In a list's `_meta`: servers, `namespace/name`, of which nothing is listed since they do not answer."""
_KINDS = {kind.method: kind for kind in (Kind.RESOURCES, Kind.TEMPLATES, Kind.PROMPTS)}
METHODS = frozenset({"resources/read", "prompts/get", "completion/complete"}) | _KINDS.keys()
_NAMED = 8
"""Servers that an error names."""
_REFUSED = (NotOffered, Ambiguous, Failure)
_NOT_FOUND_UPSTREAM = (RESOURCE_NOT_FOUND, INVALID_PARAMS)


class Offered:
    """Answers these methods.

    Args:
        parts: of the registry.
        offerings: what the servers have.
        calls: seals what servers want back.
    """

    def __init__(self, parts: Parts, offerings: Offerings, calls: Calls) -> None:
        self._parts, self._offerings, self._calls = parts, offerings, calls
        self._lists: WeakKeyDictionary[Listed, ToolList] = WeakKeyDictionary()

    @property
    def changes(self) -> int:
        """Grows with each change of a list that a server tells of."""
        return self._offerings.changes

    def digest(self, caller_view: CallerView, kind: Kind) -> str:
        """Names what a caller's list of a kind is made of."""
        return self._offerings.digest(caller_view, kind)

    async def answer(self, client: Client, method: str, params: Mapping[str, Any]) -> Outcome:
        """What becomes of a request.

        Raises:
            RpcError: it is refused, or failed.
        """
        if (kind := _KINDS.get(method)) is not None:
            return self._list(client, kind, params.get("cursor"))
        try:
            if method == "completion/complete":
                named, result = await self._offerings.complete(
                    client.asker, params["ref"], params["argument"], params.get("context"), client.request_id
                )
                return _answered(client, named, result)
            return await self._read_or_got(client, method, params)
        except StateRefused as refused:
            raise RpcError(INVALID_PARAMS, f"{refused.detail}.", refused=True) from refused
        except _REFUSED as refused:
            raise _refused(refused, method, params, client.version) from refused

    async def follow(self, client: Client, uri: str, followed: Followed) -> None:
        """Have a client told of changes of a resource.

        Raises:
            RpcError: it is refused, or failed.
        """
        if len(followed) >= MOST and uri not in followed:
            raise RpcError(INVALID_PARAMS, f"At most {MOST} resources are followed at one time.")
        note = partial(followed.note, uri)
        try:
            part_id, end = await self._offerings.follow(client.asker, uri, client.request_id, note)
        except _REFUSED as refused:
            raise _refused(refused, "resources/read", {"uri": uri}, client.version) from refused
        followed.add(uri, part_id, end)

    def _list(self, client: Client, kind: Kind, cursor: str | None) -> Outcome:
        after, parts, version = tool_list.after(cursor), self._parts, client.version

        async def make(caller_view: CallerView) -> Shown:
            try:
                listed = await self._offerings.listed(client.asker, caller_view, kind)
            except Failure as failure:
                raise _failed(failure, kind.method, {}, version) from failure
            page, count, more = self._pages(listed).page(after)
            fields: dict[str, Any] = {kind.value: orjson.Fragment(page)}
            if more is not None:
                fields["nextCursor"] = tool_list.cursor(more)
            meta = {AWAY_META: listed.away} if listed.unknown else None

            def record(seen: CallerView) -> None:
                parts.decisions.listed(Action.LIST, seen, found=count, mode=kind.capability)

            return Shown(results.complete(version, fields, meta=meta, keep_ms=results.SHORT_MS), record)

        return OfView(make)

    def _pages(self, listed: Listed) -> ToolList:
        found = self._lists.get(listed)
        if found is None:
            keys = tuple(listed.shown)
            found = self._lists[listed] = ToolList(keys, keys, tuple(listed.shown.values()))
        return found

    async def _read_or_got(self, client: Client, method: str, params: Mapping[str, Any]) -> Outcome:
        reads = method == "resources/read"
        key = params["uri"] if reads else params["name"]
        asked = ToolCall.of({**params, "name": key}, client.version)

        def exchange(part: PublishedTool) -> Exchange:
            state = asked.state
            if state is not None:
                belongs = about(client.identity, part, _said(method, key, asked))
                state = self._calls.states.opened(state, belongs)
            return Exchange(asked.capabilities, asked.meta, asked.responses, state)

        if reads:
            named, result = await self._offerings.read(client.asker, key, client.request_id, exchange)
        else:
            named, result = await self._offerings.get(
                client.asker, key, asked.arguments, client.request_id, exchange
            )
        if result.question is None:
            return _answered(client, named, result, keep_ms=results.SHORT_MS if reads else None)
        if not is_stateless(client.version):
            text = "The server asks for input, which this revision of MCP cannot carry. Use 2026-07-28."
            raise RpcError(INTERNAL_ERROR, text)
        said = _said(method, key, asked)
        return Called(self._calls.question(client, named, said, asked, result.question), named)


def _answered(client: Client, named: Named, result: Result, keep_ms: int | None = None) -> Called:
    return Called(results.complete(client.version, result.fields, meta=result.meta, keep_ms=keep_ms), named)


def _said(method: str, key: str, asked: ToolCall) -> dict[str, Any]:
    """What a server's state belongs to, besides its caller."""
    return {"method": method, "key": key, "arguments": asked.arguments}


def _unknown(method: str, params: Mapping[str, Any], version: str) -> RpcError:
    """The same for hidden and absent."""
    if method == "resources/read":
        code = INVALID_PARAMS if is_stateless(version) else RESOURCE_NOT_FOUND
        return RpcError(code, "Resource not found", {"uri": params["uri"]})
    what = "resource" if params.get("ref", {}).get("type") == "ref/resource" else "prompt"
    return RpcError(INVALID_PARAMS, f"Unknown {what}")


def _ambiguous(several: Ambiguous, method: str, params: Mapping[str, Any]) -> RpcError:
    by_name = method == "prompts/get" or params.get("ref", {}).get("type") == "ref/prompt"
    member = "names" if by_name else "uris"
    text = "Several servers have it."
    if several.away:
        text = f"Servers that do not answer now may have it, too: {', '.join(several.away[:_NAMED])}."
    return RpcError(INVALID_PARAMS, f"{text} Use one of {member}.", {member: list(several.forms)})


def _refused(problem: Exception, method: str, params: Mapping[str, Any], version: str) -> RpcError:
    if isinstance(problem, Ambiguous):
        return _ambiguous(problem, method, params)
    if isinstance(problem, Failure):
        return _failed(problem, method, params, version)
    return _unknown(method, params, version)


def _failed(failure: Failure, method: str, params: Mapping[str, Any], version: str) -> RpcError:
    upstream = failure.extra.get("upstream")
    said = upstream.get("code") if isinstance(upstream, Mapping) else None
    if method == "resources/read" and said in _NOT_FOUND_UPSTREAM:
        return _unknown(method, params, version)
    data: dict[str, Any] = {"code": failure.code}
    if failure.retry_after is not None:
        data["retryAfter"] = failure.retry_after
    wrong = failure.code == "invalid_arguments" or said == INVALID_PARAMS
    return RpcError(INVALID_PARAMS if wrong else INTERNAL_ERROR, told(failure, params), data)
