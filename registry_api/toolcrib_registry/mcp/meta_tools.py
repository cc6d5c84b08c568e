"""`/mcp`: tools that find, describe and call the caller's tools, so that a model reads few definitions instead of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, FailFast, Field, ValidationError

from toolcrib import wording
from toolcrib.authorizer import Action
from toolcrib.schemas.objects import of_objects
from toolcrib.text import short
from toolcrib.view import AmbiguousName
from toolcrib.wire.api import (
    AccessRequestBody,
    AccessRequested,
    DescribedTool,
    LoadRequest,
    Request,
    ToolName,
)
from toolcrib.wire.compat import FinderRequest, SemanticRequest
from toolcrib.wire.publish import PublishedTool
from toolcrib.wire.search import MinScore, ServerName, Tag, Whole
from toolcrib_registry.calls import access, definitions, lookup
from toolcrib_registry.calls.lookup import Named
from toolcrib_registry.failures import Failure
from toolcrib_registry.mcp import calling, results, tool_texts
from toolcrib_registry.mcp.calling import Calls
from toolcrib_registry.mcp.outcomes import OfView, Outcome, Plain, Shown
from toolcrib_registry.mcp.protocol import INVALID_PARAMS, RpcError
from toolcrib_registry.mcp.requests import Client, Offered, Parts, Sessions, ToolCall
from toolcrib_registry.policy.state import CallerView, is_long
from toolcrib_registry.search.compat import finder, semantic
from toolcrib_registry.search.compat.services import service_path
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import Findings, Hit, find

_EXPECTED = {
    "tuple_type": "must be an array",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "float_type": "a number is expected",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
}
"""What pydantic says in words of Python, in words of JSON."""


class _Search(Request):
    query: str = Field(max_length=10_000)
    tags: Annotated[tuple[Tag, ...], FailFast()] = Field(default=(), max_length=16)
    allow_servers: Annotated[tuple[ServerName, ...], FailFast()] = Field(default=(), max_length=32)
    max_results: Whole = Field(default=5, ge=1, le=100)
    min_score: MinScore | None = Field(default=None, ge=0, le=1)
    schemas: bool = False


class _Describe(Request):
    tool_id: ToolName


class _Load(Request):
    tool_ids: Annotated[tuple[ToolName, ...], FailFast()] = Field(min_length=1, max_length=100)


class _Call(Request):
    tool_id: ToolName
    args: dict[str, Any] = Field(default_factory=dict)


class _Invoke(BaseModel):
    """Further arguments of that project's tool (addresses, credentials) mean nothing here and are ignored."""

    tool_name: ToolName
    server_name: str | None = Field(default=None, max_length=512)
    arguments: dict[str, Any] = Field(default_factory=dict)


