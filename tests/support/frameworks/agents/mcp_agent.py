"""An agent on the Python SDK of MCP alone: it lists its tools before each request to the model.

Each request has a session of its own, which costs nothing since revision 2026-07-28: a session that lost its server does
not come back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pipe import TOKEN, URL, obey, turn


@asynccontextmanager
async def session(http: httpx2.AsyncClient) -> AsyncIterator[Client]:
    """For one request."""
    async with Client(streamable_http_client(URL, http_client=http), mode="2026-07-28") as client:
        yield client


async def listed(http: httpx2.AsyncClient) -> list[Any]:
    """All tools; listing does no harm, so it is tried again for half a minute."""
    for left in range(30, -1, -1):
        try:
            async with session(http) as client:
                page = await client.list_tools()
                tools = list(page.tools)
                while page.next_cursor is not None:
                    page = await client.list_tools(cursor=page.next_cursor)
                    tools += page.tools
                return tools
        except Exception:
            if left == 0:
                raise
            await asyncio.sleep(1)
    raise AssertionError


async def answer(http: httpx2.AsyncClient, call: dict[str, Any]) -> str:
    """A refused call is an answer for the model, too: it says what to correct."""
    try:
        async with session(http) as client:
            result = await client.call_tool(call["name"], call["arguments"])
            return "\n".join(getattr(block, "text", block.type) for block in result.content)
    except Exception as error:
        return str(error.exceptions[0] if isinstance(error, ExceptionGroup) else error)


async def run() -> str:
    """One run."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as http:
        results: list[str] = []
        while True:
            tools = await listed(http)
            reply = await turn([tool.name for tool in tools], results)
            if "text" in reply:
                return str(reply["text"])
            results = [await answer(http, call) for call in reply["calls"]]


asyncio.run(obey(version("mcp"), run))
