"""The Weaviate store against faults of a real server, and the searcher on it."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from weaviate.collections.data import _DataCollectionAsync

from hash_embedder import HashEmbedder
from index_entries import numbered
from realparts.required import require_real
from realparts.weaviate import Weaviate
from reference_ranking import rank
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.weaviate import store as weaviate_store
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import identity_of
from toolcrib_registry.search.entry import IndexEntry, Pushdown
from toolcrib_registry.search.errors import StoreRejected, StoreUnavailable
from toolcrib_registry.search.question import AskedMode, Wanted
from toolcrib_registry.search.searcher import Answer, Searcher
from vector_of import vector_of
from weaviate_collection import collection_of

pytestmark = [pytest.mark.anyio, pytest.mark.real]

_T = TypeVar("_T")
EMBEDDER = HashEmbedder()
IDENTITY = identity_of(EMBEDDER)
KEY = "a-key-of-this-test-alone"
EVERYWHERE = Pushdown()
WORDS = ("read", "write", "list", "delete", "weather", "city", "invoice", "customer", "database", "backup")


@pytest.fixture(scope="module")
def own_server() -> Iterator[Weaviate]:
    """A server that wants an API key and may be stopped."""
    require_real("weaviate")
    with Weaviate(api_key=KEY) as server:
        yield server


def settings(server: Weaviate, **fields: Any) -> WeaviateSettings:
    """Where `server` is."""
    fields.setdefault("collection_prefix", f"Test{secrets.token_hex(4)}")
    fields.setdefault("search_seconds", 20.0)
    return WeaviateSettings(
        "127.0.0.1", server.http_port, grpc_port=server.grpc_port, api_key=server.api_key, **fields
    )


@pytest.fixture
async def store(weaviate_server: Weaviate) -> AsyncIterator[WeaviateStore]:
    """An empty store on the suite's server."""
    store = WeaviateStore(settings(weaviate_server), IDENTITY)
    yield store
    gone(store, weaviate_server)
    await store.aclose()


def gone(store: WeaviateStore, server: Weaviate) -> None:
    """Delete the store's collection, as anybody may."""
    server.client.delete(f"/v1/schema/{collection_of(store)}").raise_for_status()


def tool(number: int, **fields: Any) -> IndexEntry:
    """Tool `number`."""
    words = f"{WORDS[number % 10]} {WORDS[number // 10 % 10]}"
    return numbered(number, **{"description": words, **fields})


async def put(store: WeaviateStore, *entries: IndexEntry) -> None:
    """Upsert with vectors."""
    await store.put(entries, await EMBEDDER.embed_documents([dense_text(e) for e in entries]))


async def found(store: WeaviateStore, text: str = "read", within: Pushdown = EVERYWHERE) -> dict[str, str]:
    """Tool id to digest of the nearest to `text`."""
    return {
        s.tool_id: s.digest for s in await store.nearest(await EMBEDDER.embed_request([text]), 99, within)
    }


