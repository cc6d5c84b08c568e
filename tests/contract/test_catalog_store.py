"""What every CatalogStore promises, run on each: in process over a file, and on a real Weaviate server."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import index_entries
from hash_embedder import HashEmbedder
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Pushdown, Vector
from toolcrib_registry.search.errors import StoreUnavailable
from toolcrib_registry.search.store import CatalogStore

pytestmark = pytest.mark.anyio

EMBEDDER = HashEmbedder()
IDENTITY = identity_of(EMBEDDER)
EVERYTHING = Pushdown()
Opener = Callable[..., Awaitable[CatalogStore]]


@pytest.fixture(params=["embedded", pytest.param("weaviate", marks=pytest.mark.real)])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens a store on the same data again and again; each test has data of its own."""
    stores: list[CatalogStore] = []
    prefix = f"Contract{secrets.token_hex(4)}"
    server: Any = request.getfixturevalue("weaviate_server") if request.param == "weaviate" else None

    async def open_store(identity: IndexIdentity = IDENTITY) -> CatalogStore:
        store: CatalogStore
        if server is None:
            store = await EmbeddedStore.open(tmp_path / "index", identity)
        else:
            where = WeaviateSettings(
                "127.0.0.1",
                server.http_port,
                grpc_port=server.grpc_port,
                collection_prefix=prefix,
                search_seconds=20.0,
            )
            store = WeaviateStore(where, identity)
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        with contextlib.suppress(StoreUnavailable):
            await store.remove(await store.inventory())
        await store.aclose()


@pytest.fixture
async def store(opener: Opener) -> CatalogStore:
    """One open, empty store."""
    return await opener()


def entry(name: str, description: str = "", **fields: Any) -> IndexEntry:
    """A tool of namespace `tools` with a digest made from its description."""
    namespace = fields.pop("namespace", "tools")
    fields.setdefault("scopes", (f"{name}:use",))
    fields.setdefault("digest", f"sha256:{abs(hash((name, description)))}")
    return index_entries.entry(f"{namespace}/{name}", description=description, **fields)


async def put(store: CatalogStore, *entries: IndexEntry) -> None:
    """Upsert `entries` with vectors, where the store has any."""
    vectors = await EMBEDDER.embed_documents([dense_text(e) for e in entries])
    await store.put(entries, vectors if store.identity.dimension else None)


async def meaning(*texts: str) -> Vector:
    """What `nearest` is asked by: a row a text."""
    return await EMBEDDER.embed_request(texts)


async def ask(store: CatalogStore, text: str, limit: int = 10, within: Pushdown = EVERYTHING) -> list[str]:
    """Ids of the nearest to `text`, best first."""
    return [s.tool_id for s in await store.nearest(await meaning(text), limit, within)]


READER = entry("read_file", "Read a file of the shared folder", server="files", tags=("Files", "io"))
WRITER = entry("write_file", "Write a file of the shared folder", server="files", tags=("files", "danger"))
WEATHER = entry("get_weather", "Tomorrow's weather forecast of a city", server="weather", tags=("outdoor",))
SQL = entry(
    "database_query", "Run a read-only SQL statement", namespace="data", parameters={"statement": "SQL"}
)
TOOLS: Sequence[IndexEntry] = (READER, WRITER, WEATHER, SQL)


async def test_an_empty_store_has_an_empty_inventory_and_finds_nothing(store: CatalogStore) -> None:
    assert await store.inventory() == {}
    assert await ask(store, "read a file") == []
    assert await store.confirm(["tools/read_file"]) == {}
    assert await store.get(["tools/read_file"]) == []
    await store.remove(["tools/read_file"])
    await store.healthy()


async def test_what_was_written_is_in_the_inventory_is_confirmed_and_is_found_at_once(
    store: CatalogStore,
) -> None:
    await put(store, *TOOLS)

    assert await store.inventory() == {t.tool_id: t.digest for t in TOOLS}
    assert await store.confirm([READER.tool_id, SQL.tool_id, "tools/unknown"]) == {
        READER.tool_id: READER.digest,
        SQL.tool_id: SQL.digest,
    }
    assert (await ask(store, "what will the weather be like in the city"))[0] == WEATHER.tool_id
    assert (await ask(store, "run SQL"))[0] == SQL.tool_id


