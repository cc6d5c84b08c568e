"""What `hops` calls and what it is compared with, each in a process of its own: python bench/mcp_upstream.py earlier|current|proxy TOOLS|URL

earlier  the Python SDK 1 (MCP 2025-11-25), run in the peers' environment of that name
current  the Python SDK 2 (MCP 2026-07-28)
proxy    FastMCP's proxy in front of URL

It prints its port once it listens, and ends when standard input does. It imports nothing of Toolcrib.
"""

import logging
import os
import socket
import sys
import threading

import uvicorn


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def earlier(count: str) -> object:
    """The SDK of the handshake era, with sessions."""
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("upstream", json_response=True)
    for number in range(int(count)):
        server.add_tool(add, name=f"tool-{number:05}")
    return server.streamable_http_app()


def current(count: str) -> object:
    """The SDK of both eras."""
    from mcp.server import MCPServer

    server = MCPServer("upstream")
    for number in range(int(count)):
        server.add_tool(add, name=f"tool-{number:05}")
    return server.streamable_http_app(json_response=True)


def proxy(url: str) -> object:
    """FastMCP in front of a server."""
    from fastmcp.server import create_proxy

    return create_proxy(url).http_app(json_response=True)


def main(kind: str, argument: str) -> None:
    """Serve until standard input ends."""
    logging.disable(logging.INFO)  # a line for each request would be measured too
    app = {"earlier": earlier, "current": current, "proxy": proxy}[kind](argument)
    # asyncio switches Nagle's algorithm off only where a socket names its protocol; with it, each answer waits for 40 ms
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
