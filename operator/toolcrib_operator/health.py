"""`/healthz`, `/readyz` and `/metrics` on one port, of leaders and standbys alike.

A connection lasts one request and at most ten seconds, and there are few; the oldest makes room for a new one. So anyone
who reaches this port can hold up neither probes nor the process. aiohttp has no deadline for headers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from toolcrib.telemetry.exposition import CONTENT_TYPE, render
from toolcrib_operator.metrics import Propagated, families
from toolcrib_operator.state import State

CONNECTION_SECONDS = 10.0
CONNECTIONS = 256


@asynccontextmanager
async def serving(
    state: State,
    propagated: Propagated,
    host: str,
    port: int,
    *,
    seconds: float = CONNECTION_SECONDS,
    connections: int = CONNECTIONS,
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port (useful where 0 was asked for).

    Args:
        seconds: how long a connection lasts at most.
        connections: how many there are at one time.
    """
    loop = asyncio.get_running_loop()
    latest: deque[web.RequestHandler] = deque()

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "role": state.role})

    async def readyz(_: web.Request) -> web.Response:
        # A replica or an index that is away is told, and no reason to take this process for unready: that would hold
        # up rolling updates of the registry, and evictions of this pod, for what another part lacks.
        return web.json_response(state.report(), status=503 if state.obstacles() else 200)

    async def metrics(_: web.Request) -> web.Response:
        # thousands of series: told on the loop, written down in a thread
        body = await asyncio.to_thread(render, families(state, propagated))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    @web.middleware
    async def once(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.force_close()
        return response

    def accept() -> asyncio.Protocol:
        assert server is not None
        made = server()
        loop.call_later(seconds, end, made)
        latest.append(made)
        if len(latest) > connections:
            end(latest.popleft())
        return made

    def end(made: web.RequestHandler) -> None:
        if made.transport is not None:
            made.transport.abort()

    app = web.Application(middlewares=[once])
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    server = runner.server
    try:
        listener = await loop.create_server(accept, host, port, reuse_address=True)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
    finally:
        await runner.cleanup()
