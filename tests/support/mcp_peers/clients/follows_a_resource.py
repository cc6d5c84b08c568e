"""The Python SDK 2 follows a resource: PEER_MODE is auto (2026-07-28) or legacy; arguments: its URI, and a tool that changes it.

It prints what it hears, a line of JSON.
"""

import asyncio
import json
import sys
import warnings
from typing import Any

import httpx2
from commands import HEADERS, MODE, URL
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(uri: str, tool: str) -> None:
    """Follow, call, and say what was heard."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            await heard.put(str(message.params.uri))

    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=HEADERS, timeout=timeout) as http:
        transport = streamable_http_client(URL, http_client=http)
        async with Client(transport, mode=MODE, message_handler=hear) as client:
            if MODE == "legacy":
                with warnings.catch_warnings(action="ignore"):
                    await client.subscribe_resource(uri)
                await client.call_tool(tool, {})
                print(json.dumps({"version": client.protocol_version, "heard": await heard.get()}))
                return
            async with client.listen(resource_subscriptions=[uri]) as subscription:
                await client.call_tool(tool, {})
                event = await anext(subscription)
                print(json.dumps({"version": client.protocol_version, "heard": event.uri}))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
