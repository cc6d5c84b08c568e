"""The client of the Python SDK 1."""

import asyncio
from typing import Any

import httpx
from commands import HEADERS, URL, Changes, obey, text_of
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    """Connect and obey."""
    changes = Changes()
    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=timeout) as http,
        streamable_http_client(URL, http_client=http) as (reading, writing, _),
        ClientSession(reading, writing, message_handler=changes.hear) as session,
    ):
        initialized = await session.initialize()

        async def list_tools() -> list[str]:
            names: list[str] = []
            cursor: str | None = None
            while True:
                page = await session.list_tools(cursor=cursor)
                names += [tool.name for tool in page.tools]
                if (cursor := page.nextCursor) is None:
                    return names

        async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
            result = await session.call_tool(tool, arguments)
            return text_of(result.content), result.isError

        await obey(str(initialized.protocolVersion), list_tools, call, changes)


asyncio.run(main())