async def until_answered(ask: Callable[[], Awaitable[_T]]) -> _T:
    """What `ask` gives, asked until the server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.1)


async def test_a_server_that_restarts_is_found_again_with_everything_in_it(own_server: Weaviate) -> None:
    store = WeaviateStore(settings(own_server, search_seconds=1.0), IDENTITY)
    await put(store, tool(1), tool(2))
    await until_answered(store.healthy)

    await asyncio.to_thread(own_server.stop)
    with pytest.raises(StoreUnavailable):
        await store.healthy()
    with pytest.raises(StoreUnavailable):
        await found(store)
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(10):
            await store.healthy()
    await asyncio.to_thread(own_server.start)

    assert await until_answered(store.inventory) == {"ns/tool-0001": "d1", "ns/tool-0002": "d2"}
    await put(store, tool(3))
    assert len(await store.confirm(["ns/tool-0001", "ns/tool-0003"])) == 2
    await store.aclose()


@pytest.mark.parametrize(
    ("message", "for_the_moment"),
    [
        # seen: a three-node Weaviate 1.39 whose leader was killed; the others are made up after its like
        ("failed to execute query: rpc error: code = Canceled desc = ", True),
        ("put object: broadcast: cannot reach enough replicas", True),
        ("leader not found", True),
        ("put object: import into index: vector lengths don't match: 2 vs 256", False),
        ("invalid text property 'name' on class 'X': not a string, but float64", False),
        ('rpc error: code = InvalidArgument desc = "tags"', False),
    ],
)
def test_what_a_cluster_refuses_while_it_has_no_leader_is_not_refused_for_good(
    message: str, for_the_moment: bool
) -> None:
    assert weaviate_store.passes(message) is for_the_moment


async def test_a_server_that_hangs_is_waited_for_no_longer_than_the_deadline(own_server: Weaviate) -> None:
    store = WeaviateStore(settings(own_server, search_seconds=0.5), IDENTITY)
    await put(store, tool(1))

    own_server.pause()
    try:
        async with asyncio.timeout(20):
            with pytest.raises(StoreUnavailable):
                await store.healthy()
    finally:
        own_server.resume()

    assert await until_answered(store.inventory) == {"ns/tool-0001": "d1"}
    await store.aclose()


async def test_a_wrong_key_is_an_outage_that_does_not_show_the_key(own_server: Weaviate) -> None:
    wrong = "not-the-key-7f3a"
    where = WeaviateSettings("127.0.0.1", own_server.http_port, grpc_port=own_server.grpc_port, api_key=wrong)
    store = WeaviateStore(where, IDENTITY)

    with pytest.raises(StoreUnavailable) as caught:
        await store.inventory()
    with pytest.raises(StoreUnavailable):
        await put(store, tool(1))

    assert wrong not in str(caught.value)
    assert wrong not in repr(where)
    await store.aclose()


async def test_nobody_listening_is_told_at_once() -> None:
    free = WeaviateSettings("127.0.0.1", 9, grpc_port=10)
    store = WeaviateStore(free, IDENTITY)

    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable):
            await store.healthy()
    await store.aclose()


async def test_a_collection_that_was_deleted_reads_empty_and_is_made_again(
    store: WeaviateStore, weaviate_server: Weaviate
) -> None:
    await put(store, tool(1), tool(2))
    gone(store, weaviate_server)

    assert await store.inventory() == {}
    assert await store.confirm(["ns/tool-0001"]) == {}
    assert await store.get(["ns/tool-0001"]) == []
    assert await found(store) == {}
    await store.remove(["ns/tool-0001"])
    await store.healthy()

    await put(store, tool(2))
    assert await store.inventory() == {"ns/tool-0002": "d2"}
    schema = weaviate_server.client.get(f"/v1/schema/{collection_of(store)}").json()
    assert {p["tokenization"] for p in schema["properties"]} == {"field"}
    assert {p["indexSearchable"] for p in schema["properties"]} == {False}, (
        "words are counted in the registry"
    )


async def test_a_collection_that_is_just_deleted_and_made_is_no_outage(weaviate_server: Weaviate) -> None:
    where = settings(weaviate_server)
    writer, reader = WeaviateStore(where, IDENTITY), WeaviateStore(where, IDENTITY)
    full = {"ns/tool-0001": "d1", "ns/tool-0002": "d2"}
    reads = [0] * 4

    async def read(number: int) -> None:
        while True:
            assert (await reader.inventory()).items() <= full.items()
            assert (await found(reader)).items() <= full.items()
            await reader.remove(["ns/tool-0009"])
            reads[number] += 1

    async def all_have_read() -> None:
        wanted = [n + 1 for n in reads]
        while any(n < w for n, w in zip(reads, wanted, strict=True)):
            assert not [r.result() for r in readers if r.done()]
            await asyncio.sleep(0.002)

    readers = [asyncio.create_task(read(i)) for i in range(len(reads))]
    try:
        for _ in range(5):
            await put(writer, tool(1), tool(2))
            await asyncio.to_thread(gone, writer, weaviate_server)
            await all_have_read()
    finally:
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    await asyncio.gather(writer.aclose(), reader.aclose())


async def test_a_collection_of_somebody_elses_making_is_replaced(weaviate_server: Weaviate) -> None:
    where = settings(weaviate_server)
    store = WeaviateStore(where, IDENTITY)
    weaviate_server.client.post(
        "/v1/objects", json={"class": collection_of(store), "properties": {"tool_id": "x"}}
    )

    await put(store, tool(1))

    assert await store.inventory() == {"ns/tool-0001": "d1"}
    assert await found(store, "write") == {"ns/tool-0001": "d1"}
    gone(store, weaviate_server)
    await store.aclose()


async def test_two_replicas_may_write_at_once(weaviate_server: Weaviate) -> None:
    where = settings(weaviate_server)
    stores = [WeaviateStore(where, IDENTITY) for _ in range(3)]

    await asyncio.gather(*(put(s, *(tool(i) for i in range(20))) for s in stores))

    assert await stores[0].inventory() == {f"ns/tool-{i:04d}": f"d{i}" for i in range(20)}
    gone(stores[0], weaviate_server)
    for store in stores:
        await store.aclose()


async def test_objects_that_the_server_refuses_are_named(
    store: WeaviateStore, weaviate_server: Weaviate
) -> None:
    """The collection already holds a vector of another length, so Weaviate refuses ours."""
    await put(store, tool(1))
    schema = weaviate_server.client.get(f"/v1/schema/{collection_of(store)}").json()
    gone(store, weaviate_server)
    weaviate_server.client.post("/v1/schema", json=schema).raise_for_status()
    alien = {
        "class": collection_of(store),
        "properties": {"tool_id": "x"},
        "vectors": {"default": [1.0, 0.0]},
    }
    weaviate_server.client.post("/v1/objects", json=alien).raise_for_status()

    with pytest.raises(StoreRejected) as caught:
        await put(store, tool(2), tool(3))

    assert sorted(caught.value.reasons) == ["ns/tool-0002", "ns/tool-0003"]


@pytest.mark.parametrize("good", [(), (tool(4),)], ids=["all", "some"])
async def test_what_is_refused_for_a_moment_is_written_again(
    store: WeaviateStore,
    weaviate_server: Weaviate,
    monkeypatch: pytest.MonkeyPatch,
    good: tuple[IndexEntry, ...],
) -> None:
    """The server refuses tool 2, whose vector is spoilt on the way to it, twice."""
    refusals = 0
    real = _DataCollectionAsync.insert_many

    async def insert_many(data: Any, objects: list[Any]) -> Any:
        nonlocal refusals
        refusals += 1
        if refusals < 3:
            objects = [
                replace(o, vector=[1.0]) if o.properties["tool_id"] == "ns/tool-0002" else o for o in objects
            ]
        return await real(data, objects)

    await put(store, tool(1))
    monkeypatch.setattr(_DataCollectionAsync, "insert_many", insert_many)
    monkeypatch.setattr(weaviate_store, "_PASSES", re.compile("vector"))
    await put(store, tool(2), *good)
    assert refusals >= 3
    assert "ns/tool-0002" in await store.inventory()


@pytest.mark.parametrize("index", ["flat", "hnsw"])
async def test_what_a_killed_server_lost_is_not_in_the_inventory_and_comes_back_when_written_again(
    own_server: Weaviate, index: str
) -> None:
    """Weaviate 1.39 may keep an object and lose its vector; then writing the same object again does nothing."""
    store = WeaviateStore(settings(own_server), IDENTITY)
    tools = [tool(i) for i in range(5)]
    await put(store, *tools)
    schema = own_server.client.get(f"/v1/schema/{collection_of(store)}").json()
    gone(store, own_server)
    for vectors in schema["vectorConfig"].values():
        vectors["vectorIndexType"] = index
        vectors["vectorIndexConfig"] = {"distance": "cosine"}
    own_server.client.post("/v1/schema", json=schema).raise_for_status()
    await put(store, *tools)

    own_server.kill()
    await asyncio.to_thread(own_server.start)

    held = await until_answered(store.inventory)
    # with a filter, as the inventory asks: without one HNSW walks a graph, whose links a kill may have cut (ours is flat)
    within = Pushdown(states=frozenset({"Active"}))
    assert await found(store, within=within) == held
    await put(store, *tools)
    assert await store.inventory() == {t.tool_id: t.digest for t in tools}
    await store.aclose()


async def test_a_small_view_on_weaviate_is_ranked_exactly(store: WeaviateStore) -> None:
    everything = [tool(i) for i in range(400)]
    await put(store, *everything)
    view = {e.tool_id: e for e in everything[100:250]}
    searcher = Searcher(store, EMBEDDER, store_seconds=20)

    answer = await searcher.search(view, Wanted("delete the invoice", limit=10, min_score=0.0))

    entries = list(view.values())
    vectors = await EMBEDDER.embed_documents([dense_text(e) for e in entries])
    exact = rank(
        "delete the invoice",
        await vector_of(EMBEDDER, "delete the invoice"),
        list(zip(entries, vectors, strict=True)),
        limit=10,
    )
    assert (answer.mode, answer.degraded) == ("hybrid", False)
    assert [h.tool_id for h in answer.hits] == [r.entry.tool_id for r in exact]
    assert [h.dense for h in answer.hits] == pytest.approx([r.dense for r in exact], abs=1e-4)
    searcher.close()


SHARES = (100.0, 10.0, 1.0, 0.1)
REQUESTS = (
    "delete the invoice of a customer",
    "tool_1700",
    "list what is in the database, then write a backup, and tell me the weather of the city",
    "nothing of the kind 天气",
)
EVERYTHING = [
    tool(
        i,
        server=f"s{i % 7}",
        scopes=("all:use", *(f"share-{s:g}:use" for s in SHARES if i % round(100 / s) == 0)),
        tags=("even",) if i % 2 == 0 else (),
    )
    for i in range(2_400)
]


@pytest.fixture(scope="module")
async def filled(weaviate_server: Weaviate) -> AsyncIterator[WeaviateStore]:
    """2,400 tools on the suite's server."""
    store = WeaviateStore(settings(weaviate_server), IDENTITY)
    await put(store, *EVERYTHING)
    yield store
    gone(store, weaviate_server)
    await store.aclose()


