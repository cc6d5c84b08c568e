"""An MCP server of others on a free port of loopback, run in the environment `current`: python python_servers.py sdk|fastmcp json|stream

It prints its port once it listens. Tools: `add`, `fails`, `blocks`, `asks` (which elicits), and `grow` (which adds a tool of
the given name and tells of it). `sdk stdio` speaks over standard input and output instead.
With `login` as a third word, it wants a token that an authorization server gives, and accepts none;
with `issuer=URL` it accepts those of this OpenID provider (sdk alone).
With `touched`, the SDK's server has the resource `peer://note` too, and the tool `touch`, which tells that it has changed.
With `changing`, the SDK's server has `target`, and `change`, which gives that another value of the field that it names.
"""

import asyncio
import socket
import sys

import uvicorn


class OfIssuer:
    """Accepts the tokens of an OpenID provider, by its keys."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    async def verify_token(self, token: str) -> object:
        from mcp.server.auth.provider import AccessToken

        try:
            claims = await asyncio.to_thread(self._claims, token)
        except Exception:
            return None
        return AccessToken(token=token, client_id=claims["sub"], scopes=["use"], expires_at=claims["exp"])

    def _claims(self, token: str) -> dict:
        import httpx
        import jwt

        found = httpx.get(f"{self.issuer}/.well-known/openid-configuration", trust_env=False).json()
        keys = jwt.PyJWKSet.from_dict(httpx.get(found["jwks_uri"], trust_env=False).json())
        key = next(k for k in keys.keys if k.key_id == jwt.get_unverified_header(token)["kid"])
        return jwt.decode(
            token, key.key, algorithms=["RS256"], issuer=self.issuer, options={"verify_aud": False}
        )


def sdk(as_json: bool, login: bool, issuer: str | None, port: int) -> object:
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
    if issuer is not None:
        settings = AuthSettings(
            issuer_url=issuer, resource_server_url=f"http://127.0.0.1:{port}/mcp", required_scopes=["use"]
        )
        auth = {"auth": settings, "token_verifier": OfIssuer(issuer)}
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

    if "touched" in sys.argv:

        @server.resource("peer://note")
        def note() -> str:
            """A note."""
            return "text"

        @server.tool()
        async def touch(ctx: Context) -> str:
            """Change the note."""
            await ctx.notify_resource_updated("peer://note")
            return "touched"

    if "changing" in sys.argv:
        changing(server)
    return server if "stdio" in sys.argv else server.streamable_http_app(json_response=as_json)


def changing(server: object) -> None:
    """The tools `target` and `change`, in place of all others."""
    from mcp.server.mcpserver import Context
    from mcp.types import Icon, ToolAnnotations

    tools = server._tool_manager._tools
    tools.clear()

    def target(path: str) -> str:
        """Read a file of the shared folder."""
        return path

    hints = dict.fromkeys(("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"), True)
    server.add_tool(
        target,
        title="Target",
        annotations=ToolAnnotations(title="Target", **hints),
        icons=[Icon(src="https://icons.example/0.png")],
        meta={"example.com/note": 0},
    )
    times = iter(range(1, 1_000))

    def changed(tool: object, field: str, n: int) -> dict:
        if field in ("title", "description"):
            return {field: f"Read a file. Changed {n} times."}
        if field == "name":
            return {"name": f"target_{n}"}
        if field == "inputSchema":
            return {"parameters": tool.parameters | {"description": f"Changed {n} times."}}
        if field == "outputSchema":
            schema = tool.output_schema | {"description": f"Changed {n} times."}
            return {"fn_metadata": tool.fn_metadata.model_copy(update={"output_schema": schema})}
        if field == "icons":
            return {"icons": [Icon(src=f"https://icons.example/{n}.png")]}
        if field == "_meta":
            return {"meta": {"example.com/note": n}}
        if field == "title of annotations":
            return {"annotations": tool.annotations.model_copy(update={"title": f"Target {n}"})}
        return {
            "annotations": tool.annotations.model_copy(update={field: not getattr(tool.annotations, field)})
        }

    @server.tool()
    async def change(field: str, ctx: Context) -> str:
        """Change a field of the other tool."""
        n = next(times)
        if field == "instructions":
            server._lowlevel_server.instructions = f"Use it well, {n} times."
        else:
            (name,) = set(tools) - {"change"}
            tool = tools.pop(name)
            tool.__dict__.pop("output_schema", None)  # it is cached
            made = tool.model_copy(update=changed(tool, field, n))
            made.__dict__.pop("output_schema", None)
            tools[made.name] = made
        await ctx.notify_tools_changed()  # 2026-07-28
        await ctx.session.send_tool_list_changed()  # earlier
        return field


def fastmcp(as_json: bool, *_: object) -> object:
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


if "stdio" in sys.argv:
    sdk(True, False, None, 0).run("stdio")
    sys.exit()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
issuer = next((word.removeprefix("issuer=") for word in sys.argv if word.startswith("issuer=")), None)
app = {"sdk": sdk, "fastmcp": fastmcp}[sys.argv[1]](
    sys.argv[2] == "json", "login" in sys.argv, issuer, listener.getsockname()[1]
)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])