class MetaTools:
    """The endpoint. Its list is the same for every caller and never changes.

    Args:
        parts: of the registry.
        calls: makes calls.
        offered: answers for resources and prompts.
        split_calls, compatible_names, request_access: see `tool_texts.offered`.
    """

    path = "/mcp"
    instructions = (
        "Find a tool with search_tools, read its input schema with describe_tool, then call it by its tool_id. "
        "You see only tools that you may call."
    )
    changes = False

    def __init__(
        self,
        parts: Parts,
        calls: Calls,
        offered: Offered,
        sessions: Sessions,
        *,
        split_calls: bool = False,
        compatible_names: bool = False,
        request_access: bool = False,
    ) -> None:
        self._parts, self._calls, self.offered, self.sessions = parts, calls, offered, sessions
        self._offered = tool_texts.offered(
            split_calls=split_calls, compatible_names=compatible_names, request_access=request_access
        )
        self._listed = orjson.Fragment(orjson.dumps(self._offered))
        known: Mapping[str, Callable[[Client, ToolCall], Awaitable[Outcome]]] = {
            "search_tools": self._search,
            "describe_tool": self._describe,
            "load_tools": self._load,
            "call_tool": self._call,
            "call_read_tool": self._call_read,
            "call_write_tool": self._call_write,
            "request_access": self._request,
            "intelligent_tool_finder": self._finder,
            "search_registry": self._registry,
            "invoke_mcp_tool": self._invoke,
        }
        self._tools = {tool["name"]: known[tool["name"]] for tool in self._offered}

    async def list(self, client: Client, cursor: str | None) -> Outcome:
        """The tools, on one page."""
        if cursor is not None:
            raise RpcError(INVALID_PARAMS, "Invalid cursor.")
        self._parts.metrics.discovered(client.identity, self.path)
        caller_view = await self._parts.state.caller_view(client.identity)
        # none of the caller's own tools is named in it
        self._parts.decisions.listed(Action.LIST, caller_view, found=0, mode="meta")
        return Plain(results.complete(client.version, {"tools": self._listed}, keep_ms=results.LONG_MS))

    async def call(self, client: Client, asked: ToolCall) -> Outcome:
        """Do what one of them is for."""
        tool = self._tools.get(asked.name)
        if tool is None:
            raise calling.unknown_tool()
        try:
            return await tool(client, asked)
        except ValidationError as error:
            return Plain(results.of_failure(client.version, "invalid_arguments", _mistakes(error)))

    async def digest(self, caller_view: CallerView, version: str) -> str:
        """The list never changes."""
        return ""

    async def _search(self, client: Client, call: ToolCall) -> Outcome:
        asked = _Search.model_validate(call.arguments)
        wanted = Wanted(
            query=asked.query, tags=asked.tags, servers=asked.allow_servers, limit=asked.max_results,
            min_score=asked.min_score,
        )  # fmt: skip

        def value(found: Findings) -> dict[str, Any]:
            return {"tools": [_hit(hit, schemas=asked.schemas) for hit in found.hits]}

        return await self._found(client, wanted, value)

    async def _describe(self, client: Client, call: ToolCall) -> Outcome:
        name = _Describe.model_validate(call.arguments).tool_id

        async def make(_: CallerView) -> Shown:
            try:
                named = await lookup.find(self._parts, client.asker, name, Action.DESCRIBE)
            except AmbiguousName as error:
                several = calling.failed(client.version, lookup.ambiguous(error), call.arguments)
                return Shown(several, lambda _: None)
            if named is None:
                raise calling.unknown_tool()
            found = named

            def record(_: CallerView) -> None:
                lookup.note(self._parts, Action.DESCRIBE, found, "ok")

            return Shown(results.of_value(client.version, _described(found)), record)

        return OfView(make)

    async def _load(self, client: Client, call: ToolCall) -> Outcome:
        ids = LoadRequest(tools=_Load.model_validate(call.arguments).tool_ids).tools

        async def make(caller_view: CallerView) -> Shown:
            loaded = await definitions.load(self._parts, client.asker, ids, caller_view)

            def encode() -> bytes:
                tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in loaded.definitions()]
                errors = [error.model_dump(exclude_none=True) for error in loaded.errors]
                return results.of_value(client.version, {"tools": tools, "errors": errors})

            body = await self._encoded(client, loaded.tools, encode)
            return Shown(body, lambda _: loaded.record(self._parts))

        return OfView(make)

    async def _call(self, client: Client, call: ToolCall) -> Outcome:
        asked = _Call.model_validate(call.arguments)
        return await self._calls.call(client, asked.tool_id, asked.args, call)

    async def _call_read(self, client: Client, call: ToolCall) -> Outcome:
        asked = _Call.model_validate(call.arguments)
        if await self._reads(client, asked.tool_id) is False:
            text = "This tool may change something. Call it with call_write_tool."
            return Plain(results.of_failure(client.version, "not_read_only", text))
        return await self._calls.call(client, asked.tool_id, asked.args, call)

    async def _call_write(self, client: Client, call: ToolCall) -> Outcome:
        return await self._call(client, call)

    async def _reads(self, client: Client, name: str) -> bool | None:
        """Whether the visible tool says that it only reads; None: the caller sees no such tool."""
        view = (await self._parts.state.caller_view(client.asker.identity)).view
        try:
            tool = view.resolve(name)
        except AmbiguousName:
            return None
        return None if tool is None else tool.annotations.get("readOnlyHint") is True

    async def _request(self, client: Client, call: ToolCall) -> Outcome:
        asked = AccessRequestBody.model_validate(call.arguments)
        try:
            name = await access.ask(self._parts, client.asker, asked.tool_id, asked.why)
        except Failure as failure:
            return Plain(calling.failed(client.version, failure, call.arguments))
        return Plain(results.of_value(client.version, AccessRequested(request=name).model_dump()))

    async def _finder(self, client: Client, call: ToolCall) -> Outcome:
        asked = FinderRequest.model_validate(call.arguments)

        def value(found: Findings) -> dict[str, Any]:
            answer = finder.answer(asked, found.hits)
            if isinstance(answer, BaseModel):
                return answer.model_dump(by_alias=True)
            return {"tools": [tool.model_dump(by_alias=True) for tool in answer]}

        return await self._found(client, finder.wanted(asked), value)

    async def _registry(self, client: Client, call: ToolCall) -> Outcome:
        asked = SemanticRequest.model_validate(call.arguments)
        return await self._found(
            client,
            semantic.wanted(asked),
            lambda found: semantic.answer(asked, found).model_dump(by_alias=True),
        )

    async def _invoke(self, client: Client, call: ToolCall) -> Outcome:
        asked = _Invoke.model_validate(call.arguments)
        name = await self._of_server(client, asked.server_name, asked.tool_name)
        return await self._calls.call(client, name, asked.arguments, call)

    async def _of_server(self, client: Client, server: str | None, name: str) -> str:
        """The id of the one visible tool of a server by its own name; else the name as it was given."""
        if not server:
            return name
        view = (await self._parts.state.caller_view(client.asker.identity)).view
        path = f"/{server.strip('/')}"
        found = [i for i, tool in view.tools.items() if tool.name == name and service_path(tool) == path]
        return found[0] if len(found) == 1 else name

    async def _found(
        self, client: Client, wanted: Wanted, value: Callable[[Findings], Mapping[str, Any]]
    ) -> Outcome:
        async def make(caller_view: CallerView) -> Shown:
            found = (await find(self._parts, client.asker, wanted)).within(caller_view)
            tools = [hit.tool for hit in found.hits]
            body = await self._encoded(client, tools, lambda: results.of_value(client.version, value(found)))
            return Shown(body, lambda _: None)

        return OfView(make)

    async def _encoded(
        self, client: Client, tools: Collection[PublishedTool], encode: Callable[[], bytes]
    ) -> bytes:
        """What `encode` makes of `tools`: on the event loop only where that is short."""
        if not is_long(tools):
            return encode()
        async with self._parts.large.turn(client.asker.account):
            return await asyncio.to_thread(encode)


