"""Two bare reverse proxies in a process of their own, with nothing else in its memory: what `tails` is compared with.

    python bench/proxies.py UPSTREAM_PORT

uvicorn   an ASGI callable on uvicorn, httptools and uvloop that forwards with aiohttp: the parts that the registry has
aiohttp   aiohttp's own server, on uvloop, with its own client

No identity, no decision, no check, no log; Python's own settings of the garbage collector. Prints a line of JSON when
ready, ends when standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

import uvicorn
import uvloop
from aiohttp import ClientSession, TCPConnector, web
from starlette.types import ASGIApp, Receive, Scope, Send


def asgi_proxy(upstream: int, session: ClientSession) -> ASGIApp:
    """The least that forwards a request."""

    async def forward(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        async with session.post(
            f"http://127.0.0.1:{upstream}/call", data=body, headers={"content-type": "application/json"}
        ) as answer:
            content = await answer.read()
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(content)).encode()),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return forward


async def aiohttp_proxy(upstream: int, session: ClientSession) -> tuple[web.AppRunner, int]:
    """The same on aiohttp's server; its port."""

    async def forward(request: web.Request) -> web.Response:
        async with session.post(
            f"http://127.0.0.1:{upstream}/call",
            data=await request.read(),
            headers={"content-type": "application/json"},
        ) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )

    app = web.Application()
    app.router.add_post("/call", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def main(upstream: int) -> None:
    """Serve both until standard input ends."""
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=100)))
        runner, aiohttp_port = await aiohttp_proxy(upstream, session)
        stack.push_async_callback(runner.cleanup)
        config = uvicorn.Config(
            asgi_proxy(upstream, session), "127.0.0.1", 0, http="httptools", lifespan="off",
            access_log=False, log_config=None,
        )  # fmt: skip
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ports = {
            "uvicorn": server.servers[0].sockets[0].getsockname()[1],
            "aiohttp": aiohttp_port,
        }
        print(json.dumps({"ports": ports, "pid": os.getpid()}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await task


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