async def test_writing_the_same_entries_again_changes_nothing(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    before = await ask(store, "shared folder")

    await put(store, *TOOLS)

    assert await store.inventory() == {t.tool_id: t.digest for t in TOOLS}
    assert await ask(store, "shared folder") == before


async def test_an_update_replaces_vector_filters_and_digest(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    changed = entry(
        "read_file", "Compose baroque music", digest="sha256:new", tags=("music",), scopes=("music:use",)
    )

    await put(store, changed)

    assert (await store.inventory())[READER.tool_id] == "sha256:new"
    assert await store.confirm([READER.tool_id]) == {READER.tool_id: "sha256:new"}
    assert (await ask(store, "compose baroque music"))[0] == READER.tool_id
    assert await ask(store, "baroque music", within=Pushdown(scopes=frozenset({"read_file:use"}))) == []
    assert await ask(store, "baroque music", within=Pushdown(tags=frozenset({"io"}))) == []
    assert await ask(store, "folder", within=Pushdown(servers=frozenset({"files"}))) == [WRITER.tool_id]


async def test_removed_entries_are_gone_from_everything(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    await store.remove([READER.tool_id, "tools/unknown"])

    assert READER.tool_id not in await store.inventory()
    assert await store.confirm([READER.tool_id]) == {}
    assert READER.tool_id not in await ask(store, "read a file of the shared folder")


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (Pushdown(), TOOLS),
        (Pushdown(scopes=frozenset({"read_file:use", "get_weather:use"})), (READER, WEATHER)),
        (Pushdown(scopes=frozenset()), ()),
        (Pushdown(namespaces=frozenset({"data"})), (SQL,)),
        (Pushdown(servers=frozenset({"files"})), (READER, WRITER)),
        (Pushdown(servers=frozenset()), ()),
        (Pushdown(servers=frozenset({"weather", "files"})), (READER, WRITER, WEATHER)),
        (Pushdown(states=frozenset({"Disabled"})), ()),
        (Pushdown(tags=frozenset({"files"})), (READER, WRITER)),
        (Pushdown(tags=frozenset({"files", "danger"})), (WRITER,)),
        (Pushdown(tags=frozenset({"files", "outdoor"})), ()),
        (Pushdown(states=frozenset({"Active"}), namespaces=frozenset({"tools"})), (READER, WRITER, WEATHER)),
        (Pushdown(scopes=frozenset({"read_file:use"}), servers=frozenset({"weather"})), ()),
    ],
)
async def test_a_pushdown_admits_what_passes_all_of_it(
    store: CatalogStore, within: Pushdown, expected: Sequence[IndexEntry]
) -> None:
    await put(store, *TOOLS)

    for wanted in (await meaning("file folder weather"), await meaning("file folder", "weather", "SQL")):
        found = [s.tool_id for s in await store.nearest(wanted, 10, within)]
        assert sorted(found) == sorted(t.tool_id for t in expected)


async def test_servers_and_tags_ignore_case(store: CatalogStore) -> None:
    await put(store, entry("loud", server="FILES", tags=("LOUD",)), SQL)

    assert await ask(store, "loud", within=Pushdown(servers=frozenset({"files"}))) == ["tools/loud"]
    assert await ask(store, "loud", within=Pushdown(tags=frozenset({"loud"}))) == ["tools/loud"]


async def test_no_more_than_the_limit_is_answered_best_first(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    assert await ask(store, "write a file", limit=1) == [WRITER.tool_id]
    assert len(await ask(store, "write a file", limit=2)) == 2
    assert len(await ask(store, "write a file", limit=1000)) == len(TOOLS)
    assert await ask(store, "write a file", limit=0) == []


async def test_the_nearest_are_exact_and_bring_their_vectors_and_digests(store: CatalogStore) -> None:
    """No tool that is left out is nearer to the request, or to a part of it, than the last that is told."""
    many = [entry(f"tool_{i}", f"{TOOLS[i % 4].description} {i * 7919}") for i in range(300)]
    await put(store, *many)
    rows = await EMBEDDER.embed_documents([dense_text(e) for e in many])
    for wanted in (
        await meaning("the weather of tomorrow"),
        await meaning("the weather of tomorrow", "read the folder", "a SQL statement"),
    ):
        best = (rows @ wanted.T).max(axis=1)

        found = await store.nearest(wanted, 40, EVERYTHING)

        numbers = [int(s.tool_id.rpartition("_")[2]) for s in found]
        assert len(set(numbers)) == 40
        assert [best[i] for i in numbers] == pytest.approx(sorted(best, reverse=True)[:40], abs=1e-5)
        for i, one in zip(numbers, found, strict=True):
            assert one.digest == many[i].digest
            np.testing.assert_array_equal(one.vector, rows[i])


async def test_vectors_come_back_as_they_were_given(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    given = await EMBEDDER.embed_documents([dense_text(READER)])

    (found,) = await store.get([READER.tool_id, "tools/unknown"])

    assert (found.tool_id, found.digest) == (READER.tool_id, READER.digest)
    assert found.vector.dtype == np.float32
    np.testing.assert_array_equal(found.vector, given[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\t ",
        "x" * 10_000,
        "'; DROP TABLE entries; --",
        '{"operator": "Or", "valueText": "*"}',
        "read\x00file\x1b[31m\u202e\u200b",
        "lone \ud800 surrogate",
        "天气预报 Ωμέγα 🌦️ e\u0301",
    ],
    ids=["empty", "blank", "long", "sql", "json", "control", "surrogate", "unicode"],
)
async def test_any_text_is_a_harmless_filter(store: CatalogStore, text: str) -> None:
    await put(store, *TOOLS)

    for one in (frozenset({text}), frozenset({text, "files"})):
        within = Pushdown(scopes=one, namespaces=one, servers=one, tags=one)
        assert await ask(store, "read a file", within=within) == []
    assert await store.inventory() == {t.tool_id: t.digest for t in TOOLS}


async def test_any_text_can_be_stored_and_found(store: CatalogStore) -> None:
    strange = [
        entry("chinese", "天气预报查询"),
        entry("emoji", "🌦️ Ωμέγα e\u0301clair \u202e\u200b\x00\x1b bell"),
        entry("surrogate", "half \ud83d of a pair", tags=("\ud83d",)),
        entry("long", "word " * 800, parameters={f"p{i}": "text " * 20 for i in range(200)}),
        entry("empty"),
    ]

    await put(store, *strange)

    assert await store.inventory() == {t.tool_id: t.digest for t in strange}
    assert len(await store.get([t.tool_id for t in strange])) == len(strange)
    assert (await ask(store, dense_text(strange[0])))[0] == "tools/chinese"
    assert (await ask(store, dense_text(strange[2])))[0] == "tools/surrogate"


async def test_entries_of_another_identity_do_not_count(opener: Opener, store: CatalogStore) -> None:
    await put(store, *TOOLS)
    if isinstance(store, EmbeddedStore):
        await store.aclose()

    other = await opener(IndexIdentity("another-model", EMBEDDER.dimension))

    assert await other.inventory() == {}
    assert await ask(other, "read a file") == []
    assert await other.confirm([READER.tool_id]) == {}


async def test_a_store_without_vectors_keeps_what_it_is_given_and_tells_no_nearest(opener: Opener) -> None:
    store = await opener(identity_of(NullEmbedder()))
    await put(store, *TOOLS)

    assert await store.inventory() == {t.tool_id: t.digest for t in TOOLS}
    assert await store.confirm([t.tool_id for t in TOOLS]) == {t.tool_id: t.digest for t in TOOLS}
    assert await store.get([READER.tool_id]) == []
    assert await store.nearest(np.zeros((1, 0), np.float32), 10, EVERYTHING) == []


async def test_a_store_opened_again_has_everything(opener: Opener, store: CatalogStore) -> None:
    await put(store, *TOOLS)
    await store.remove([WRITER.tool_id])
    before = await ask(store, "read a file")
    await store.aclose()

    again = await opener()

    assert await again.inventory() == {t.tool_id: t.digest for t in TOOLS if t is not WRITER}
    assert await ask(again, "read a file") == before


async def test_a_closed_store_says_that_it_is_unavailable(store: CatalogStore) -> None:
    await store.aclose()

    with pytest.raises(StoreUnavailable):
        await store.inventory()
    with pytest.raises(StoreUnavailable):
        await put(store, READER)


async def test_vectors_of_the_wrong_shape_are_a_programming_error(store: CatalogStore) -> None:
    with pytest.raises(ValueError, match="shape"):
        await store.put([READER], np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="vector"):
        await store.put([READER], None)
    with pytest.raises(ValueError, match="finite"):
        await store.put([READER], np.full((1, EMBEDDER.dimension), np.nan, np.float32))
    assert await store.inventory() == {}


async def test_more_than_a_batch_goes_in_and_comes_back(store: CatalogStore) -> None:
    many = [entry(f"tool_{i}", f"does thing number {i}") for i in range(450)]

    await put(store, *many)

    assert await store.inventory() == {t.tool_id: t.digest for t in many}
    assert await store.confirm([t.tool_id for t in many]) == {t.tool_id: t.digest for t in many}
    assert {s.tool_id for s in await store.get([t.tool_id for t in many])} == {t.tool_id for t in many}
    assert (await ask(store, "tool 333 does thing number 333"))[0] == "tools/tool_333"
    await store.remove([t.tool_id for t in many[:400]])
    assert len(await store.inventory()) == 50
