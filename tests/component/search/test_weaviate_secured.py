"""A Weaviate as clusters have it: TLS by a private authority, API keys that rotate, a node that is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hash_embedder import HashEmbedder
from index_entries import numbered
from realparts.required import require_real
from realparts.weaviate import Weaviate
from realparts.weaviate_cluster import weaviate_cluster
from secret_volume import SecretVolume
from service_proxy import service
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.errors import StoreUnavailable
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.searcher import Searcher

pytestmark = [pytest.mark.anyio, pytest.mark.real]

EMBEDDER = HashEmbedder()
IDENTITY = identity_of(EMBEDDER)
OLD, NEW = "the-old-key", "the-new-key"


def tool(number: int) -> IndexEntry:
    return numbered(number, description="read a file")


async def put(store: WeaviateStore, *entries: IndexEntry) -> None:
    await store.put(entries, await EMBEDDER.embed_documents([e.name for e in entries]))


async def found(store: WeaviateStore) -> set[str]:
    return {s.tool_id for s in await store.nearest(await EMBEDDER.embed_request(["read"]), 10, Pushdown())}


async def test_tls_by_a_private_authority_and_keys_that_are_replaced(tmp_path: Path) -> None:
    require_real("weaviate")
    volume = SecretVolume(tmp_path / "tls", "127.0.0.1")
    foreign = SecretVolume(tmp_path / "foreign", "127.0.0.1")
    key = tmp_path / "key"
    key.write_text(OLD + "\n")

    def opened(**fields: Any) -> WeaviateStore:
        where: dict[str, Any] = {
            "search_seconds": 20.0,  # what is asked here is whether it connects, not how soon
            "secure": True,
            "ca_file": str(volume.ca),
            "api_key_file": str(key),
            **fields,
        }
        return WeaviateStore(
            WeaviateSettings("127.0.0.1", server.http_port, grpc_port=server.grpc_port, **where), IDENTITY
        )

    with Weaviate(api_key=f"{OLD},{NEW}", tls=(volume.ca, volume.cert, volume.key)) as server:
        store = opened()
        await put(store, tool(1), tool(2))
        assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}

        # being written, or a mistake: the connection that there is goes on
        key.write_text("")
        assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}
        key.unlink()
        assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}
        key.write_text(OLD)
        authority = volume.ca.read_bytes()
        for broken in (b"", authority[: len(authority) // 2], b"\xff", foreign.ca.read_bytes()):
            volume.ca.write_bytes(broken)
            assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}
        volume.ca.write_bytes(authority)
        assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}

        key.write_text("a-key-that-nobody-knows")
        with pytest.raises(StoreUnavailable, match=r"refuses the API key: see store\.api_key_file"):
            await store.healthy()
        key.write_text(NEW)
        assert await found(store) == {"ns/tool-0001", "ns/tool-0002"}

        for fields, words in (
            ({"ca_file": None}, r"certificate is not trusted \(.*\): see store\.ca_file"),
            ({"ca_file": str(key)}, "holds no certificate"),
            (
                {"ca_file": str(tmp_path / "nowhere")},
                r"store\.ca_file .*nowhere cannot be read: No such file",
            ),
            ({"api_key_file": str(tmp_path / "nowhere")}, r"store\.api_key_file .*nowhere cannot be read"),
            ({"api_key_file": None}, r"requires an API key: set store\.api_key_file"),
        ):
            other = opened(**fields)
            with pytest.raises(StoreUnavailable, match=words) as raised:
                await other.healthy()
            assert NEW not in str(raised.value)
            await other.aclose()
        await store.aclose()


@pytest.mark.node  # 10 s and three servers: of `make cluster-test`
async def test_one_node_of_a_three_node_weaviate_may_be_lost(caplog: pytest.LogCaptureFixture) -> None:
    """No search and no write fails, no answer is lexical, and those that meet the loss take at most 1 s more, by their own
    record. Later ones may wait for a node that is left until it has noticed the loss, some 2.5 s after it (Weaviate 1.39)."""
    require_real("weaviate")
    # as toolcrib_registry.main does: else a full collection of all that pytest holds stops searches for half a second
    gc.collect()
    gc.freeze()
    view = {e.tool_id: e for e in map(tool, range(5))}
    with weaviate_cluster() as nodes:
        ready = [f"{node.url}/v1/.well-known/ready" for node in nodes]
        with (
            service([(n.http_port, r) for n, r in zip(nodes, ready, strict=True)]) as http,
            service([(n.grpc_port, r) for n, r in zip(nodes, ready, strict=True)]) as rpc,
        ):
            # what is asked for at all is asked for long; how long it took is in the record
            where = WeaviateSettings(
                "127.0.0.1", http.port, grpc_port=rpc.port, replicas=3, search_seconds=20.0
            )
            stores = [WeaviateStore(where, IDENTITY) for _ in range(3)]
            searched, written, removed = stores
            # holding nothing, it asks the store each time
            searcher = Searcher(searched, EMBEDDER, store_seconds=20.0, resident_bytes=0)
            caplog.set_level(logging.INFO, "weaviate-client")
            await put(written, *view.values())
            done: Counter[str] = Counter()
            searches: dict[int, list[tuple[float, float]]] = {n: [] for n in range(3)}
            """Of each searcher: when a search began, and its seconds."""
            over = asyncio.Event()

            async def repeat(what: str, work: Callable[[int], Awaitable[object]]) -> None:
                while not over.is_set():
                    began = time.monotonic()
                    await work(done[what])
                    done[what] += 1
                    # without a rest all of them queue for the processor, and that is all there would be to measure
                    await asyncio.sleep(2 * (time.monotonic() - began))

            async def search(who: int) -> None:
                began = time.monotonic()
                answer = await searcher.search(view, Wanted("read a file", min_score=0))
                assert (answer.mode, answer.degradation, len(answer.hits)) == ("hybrid", "", 5)
                searches[who].append((began, time.monotonic() - began))

            others = dict(rpc.counts)
            await search(0)
            # the worst one: the node that every search goes to, since all of a process share one connection
            victim = next(n for n in nodes if rpc.counts[n.grpc_port] > others[n.grpc_port])

            async with asyncio.timeout(180), asyncio.TaskGroup() as group:
                for who in searches:
                    group.create_task(repeat("search", lambda _, who=who: search(who)))
                group.create_task(repeat("write", lambda n: put(written, tool(100 + n))))
                group.create_task(repeat("remove", lambda n: removed.remove([f"ns/tool-{5000 + n:04d}"])))

                async def more(count: int) -> None:
                    goal = {what: done[what] + count for what in ("search", "write", "remove")}
                    while any(done[what] < goal[what] for what in goal):  # noqa: ASYNC110 - a count is waited for
                        await asyncio.sleep(0.05)

                await more(10)
                connected, start = sum(rpc.counts.values()), time.monotonic()
                await asyncio.to_thread(victim.kill)
                lost = time.monotonic()
                await more(10)
                over.set()
            before, met, after = [], [], []
            for own in searches.values():
                first = min(began for began, _ in own if began >= lost)
                for began, took in own:
                    earlier = began + took < start
                    (before if earlier else met if began <= first else after).append(took)
            print(
                dict(done),
                f"slowest search {max(before):.2f} s before the loss, {max(met):.2f} s of {len(met)} that met it, "
                f"{max(after):.2f} s later",
                rpc.counts,
            )
            assert sum(rpc.counts.values()) > connected, "nothing was lost"
            assert max(met) <= max(before) + 1.0
            assert not [r for r in caplog.records if "etrying" in r.getMessage()], "weaviate-client waited"
            searcher.close()
            for store in stores:
                await store.aclose()
    gc.unfreeze()
