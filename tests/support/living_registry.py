"""The real registry behind the operator's real loop, over HTTP: manifests go in, searches come out.

    async with living(tmp_path, tool("forecast"), store=...) as life:
        await life.apply(tool("other"))
        life.search("a question")

Words are embedded by `Concepts`: texts about the same thing are alike though they share no word.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from hash_embedder import HashEmbedder
from manifests import binding
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.adapters.replica_http import HttpReplica
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import IndexSettings, LoopSettings, PublisherSettings
from toolcrib_operator.world import World
from toolcrib_registry.search.entry import Vector
from waiting import until

SAME = {
    "sky": "umbrella wet drizzle weather rain forecast tomorrow storm",
    "money": "euros dollars cash currency exchange convert rates",
    "door": "vault lock open key combination safe",
}
_MEANS = {word: meaning for meaning, words in SAME.items() for word in words.split()}


class Concepts(HashEmbedder):
    """An embedder that knows the synonyms of `SAME`; documents wait while its gate is closed."""

    def __init__(self) -> None:
        super().__init__(64)
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        """Set while documents wait at the gate."""

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        return await super().embed_request([_meaning(t) for t in texts])

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        if not self.gate.is_set():
            self.waiting.set()
            assert await asyncio.to_thread(self.gate.wait, 60), "the gate stayed closed"
        return await super().embed_documents([_meaning(t) for t in texts])


def _meaning(text: str) -> str:
    return " ".join(_MEANS.get(word, word) for word in re.findall(r"\w+", text.lower()))


class Living:
    """A registry, the loop that publishes to it, and an agent that may see everything."""

    def __init__(
        self, r: RunningRegistry, world: World, loop: Loop, index_sync: IndexSync, embedder: Concepts
    ) -> None:
        self.r, self.world, self.index_sync, self.embedder = r, world, index_sync, embedder
        self._loop = loop
        self._headers = r.auth("heist", "bot")

    async def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply Tools; returns when the registry has confirmed them."""
        change = 0
        for manifest in manifests:
            change = self.world.upsert("Tool", manifest)
        async with asyncio.timeout(30):
            await self._loop.published(change)

    async def delete(self, *names: str) -> None:
        """Delete Tools; returns when the registry has confirmed it."""
        change = 0
        for name in names:
            change = self.world.remove("Tool", f"heist/{name}")
        async with asyncio.timeout(30):
            await self._loop.published(change)

    async def search(self, query: str, **body: Any) -> list[str]:
        """The names that are found, best first."""
        return [tool["name"] for tool in (await self.answer(query, **body))["tools"]]

    async def answer(self, query: str, **body: Any) -> dict[str, Any]:
        """The whole answer."""
        asked = ({"query": query} if query else {}) | {"limit": 5, "min_score": 0} | body

        def ask() -> Any:
            return self.r.http.post(self.r.url + "/v1/search", headers=self._headers, json=asked)

        got = await asyncio.to_thread(ask)
        assert got.status_code == 200, got.text
        found: dict[str, Any] = got.json()
        return found

    async def indexed(self, name: str) -> None:
        """Return once the store has acknowledged the published definition, and nothing else waits for it.

        A tool that was disabled and is enabled again has the digest of before, and waits all the same.
        """
        tool_id = f"heist/{name}"

        def is_in() -> bool:
            tool = self._loop.assessor.published.get(Ref("Tool", tool_id))
            held = tool is not None and (self.index_sync.held or {}).get(tool_id) == tool.digest  # type: ignore[union-attr]
            return held and self.index_sync.lag == 0

        await until(is_in)

    async def unindexed(self, name: str) -> None:
        """Return once the store has acknowledged the removal."""
        await until(lambda: f"heist/{name}" not in (self.index_sync.held or {}))

    async def stored(self) -> dict[str, str]:
        """Everything that is really in the store."""
        found: dict[str, str] = await asyncio.to_thread(self.r.on_loop, self.r.registry.store.inventory)
        return found


@contextlib.asynccontextmanager
async def _running(**settings: Any) -> AsyncIterator[RunningRegistry]:
    """`running_registry`, which runs event loops of its own, from within one."""
    running = running_registry(**settings)
    r = await asyncio.to_thread(running.__enter__)
    try:
        yield r
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


@contextlib.asynccontextmanager
async def living(
    folder: Path,
    *manifests: Mapping[str, Any],
    scopes: Sequence[str] = ("s:use",),
    epoch: int = 1,
    **settings: Any,
) -> AsyncIterator[Living]:
    """A registry and a loop; `manifests` are published and in the index.

    Args:
        folder: for the operator's token.
        manifests: Tools of the namespace `heist`.
        scopes: what `heist/bot` is granted.
        epoch: of the leadership; a later one of the same store must be higher.
        settings: of `running_registry`, `store` for example.
    """
    token, embedder, world, stop = folder / "admin-token", Concepts(), World(), asyncio.Event()
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    async with _running(publish=False, embedder=embedder, **settings) as r:
        async with aiohttp.ClientSession() as session:
            publisher = Publisher(
                epoch,
                FixedReplicas(HttpReplica(r.admin_url, session, token_file=token)),
                settings=PublisherSettings(heartbeat=0.2, discover=0.1),
            )
            index_sync = IndexSync(publisher, settings=IndexSettings(inventory=0.5, backoff=(0.05, 0.2)))
            loop = Loop(
                world, publisher, index_sync, MemoryWriter(world),
                settings=LoopSettings(finalizers=False, services=False, accounts=False),
            )  # fmt: skip
            for kind in WATCHED:
                world.replace(kind, list(manifests) if kind == "Tool" else [])
            world.upsert("AgentScopeBinding", binding("bot", scopes))
            running = asyncio.create_task(loop.run(stop))
            try:
                await until(lambda: publisher.revision and publisher.confirmed_by_all(publisher.revision))
                await until(lambda: index_sync.held is not None and not index_sync.waiting)
                yield Living(r, world, loop, index_sync, embedder)
            finally:
                embedder.gate.set()
                stop.set()
                await running
