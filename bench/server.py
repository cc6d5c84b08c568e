"""The server of the discovery and call benchmarks: the real registry and what it is compared with, in one process.

    python bench/server.py TOOLS UPSTREAM_PORT

Every listener is the registry's own server (`serving.serve`: uvicorn, httptools, uvloop) on one event loop, so that
only the application differs:

registry  the agents' app as shipped, plus one route of nothing, `GET /empty`, behind the same edge
logging   the same registry with the decision log switched on
asserted  the same, and each call carries a signed assertion
strict    the same with the decision log in its mode strict: a call waits for its record on the disk
plain     a FastAPI app with one route that returns an empty object, and one that filters and encodes per request
bare      an ASGI callable that sends two constant messages
starlette a reverse proxy: Starlette and httpx
aiohttp   a reverse proxy: aiohttp's own server and client (its server is not uvicorn)

Prints a line of JSON when ready (ports, a token, the pid), ends when standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import httpx
import uvloop
from aiohttp import ClientSession, TCPConnector
from fastapi import FastAPI
from proxies import aiohttp_proxy
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from registry_harness import ISSUER, OPERATOR, backend, binding, keyset, mint, tool
from toolcrib import process
from toolcrib.authorizer import granted_scopes
from toolcrib.identity import Issuer, ScopesPolicy, verify
from toolcrib.telemetry import logs
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.http import direct, serving
from toolcrib_registry.http.app import agents_lines, create_agents_app
from toolcrib_registry.http.edge import Edge
from toolcrib_registry.http.route_table import Access, Line, RouteTable
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.policy import discovery
from toolcrib_registry.search.embedding import NullEmbedder
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import Store

VISIBLE = 20
AGENTS = 50
SUBJECT = "system:serviceaccount:team:bot"
SCHEMA = {
    "type": "object",
    "properties": {
        "expression": {"type": "string", "description": "What to work out."},
        "digits": {"type": "integer", "description": "Digits after the point."},
    },
    "required": ["expression"],
}


def step(count: int, upstream: int, *, assertion: bool = False) -> Publish:
    """A full snapshot: `count` tools, 20 of them for the bot, and bindings of 50 agents. `assertion`: calls are signed."""
    to = backend(upstream, "/call", assertion=assertion)
    tools = [
        tool(f"tool-{i:05}", scopes=(f"s{i}:use",), input_schema=SCHEMA, returns="A number.", backend=to)
        for i in range(count)
    ]
    every = count // VISIBLE
    scopes = tuple(f"s{i * every}:use" for i in range(VISIBLE))
    bindings = [binding("bot", scopes[:16], name="bot-1"), binding("bot", scopes[16:], name="bot-2")]
    bindings += [
        binding(f"agent-{a}", tuple(f"s{(a * 7 + k) % count}:use" for k in range(16))) for a in range(AGENTS)
    ]
    return Publish(base=None, to=Revision(epoch=1, seq=1), tools=tuple(tools), bindings=tuple(bindings))


async def registry(
    folder: Path, name: str, publish: Publish, audit: str | None = None, **more: Any
) -> Registry:
    """The composed registry, with the snapshot in force; `audit` is the mode of its decision log, None: no log. `more`: further settings."""
    key = folder / "audit.key"
    key.write_text("5" * 64)
    key.chmod(0o600)
    log = {"path": str(folder / f"{name}.jsonl"), "mode": audit, "key_file": str(key)} if audit else {}
    issuer = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)
    settings = RegistrySettings(
        issuers=(issuer,), admin_subjects=(OPERATOR,), store=Store(path=str(folder / name)),
        egress={"loopback": True}, audit=log, **more,
    )  # fmt: skip
    keys = KeyStore(settings.issuers, OutboundHttp(EgressPolicy()), fixed=keyset())
    made = await build(settings, keys=keys, embedder=NullEmbedder())
    await made.start()
    await made.deps.state.publish(publish)
    return made


def plain(made: Registry, token: str) -> FastAPI:
    """What one would write first: an empty route, and a list that is filtered and encoded for every request."""
    app = FastAPI()
    deps = made.deps

    @app.get("/empty")
    async def empty() -> dict[str, Any]:
        return {}

    policy, now = deps.state.snapshot.policy, deps.clock.now()
    issuers = {i.issuer: i for i in deps.settings.issuers}
    granted = frozenset(granted_scopes(verify(token, issuers=issuers, keys=keyset(), now=now), policy, now))

    @app.get("/filtered")
    async def filtered() -> Response:
        # kind to it: no token is verified and no binding looked at
        tools = deps.state.snapshot.tools.values()
        seen = [discovery.entry(t, t.name, deps.settings) for t in tools if not granted.isdisjoint(t.scopes)]
        return Response(json.dumps({"tools": seen}), media_type="application/json")

    return app


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """The least that an ASGI server can be asked to do."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def starlette_proxy(upstream: int, client: httpx.AsyncClient) -> Starlette:
    """A reverse proxy of a few lines: no identity, no decision, no check, no log."""

    async def forward(request: Request) -> Response:
        answer = await client.post(
            f"http://127.0.0.1:{upstream}/call",
            content=await request.body(),
            headers={"content-type": "application/json"},
        )
        return Response(answer.content, answer.status_code, media_type=answer.headers["content-type"])

    return Starlette(routes=[Route("/call", forward, methods=["POST"])])


async def main(count: int, upstream: int) -> None:
    """Serve all of it until standard input ends."""
    publish = step(count, upstream)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        normal = await registry(folder, "normal", publish)
        stack.push_async_callback(normal.aclose)
        logging = await registry(folder, "logging", publish, "lenient")
        stack.push_async_callback(logging.aclose)
        signed = step(count, upstream, assertion=True)
        asserted = await registry(folder, "asserted", signed, "lenient")
        stack.push_async_callback(asserted.aclose)
        strict = await registry(folder, "strict", publish, "strict")
        stack.push_async_callback(strict.aclose)
        agents = create_agents_app(normal.deps)

        async def empty() -> dict[str, Any]:
            return {}

        agents.add_api_route("/empty", empty)
        lines = (*agents_lines(normal.deps), Line("GET", "/empty", Access.FILTERED))
        table = RouteTable(lines, normal.deps.settings.limits)
        client = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=64))
        stack.push_async_callback(client.aclose)
        session = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=64)))
        apps = {
            "registry": Edge(agents, normal.deps, table, direct.ROUTES),
            "logging": logging.agents,
            "asserted": asserted.agents,
            "strict": strict.agents,
            "plain": plain(normal, mint(SUBJECT)),
            "bare": bare,
            "starlette": starlette_proxy(upstream, client),
        }
        runner, aiohttp_port = await aiohttp_proxy(upstream, session)
        stack.push_async_callback(runner.cleanup)
        stop = asyncio.Event()

        def ready(ports: Any) -> None:
            found = {**dict(zip(apps, ports, strict=True)), "aiohttp": aiohttp_port}
            print(json.dumps({"ports": found, "token": mint(SUBJECT), "pid": os.getpid()}), flush=True)

        async def until_end() -> None:
            await asyncio.to_thread(sys.stdin.read)
            stop.set()

        await stack.enter_async_context(process.looked_after())  # as toolcrib_registry.main does
        ending = asyncio.create_task(until_end())
        await serving.serve(
            [serving.Listener(app, "127.0.0.1", 0) for app in apps.values()],
            stopping=normal.deps.state.close,
            ready=ready,
            stop=stop,
        )
        ending.cancel()


if __name__ == "__main__":
    logs.configure({})
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
