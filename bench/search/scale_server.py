"""The real registry with a grown catalog, for `scale.py`: `python bench/search/scale_server.py DATA SIZE CACHE`.

Prints a line of JSON when ready: the port, a token, the pid. Answers every line on standard input with how late its
event loop was since the last line; ends when standard input does.
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

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import callers
import folder
import grown
import uvloop

from registry_harness import ISSUER, OPERATOR, binding, keyset, mint, tool
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.telemetry import logs
from toolcrib.wire.publish import Publish, PublishedTool, Revision
from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.http import serving
from toolcrib_registry.identity.key_store import KeyStore
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.search.entries import entry_of
from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import Store

_BATCH = 1_000


def published(entry: IndexEntry) -> PublishedTool:
    """The tool that `entry` is made of."""
    properties = {n: {"type": "string", "description": t} for n, t in entry.parameters.items()}
    return tool(
        f"{entry.name[:100]}-{entry.tool_id.rpartition('/')[2]}", namespace="team", server=entry.server,
        object_name=entry.tool_id.rpartition("/")[2], description=entry.description, scopes=entry.scopes,
        input_schema={"type": "object", "properties": properties},
    )  # fmt: skip


async def registry(where: Path, data: Path, size: int, cache: Path) -> Registry:
    """The composed registry: `size` tools in force and in the embedded index, all visible to the bot."""
    entries, vectors = grown.grown(*await grown.real(folder.read(data, limit=0), cache), size)
    tools = tuple(published(e) for e in entries)
    issuer = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)
    settings = RegistrySettings(
        issuers=(issuer,), admin_subjects=(OPERATOR,), store=Store(path=str(where / "store"))
    )
    keys = KeyStore(settings.issuers, OutboundHttp(EgressPolicy()), fixed=keyset())
    made = await build(settings, keys=keys, embedder=OnnxEmbedder.packaged())
    for i in range(0, size, _BATCH):
        await made.store.put([entry_of(t) for t in tools[i : i + _BATCH]], vectors[i : i + _BATCH])
    await made.start()
    publish = Publish(
        base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(binding("bot", ("all:use",)),)
    )
    await made.deps.state.publish(publish)
    return made


async def main(data: Path, size: int, cache: Path) -> None:
    """Serve until standard input ends."""
    async with contextlib.AsyncExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = await registry(where, data, size, cache)
        stack.push_async_callback(made.aclose)
        stop, lag = asyncio.Event(), callers.Lag()
        watching = asyncio.create_task(lag.watch())

        def ready(ports: Any) -> None:
            token = mint("system:serviceaccount:team:bot")
            print(json.dumps({"port": ports[0], "token": token, "pid": os.getpid()}), flush=True)

        async def until_end() -> None:
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(lag.figures()), flush=True)
                lag.late.clear()
            stop.set()

        ending = asyncio.create_task(until_end())
        listener = serving.Listener(made.agents, "127.0.0.1", 0)
        await serving.serve([listener], stopping=made.deps.state.close, ready=ready, stop=stop)
        for task in (ending, watching):
            task.cancel()


if __name__ == "__main__":
    logs.configure({})
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
