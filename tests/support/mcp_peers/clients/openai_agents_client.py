"""The MCP server class of the OpenAI Agents SDK, as an agent would hold it; no model is asked."""

import asyncio
from typing import Any

from agents.mcp import MCPServerStreamableHttp
from commands import HEADERS, URL, Changes, obey, text_of


async def main() -> None:
    """Connect and obey."""
    changes = Changes()
    async with MCPServerStreamableHttp(
        {"url": URL, "headers": HEADERS, "timeout": 30},
        client_session_timeout_seconds=30,
        message_handler=changes.hear,
    ) as server:

        async def list_tools() -> list[str]:
            return [tool.name for tool in await server.list_tools()]

        async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
            result = await server.call_tool(tool, arguments)
            return text_of(result.content), bool(result.isError)

        initialized = server.server_initialize_result
        version = str(initialized.protocolVersion) if initialized else None
        await obey(version, list_tools, call, changes)


asyncio.run(main())
