"""`/healthz`, `/readyz` and `/metrics` on one port, of leaders and standbys alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from toolcrib.exposition import CONTENT_TYPE, render
from toolcrib_operator.metrics import Propagated, families
from toolcrib_operator.state import State


@asynccontextmanager
async def serving(state: State, propagated: Propagated, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port (useful where 0 was asked for)."""

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

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
