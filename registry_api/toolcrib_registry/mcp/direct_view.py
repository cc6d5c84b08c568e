"""`/mcp/direct`: the caller's own tools, each by its name for models."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from toolcrib.authorizer import Action
from toolcrib.view import AmbiguousName, View
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.mcp import mirrors, results, tool_list
from toolcrib_registry.mcp.calling import Calls
from toolcrib_registry.mcp.outcomes import OfView, Outcome, Shown
from toolcrib_registry.mcp.protocol import is_stateless
from toolcrib_registry.mcp.requests import Client, Offered, Parts, Sessions, ToolCall
from toolcrib_registry.mcp.tool_list import ToolLists
from toolcrib_registry.policy.state import CallerView

_MARK = b'"' + mirrors.MARK.encode() + b'"'


class DirectView:
    """The endpoint. Its lists are shared by all who see the same."""

    path = "/mcp/direct"
    instructions = "These are the tools that you may use now. The list changes when your grants change."
    changes = True

    def __init__(
        self, parts: Parts, lists: ToolLists, calls: Calls, offered: Offered, sessions: Sessions
    ) -> None:
        self._parts, self._lists, self._calls, self.offered = parts, lists, calls, offered
        self.sessions = sessions

    async def list(self, client: Client, cursor: str | None) -> Outcome:
        """A page of the caller's tools."""
        after, parts, version = tool_list.after(cursor), self._parts, client.version

        async def make(caller_view: CallerView) -> Shown:
            found = await self._lists.of(caller_view.view, version)
            page, count, more = found.page(after)
            fields: dict[str, Any] = {"tools": orjson.Fragment(page)}
            if more is not None:
                fields["nextCursor"] = tool_list.cursor(more)

            def record(seen: CallerView) -> None:
                parts.metrics.discovered(seen.identity, self.path)
                parts.decisions.listed(Action.LIST, seen, found=count)

            return Shown(results.complete(version, fields, keep_ms=results.SHORT_MS), record)

        return OfView(make)

    async def call(self, client: Client, asked: ToolCall) -> Outcome:
        """Call the tool that is listed by the name."""
        name, arguments = asked.name, asked.arguments
        caller_view = await self._parts.state.caller_view(client.asker.identity)
        found = await self._lists.of(caller_view.view, client.version)
        tool_id = found.by_name.get(name)
        tool = _tool(caller_view.view, name if tool_id is None else tool_id)
        if tool is not None and is_stateless(client.version) and _MARK in tool.packed_input:
            mirrors.check_arguments(_mirrors(tool.packed_input), arguments, client.fields)

        async def named(seen: CallerView) -> PublishedTool | None:
            listed = (await self._lists.of(seen.view, client.version)).by_name.get(name)
            return None if listed is None else seen.view.tools.get(listed)

        return await self._calls.call(client, name if tool_id is None else tool_id, arguments, asked, named)

    async def digest(self, caller_view: CallerView, version: str) -> str:
        """Names the content of the caller's list."""
        return (await self._lists.of(caller_view.view, version)).digest


def _tool(view: View, name: str) -> PublishedTool | None:
    """What a call of `name` means: also under a name that is not listed here its header fields are checked."""
    try:
        return view.resolve(name)
    except AmbiguousName:
        return None


@lru_cache(maxsize=256)
def _mirrors(schema: bytes) -> tuple[mirrors.Mirror, ...]:
    return mirrors.mirrors_of(orjson.loads(schema))
