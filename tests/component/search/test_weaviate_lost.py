"""Connections to a real Weaviate that break or stay silent: what the next attempt does, and what a search costs."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import pytest

from hash_embedder import HashEmbedder
from index_entries import numbered
from realparts import processes
from realparts.weaviate import Weaviate
from relay import Relay, relay
from toolcrib_registry.adapters.weaviate import store as weaviate_store
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Answer, Searcher

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EMBEDDER = HashEmbedder()
IDENTITY = identity_of(EMBEDDER)
AWAY = ("lexical", "store_unavailable")


def tool(number: int) -> IndexEntry:
    return numbered(number, description="read a file")


VIEW = {e.tool_id: e for e in map(tool, range(5))}


async def put(store: WeaviateStore, *entries: IndexEntry) -> None:
    await store.put(entries, await EMBEDDER.embed_documents([dense_text(e) for e in entries]))


def shown(answer: Answer) -> tuple[str, str]:
    return answer.mode, answer.degradation


@dataclass
class Behind:
    """A store that reaches Weaviate through relays, and searches of it."""

    store: WeaviateStore
    http: Relay
    rpc: Relay
    made: list[Searcher]

    async def search(self, seconds: float = 20.0) -> Answer:
        """One search that waits `seconds` for the store; earlier failures do not keep it from asking."""
        self.made.append(Searcher(self.store, EMBEDDER, store_seconds=seconds))
        return await self.made[-1].search(VIEW, Wanted("read a file", min_score=0.0))


@asynccontextmanager
async def behind(server: Weaviate, search_seconds: float = 20.0) -> AsyncIterator[Behind]:
    async with relay(server.http_port) as http, relay(server.grpc_port) as rpc:
        where = WeaviateSettings(
            "127.0.0.1",
            http.port,
            grpc_port=rpc.port,
            collection_prefix=f"Test{secrets.token_hex(4)}",
            search_seconds=search_seconds,
        )
        b = Behind(WeaviateStore(where, IDENTITY), http, rpc, [])
        await put(b.store, *VIEW.values())
        assert shown(await b.search()) == ("hybrid", "")
        yield b
        await b.store.remove(await b.store.inventory())
        await b.store.aclose()
        for searcher in b.made:
            searcher.close()


async def test_a_search_whose_connection_breaks_is_answered_over_a_new_one_at_once(
    weaviate_server: Weaviate, caplog: pytest.LogCaptureFixture
) -> None:
    """weaviate-client itself would wait 1 s and use the same channel again: it must not get to that."""
    async with behind(weaviate_server) as b:
        http, rpc = b.http.accepted, b.rpc.accepted
        b.rpc.break_on_request()
        with caplog.at_level(logging.INFO, "weaviate-client"):
            answer = await b.search()

        assert shown(answer) == ("hybrid", "")
        assert not [r for r in caplog.records if "etrying" in r.getMessage()]
        assert (b.http.accepted, b.rpc.accepted) == (http + 1, rpc + 1)
        for number in range(1, rpc + 1):
            await b.rpc.closed(number)
        for number in range(1, http + 1):
            await b.http.closed(number)


async def test_a_write_whose_connection_breaks_is_made_over_a_new_one(
    weaviate_server: Weaviate, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(weaviate_server) as b:
        rpc = b.rpc.accepted
        b.rpc.break_on_request()
        with caplog.at_level(logging.INFO, "weaviate-client"):
            await put(b.store, tool(5))

        assert not [r for r in caplog.records if "etrying" in r.getMessage()]
        assert b.rpc.accepted == rpc + 1
        assert "ns/tool-0005" in await b.store.inventory()


@pytest.mark.parametrize("silent", ["rpc", "http and rpc"])
async def test_a_silent_node_makes_one_answer_lexical_and_the_next_search_takes_another_connection(
    weaviate_server: Weaviate, silent: str
) -> None:
    """The deadline is that of the whole search, as in the product, and a write still holds the old channel."""
    async with behind(weaviate_server) as b:
        b.rpc.silence()
        writing = asyncio.create_task(put(b.store, tool(5)))
        if "http" in silent:
            b.http.silence()
        began = time.monotonic()
        assert shown(await b.search(seconds=0.5)) == AWAY
        assert time.monotonic() - began >= 0.5

        # a busy machine may need more than half a second to connect and ask
        async with asyncio.timeout(15):
            while shown(await b.search(seconds=0.5)) != ("hybrid", ""):
                pass
        assert not writing.done()

        b.rpc.cut()
        b.http.cut()
        await writing
        assert "ns/tool-0005" in await b.store.inventory()


async def test_a_write_that_one_node_never_answers_is_made_by_another(
    weaviate_server: Weaviate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node does that waits for one that is lost: it takes the request and stays silent."""
    monkeypatch.setattr(weaviate_store, "_TRY_SECONDS", 0.5)
    async with behind(weaviate_server) as b:
        before = b.rpc.accepted
        b.rpc.silence()
        await put(b.store, tool(5))
        assert b.rpc.accepted > before
        assert "ns/tool-0005" in await b.store.inventory()


async def test_an_inventory_that_meets_a_silent_node_is_read_over_another_connection(
    weaviate_server: Weaviate,
) -> None:
    """weaviate-client's own deadline, which is that of a search, ends before that of the inventory."""
    async with behind(weaviate_server, search_seconds=1.0) as b:
        before = b.rpc.accepted
        b.rpc.silence()
        assert await b.store.inventory() == {e.tool_id: e.digest for e in VIEW.values()}
        assert b.rpc.accepted > before


async def test_a_crowd_of_searches_connects_together_while_no_node_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each on its own would connect four times in turn, and without TLS nobody needs certificates to be loaded."""

    def load(*_: object, **__: object) -> NoReturn:
        raise AssertionError("authorities are loaded")

    async with relay(processes.free_port()) as http:
        store = WeaviateStore(WeaviateSettings("127.0.0.1", http.port, grpc_port=9), IDENTITY)
        searcher = Searcher(store, EMBEDDER, store_seconds=20.0, clock=lambda: 0.0)
        monkeypatch.setattr(ssl, "create_default_context", load)
        answers = await asyncio.gather(
            *(searcher.search(VIEW, Wanted("read a file", limit=1 + n, min_score=0.0)) for n in range(50))
        )
        assert {shown(answer) for answer in answers} == {AWAY}
        assert http.accepted < 50
        searcher.close()
        await store.aclose()
