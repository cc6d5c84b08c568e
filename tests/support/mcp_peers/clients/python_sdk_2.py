"""The client of the Python SDK 2; PEER_MODE is one of its modes: auto, legacy, or a version to pin."""

import asyncio
from typing import Any

import httpx2
from commands import HEADERS, MODE, URL, Changes, filled, obey, text_of
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult


async def fill(context: Any, params: Any) -> ElicitResult:
    """Answer a question of a tool."""
    return ElicitResult(action="accept", content=filled(params.requested_schema))


async def main() -> None:
    """Connect and obey."""
    changes = Changes()
    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=HEADERS, timeout=timeout) as http:
        transport = streamable_http_client(URL, http_client=http)
        options = {"mode": MODE, "message_handler": changes.hear, "elicitation_callback": fill}
        async with Client(transport, **options) as client:

            async def list_tools() -> list[str]:
                names: list[str] = []
                cursor: str | None = None
                while True:
                    page = await client.list_tools(cursor=cursor)
                    names += [tool.name for tool in page.tools]
                    if (cursor := page.next_cursor) is None:
                        return names

            async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
                result = await client.call_tool(tool, arguments)
                return text_of(result.content), bool(result.is_error)

            async def serve() -> None:
                await obey(client.protocol_version, list_tools, call, changes)

            tools = client.server_capabilities.tools
            if MODE == "legacy" or (MODE == "auto" and not (tools and tools.list_changed)):
                await serve()
                return
            async with client.listen(tools_list_changed=True) as subscription, asyncio.TaskGroup() as group:
                hearing = group.create_task(changes.hear_all(subscription))
                await serve()
                hearing.cancel()


asyncio.run(main())
