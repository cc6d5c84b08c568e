"""LangChain's tools made from MCP tools, as an agent would hold them; no model is asked."""

import asyncio
from typing import Any

from commands import HEADERS, URL, Changes, obey
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def main() -> None:
    """Connect and obey."""
    changes = Changes()
    client = MultiServerMCPClient(
        {
            "toolcrib": {
                "transport": "streamable_http",
                "url": URL,
                "headers": HEADERS,
                "session_kwargs": {"message_handler": changes.hear},
            }
        }
    )
    async with client.session("toolcrib") as session:
        held: dict[str, BaseTool] = {}

        async def list_tools() -> list[str]:
            tools = await load_mcp_tools(session)
            # What an agent was given earlier it may still call.
            held.update({tool.name: tool for tool in tools})
            return [tool.name for tool in tools]

        async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
            asked = {"type": "tool_call", "id": "1", "name": tool, "args": arguments}
            message: ToolMessage = await held[tool].ainvoke(asked)
            return message.text, message.status == "error"

        await obey(None, list_tools, call, changes)


asyncio.run(main())
