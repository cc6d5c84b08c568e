"""An MCP server of others on a free port of loopback, run in the environment `current`: python python_servers.py sdk|fastmcp json|stream

It prints its port once it listens. Tools: `add`, `fails`, `blocks`, and `asks` (which elicits).
"""

import socket
import sys

import uvicorn


def sdk(as_json: bool) -> object:
    """The SDK's server, which speaks both eras."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.types import ImageContent, TextContent
    from pydantic import BaseModel

    server = MCPServer("peer")

    class Name(BaseModel):
        name: str

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool()
    def fails() -> str:
        """Fail."""
        raise ValueError("no such thing")

    @server.tool(structured_output=False)
    def blocks() -> list[TextContent | ImageContent]:
        """Two blocks."""
        return [
            TextContent(type="text", text="one"),
            ImageContent(type="image", data="iVBORw==", mime_type="image/png"),
        ]

    @server.tool()
    async def asks(ctx: Context) -> str:
        """Ask, and go on without an answer."""
        try:
            await ctx.elicit("Who?", Name)
        except Exception as error:
            return f"went on: {type(error).__name__}"
        return "answered"

    return server.streamable_http_app(json_response=as_json)


def fastmcp(as_json: bool) -> object:
    """FastMCP's."""
    from fastmcp import Context, FastMCP
    from fastmcp.utilities.types import Image

    server = FastMCP("peer")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    def fails() -> str:
        """Fail."""
        raise ValueError("no such thing")

    @server.tool
    def blocks() -> list:
        """Two blocks."""
        return ["one", Image(data=b"\x89PNG\r\n", format="png")]

    @server.tool
    async def asks(ctx: Context) -> str:
        """Ask, and go on without an answer."""
        try:
            await ctx.elicit("Who?", str)
        except Exception as error:
            return f"went on: {type(error).__name__}"
        return "answered"

    return server.http_app(json_response=as_json)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = {"sdk": sdk, "fastmcp": fastmcp}[sys.argv[1]](sys.argv[2] == "json")
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])