@asynccontextmanager
async def alone(view: dict[str, IndexEntry]) -> AsyncIterator[Searcher]:
    """A search over an embedded index that holds the view and nothing else."""
    entries = list(view.values())
    with tempfile.TemporaryDirectory() as folder:
        store = await EmbeddedStore.open(Path(folder), IDENTITY)
        await store.put(entries, await EMBEDDER.embed_documents([dense_text(e) for e in entries]))
        searcher = Searcher(store, EMBEDDER, store_seconds=20)
        await searcher.prepare(entries)
        yield searcher
        searcher.close()
        await store.aclose()


def shown(answer: Answer) -> list[tuple[object, ...]]:
    """All of each hit; numbers to six places."""
    assert not answer.degraded
    return [
        (
            h.tool_id,
            *(None if n is None else round(n, 6) for n in (h.score, h.confidence, h.dense, h.lexical)),
            h.why,
        )
        for h in answer.hits
    ]


LONG = [pytest.mark.long]


@pytest.mark.parametrize("share", [pytest.param(100.0, marks=LONG), *SHARES[1:]])
@pytest.mark.parametrize("cut", ["scopes", "patterns"])
async def test_whatever_share_is_visible_weaviate_answers_as_an_index_of_the_visible_tools_alone(
    filled: WeaviateStore, share: float, cut: str
) -> None:
    scope = f"share-{share:g}:use"
    mine = [e for e in EVERYTHING if scope in e.scopes]
    down = Pushdown(scopes=frozenset({scope}))
    if cut == "patterns":
        mine = random.Random(int(share * 10)).sample(EVERYTHING, len(mine))
        down = Pushdown(scopes=frozenset({"all:use"}))
    view = {e.tool_id: e for e in mine}
    searcher = Searcher(filled, EMBEDDER, store_seconds=20)
    assert not await searcher.prepare(EVERYTHING), "all vectors are fetched"

    async with alone(view) as only:
        for text in REQUESTS:
            answer = await searcher.search(view, Wanted(text, limit=10, min_score=0.0), down)
            assert shown(answer) == shown(await only.search(view, Wanted(text, limit=10, min_score=0.0))), (
                text
            )

    searcher.close()


