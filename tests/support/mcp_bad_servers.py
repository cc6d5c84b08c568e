"""MCP servers in a process of their own: a good one, one that hangs, one that sends 50 MB and one that floods.

with others() as (good, bad): ...     # their URLs
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE

from mcp_lists import CHANGED, Listing, modern
from mcp_upstream import McpUpstream, Wire, serving
from realparts import processes


async def hangs(_: Wire) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def fifty_megabytes(wire: Wire) -> None:
    """Answer with 50 MB of nothing."""
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
    for _ in range(800):
        await wire.raw(b" " * 65_536)


async def floods(wire: Wire) -> None:
    """10⁶ notices, as fast as they are taken."""
    await wire.stream()
    params = {"notifications": {"toolsListChanged": True}}
    await wire.event(
        {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
    )
    notice = b"data: " + json.dumps({"jsonrpc": "2.0", "method": CHANGED}).encode() + b"\n\n"
    for _ in range(1_000):
        await wire.raw(notice * 1_000)


def _made() -> list[McpUpstream]:
    good, hanging, large, flooding = (modern(Listing()) for _ in range(4))
    hanging.on["tools/list"] = hangs
    large.on["tools/list"] = fifty_megabytes
    flooding.on["subscriptions/listen"] = floods
    return [good, hanging, large, flooding]


async def _serve() -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving(server)) for server in _made()]
        print(*(server.url for server in servers), flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def others() -> Iterator[tuple[str, list[str]]]:
    """The URL of the good one, and those of the bad ones."""
    here = Path(__file__).parent
    environment = processes.clean_environment({"PYTHONPATH": str(here)})
    child = processes.spawn([sys.executable, str(here / "mcp_bad_servers.py")], env=environment, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)  # fmt: skip
    try:
        assert child.stdout is not None
        good, *bad = child.stdout.readline().decode().split()
        yield good, bad
    finally:
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            stream.close()
        processes.end(child)


if __name__ == "__main__":
    asyncio.run(_serve())
