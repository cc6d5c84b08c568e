"""Calls each tool by its kind of backend."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, ToolAnswer, ToolBackend


@dataclass(frozen=True, slots=True)
class Kinds:
    """The backends by kind: tools of MCP servers, and all others."""

    http: ToolBackend
    mcp: ToolBackend

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the tool's backend answers.

        Raises:
            CallError: see `calls.errors`.
        """
        of_server = tool.backend is not None and tool.backend.mcp is not None
        backend = self.mcp if of_server else self.http
        return await backend.call(tool, arguments, request_id, caller, exchange)