def _described(named: Named) -> dict[str, Any]:
    shown = DescribedTool.of(named.tool, named.listed)
    value = {
        "tool_id": shown.tool_id,
        "name": shown.name,
        "title": shown.title,
        "server": shown.server,
        "description": shown.description,
        "inputSchema": of_objects(shown.input_schema),
        "outputSchema": shown.output_schema,
        "returns": shown.returns,
        "annotations": shown.annotations or None,
        "examples": list(shown.examples) or None,
    }
    return {k: v for k, v in value.items() if v is not None}


def _hit(hit: Hit, *, schemas: bool) -> dict[str, Any]:
    made = {
        "tool_id": hit.tool.tool_id,
        "name": hit.name,
        "short_desc": short(hit.tool.description),
        "server": hit.tool.server,
        "confidence": hit.found.confidence,
    }
    if hit.unavailable:
        made["unavailable"] = True
    return {**made, "inputSchema": of_objects(hit.tool.input_schema)} if schemas else made


def _mistakes(error: ValidationError) -> str:
    """What is wrong with the arguments; the values may be secrets and are not repeated."""
    lines = []
    for one in error.errors(include_url=False)[: calling.MOST_ERRORS]:
        where = "".join(f"/{str(step)[:64]}" for step in one["loc"])
        missing = one["type"] == "missing"
        got = "nothing" if missing else calling.kind_of(one["input"])
        said = _EXPECTED.get(one["type"], wording.said(one)[:300])
        lines.append(f"- {where or '/'}: {said} (got {got})")
    return "\n".join(("Invalid arguments.", *lines))
