"""The operator's own loop over a World, and a registry process that it publishes to over loopback.

    python bench/operated.py FOLDER EMBEDDER

Prints a line of JSON when an empty catalog is published (the registry's URL), answers each line of JSON with one, and
ends when standard input does:

{"tools": n}     hand over a catalog of n tools; answers at once
{"state": true}  whether it is published, and how many tools wait for the index and for their status
{"changes": n}   n times edit a Tool, add a binding, remove it; the seconds until an agent's watch stream told of each,
                 and the processor time that operator and registry took together
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import aiohttp
from measure import cpu_seconds

import held_loops
import registry_process
from manifests import binding, tool
from registry_harness import OPERATOR, mint
from toolcrib import process
from toolcrib.telemetry import logs
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.adapters.replica_http import HttpReplica
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

SEEN = 9
"""Tools that the agent sees, so that the size of its view plays no part; a tenth one is granted and revoked."""
_PATIENCE = 60.0
_APART = 0.02
"""Seconds between two changes, at most: out of step with whatever beats in the parts."""


def manifest(number: int, text: str) -> dict[str, Any]:
    """The Tool of a number."""
    scope = "seen:use" if number < SEEN else "granted:use" if number == SEEN else "others:use"
    properties = {
        f"argument-{n}": {"type": "string", "description": f"Which {n} of {number}."} for n in range(4)
    }
    schema = {"type": "object", "properties": properties}
    name = f"tool-{number:05}"
    return tool(name, "team", scopes=[scope], description=text, inputSchema=schema, backend={"none": {}})


class Operated:
    """The operator in this process, and an agent that watches the registry."""

    def __init__(
        self, world: World, publisher: Publisher, index: IndexSync, loop: Loop, registry: int
    ) -> None:
        self._registry = registry
        self._world, self._publisher, self._index, self._loop = world, publisher, index, loop
        self._handed = 0
        self._covered = False
        self._awaited = ("", "")
        self._told: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._dice = random.Random(1)

    async def watch(self, url: str, started: asyncio.Event) -> None:
        """Read an agent's stream until cancelled."""
        headers = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
        limits, kind = aiohttp.ClientTimeout(total=None), ""
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{url}/v1/watch", timeout=limits) as stream,
        ):
            stream.raise_for_status()
            async for line in stream.content:
                now = time.perf_counter()
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    started.set()
                    awaited, text = self._awaited
                    if kind == awaited and text in line.decode() and not self._told.done():
                        self._told.set_result(now)
        raise RuntimeError("the watch stream ended")

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to one line."""
        if "tools" in asked:
            await asyncio.to_thread(self._hand_over, asked["tools"])
            return {}
        if "state" in asked:
            snapshot = self._publisher.snapshot
            revision = self._publisher.revision
            confirmed = revision is not None and self._publisher.confirmed_by_all(revision)
            published = confirmed and len(snapshot.tools) == self._handed
            writing = self._loop.status_writer.backlog
            return {"published": published, "waiting": self._index.waiting, "writing": writing}
        seconds: dict[str, list[float]] = {"edit": [], "grant": [], "revoke": []}
        used = self._used()
        for _ in range(asked["changes"]):
            number, text = self._dice.randrange(SEEN), f"Changed to {self._dice.random()}."
            edited = manifest(number, text)
            more = binding("more", ["granted:use"], "team", subjects=[_BOT])
            kind = "AgentScopeBinding"
            seconds["edit"].append(
                await self._seen("changed", text, partial(self._world.upsert, "Tool", edited))
            )
            seconds["grant"].append(await self._seen("added", "", partial(self._world.upsert, kind, more)))
            revoke = partial(self._world.remove, kind, "team/more")
            seconds["revoke"].append(await self._seen("removed", "", revoke))
        return {"seconds": seconds, "used": self._used() - used}

    def _used(self) -> float:
        return cpu_seconds(os.getpid()) + cpu_seconds(self._registry)

    def _hand_over(self, count: int) -> None:
        tools = [manifest(n, f"Does what number {n} is asked for.") for n in range(count)]
        self._world.replace("Tool", tools)
        self._handed = count

    async def _seen(self, kind: str, text: str, change: Callable[[], Any]) -> float:
        await asyncio.sleep(self._dice.uniform(0, _APART))
        self._awaited, self._told = (kind, text), asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        change()
        return await asyncio.wait_for(self._told, _PATIENCE) - start


_BOT = {"kind": "ServiceAccount", "name": "bot"}


@contextlib.asynccontextmanager
async def operated(folder: Path, registry: registry_process.RegistryProcess) -> AsyncIterator[Operated]:
    """The operator, leading over an empty catalog that the registry has confirmed."""
    token, world, stop = folder / "admin-token", World(), asyncio.Event()
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    for kind in WATCHED:
        world.replace(kind, [])
    change = world.upsert("AgentScopeBinding", binding("bot", ["seen:use"], "team"))
    async with aiohttp.ClientSession() as session:
        publisher = Publisher(1, FixedReplicas(HttpReplica(registry.admin_url, session, token_file=token)))
        index = IndexSync(publisher)
        settings = LoopSettings(finalizers=False, services=False, accounts=False, quota=None)
        loop = Loop(world, publisher, index, MemoryWriter(world), settings=settings)
        running = asyncio.create_task(loop.run(stop))
        try:
            async with asyncio.timeout(_PATIENCE):
                await loop.published(change)
            yield Operated(world, publisher, index, loop, registry.child.pid)
        finally:
            stop.set()
            await running


async def main(folder: Path, registry: registry_process.RegistryProcess) -> None:
    """Answer until standard input ends."""
    async with operated(folder, registry) as made, process.looked_after():
        started = asyncio.Event()
        watching = asyncio.create_task(made.watch(registry.url, started))
        await asyncio.wait_for(started.wait(), _PATIENCE)
        print(json.dumps({"url": registry.url}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                answer = await made.answer(json.loads(line))
            except Exception as error:
                answer = {"error": repr(error)}
            print(json.dumps(answer), flush=True)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


if __name__ == "__main__":
    logs.configure({})
    where = Path(sys.argv[1])
    with registry_process.process(
        registry_process.configuration(where, embedder={"kind": sys.argv[2]})
    ) as replica:
        asyncio.run(main(where, replica))
    for told in held_loops.unknown(replica.lines):
        print(told, file=sys.stderr)  # the parent reads our log for what held a loop
