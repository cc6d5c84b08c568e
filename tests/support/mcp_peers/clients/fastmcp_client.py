"""FastMCP's client; PEER_MODE is one of its modes: auto or legacy."""

import asyncio
from typing import Any

from commands import HEADERS, MODE, URL, Changes, filled, obey, text_of
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.subscriptions import listen


async def fill(message: str, response: Any, params: Any, context: Any) -> dict[str, Any]:
    """Answer a question of a tool."""
    return filled(params.requested_schema)


async def main() -> None:
    """Connect and obey."""
    changes = Changes()
    transport = StreamableHttpTransport(URL, headers=HEADERS)
    options = {"mode": MODE, "message_handler": changes.hear, "elicitation_handler": fill}
    async with Client(transport, **options) as client:

        async def list_tools() -> list[str]:
            return [tool.name for tool in await client.list_tools()]

        async def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return text_of(result.content), result.is_error

        async def serve() -> None:
            await obey(client.session.protocol_version, list_tools, call, changes)

        if MODE == "legacy":
            await serve()
            return
        # FastMCP has no call of its own for it: the SDK's, on its session.
        subscribed = listen(client.session, tools_list_changed=True)
        async with subscribed as subscription, asyncio.TaskGroup() as group:
            hearing = group.create_task(changes.hear_all(subscription))
            await serve()
            hearing.cancel()


asyncio.run(main())