@pytest.mark.parametrize(
    ("size", "mode"),
    [
        (150, "hybrid"),
        (150, "lexical"),
        (150, "dense"),
        (150, "compat"),
        (1_500, "hybrid"),
        *(pytest.param(1_500, mode, marks=LONG) for mode in ("lexical", "dense", "compat")),
    ],
)
async def test_every_mode_answers_the_same_from_both_stores(
    filled: WeaviateStore, size: int, mode: AskedMode
) -> None:
    view = {e.tool_id: e for e in EVERYTHING[:size]}
    searcher = Searcher(filled, EMBEDDER, store_seconds=20)
    assert not await searcher.prepare(EVERYTHING), "all vectors are fetched"

    async with alone(view) as only:
        for text in REQUESTS:
            answer = await searcher.search(view, Wanted(text, limit=25, mode=mode, min_score=0.0))
            assert answer.mode == mode
            assert shown(answer) == shown(
                await only.search(view, Wanted(text, limit=25, mode=mode, min_score=0.0))
            ), text

    searcher.close()


async def test_a_store_that_is_wiped_is_empty_for_replicas_that_start_then_until_it_is_filled(
    store: WeaviateStore, weaviate_server: Weaviate
) -> None:
    """Another process deletes the collection: a replica that has the vectors ranks on. Entries come back bit by bit, and
    meanwhile nothing outside the view is answered and what the words name is found."""
    everything = [tool(i, description=f"{WORDS[i % 10]} {WORDS[i // 7 % 10]} x{i}") for i in range(600)]
    view = {e.tool_id: e for e in everything[:400]}
    await put(store, *everything)
    searcher = Searcher(store, EMBEDDER, store_seconds=20)
    await searcher.prepare(everything)

    async def told(asked: Searcher) -> list[list[tuple[object, ...]]]:
        answers = [await asked.search(view, Wanted(text, limit=10, min_score=0.0)) for text in REQUESTS]
        return [shown(a) for a in answers if not a.degraded]

    async with alone(view) as only:
        right = [shown(await only.search(view, Wanted(text, limit=10, min_score=0.0))) for text in REQUESTS]
    assert [
        shown(await searcher.search(view, Wanted(text, limit=10, min_score=0.0))) for text in REQUESTS
    ] == right

    gone(store, weaviate_server)
    assert [
        shown(await searcher.search(view, Wanted(text, limit=10, min_score=0.0))) for text in REQUESTS
    ] == right
    fresh = Searcher(store, EMBEDDER, store_seconds=20)
    emptied = await fresh.search(view, Wanted("x77 invoice", limit=10, min_score=0.0))
    assert (emptied.mode, emptied.degradation) == ("lexical", "index_empty")
    assert emptied.hits[0].tool_id == "ns/tool-0077"
    for start in range(0, 600, 200):
        await put(store, *everything[start : start + 200])
        for text in ("x350 weather", *REQUESTS):
            for asked in (searcher, fresh):
                assert {
                    h.tool_id for h in (await asked.search(view, Wanted(text, limit=10, min_score=0.0))).hits
                } <= view.keys()
        named = await fresh.search(view, Wanted("x350", limit=1, min_score=0.0))
        assert [h.tool_id for h in named.hits] == ["ns/tool-0350"], start

    async with asyncio.timeout(60):
        for asked in (searcher, fresh):
            while (await told(asked)) != right:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    searcher.close()
    fresh.close()


async def test_a_large_view_whose_vectors_are_not_here_yet_holds_only_its_own(store: WeaviateStore) -> None:
    """Most of what the superset finds first is denied: ever more is asked for."""
    denied = [tool(i, description="backup the database", name=f"backup_{i}") for i in range(2_000)]
    mine = [tool(i) for i in range(2_000, 2_300)]
    await put(store, *denied, *mine)
    view = {e.tool_id: e for e in mine}
    searcher = Searcher(store, EMBEDDER, store_seconds=30)

    answer = await searcher.search(
        view, Wanted("backup the database", limit=8, min_score=0.0), Pushdown(scopes=frozenset({"a:use"}))
    )

    assert {h.tool_id for h in answer.hits} <= view.keys()
    assert len(answer.hits) == 8
    vectors = await EMBEDDER.embed_documents([dense_text(e) for e in mine])
    exact = rank(
        "backup the database",
        await vector_of(EMBEDDER, "backup the database"),
        list(zip(mine, vectors, strict=True)),
        limit=8,
    )
    assert [h.tool_id for h in answer.hits] == [r.entry.tool_id for r in exact]
    searcher.close()
