"""An MCP server of others on a free port of loopback, run in the environment `current`: python python_servers.py sdk|fastmcp json|stream

It prints its port once it listens. Tools: `add`, `fails`, `blocks`, `asks` (which elicits), and `grow` (which adds a tool of
the given name and tells of it). With `login` as a third word, it wants a token that an authorization server gives.
"""

import socket
import sys

import uvicorn


def sdk(as_json: bool, login: bool) -> object:
    """The SDK's server, which speaks both eras."""
    from mcp.server import MCPServer
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import Context
    from mcp.types import ImageContent, TextContent
    from pydantic import BaseModel

    class Nobody:
        async def verify_token(self, token: str) -> None:
            return None

    auth: dict = {}
    if login:
        settings = AuthSettings(
            issuer_url="https://login.example",
            resource_server_url="https://peer.example/mcp",
            required_scopes=["use"],
        )
        auth = {"auth": settings, "token_verifier": Nobody()}
    server = MCPServer("peer", instructions="Use it well.", **auth)

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

    @server.tool()
    async def grow(name: str, ctx: Context) -> str:
        """Add a tool."""
        server.add_tool(lambda: name, name=name, description="A new tool.")
        await ctx.notify_tools_changed()  # 2026-07-28
        await ctx.session.send_tool_list_changed()  # earlier
        return name

    return server.streamable_http_app(json_response=as_json)


def fastmcp(as_json: bool, login: bool) -> object:
    """FastMCP's."""
    from fastmcp import Context, FastMCP
    from fastmcp.utilities.types import Image
    from mcp.types import ToolListChangedNotification

    server = FastMCP("peer", instructions="Use it well.")

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

    @server.tool
    async def grow(name: str, ctx: Context) -> str:
        """Add a tool."""
        from fastmcp.tools import Tool

        server.add_tool(Tool.from_function(lambda: name, name=name, description="A new tool."))
        await ctx.send_notification(ToolListChangedNotification())
        return name

    return server.http_app(json_response=as_json)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = {"sdk": sdk, "fastmcp": fastmcp}[sys.argv[1]](sys.argv[2] == "json", "login" in sys.argv)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])
