"""What every CatalogStore promises, run on each: in process over a file, and on a real Weaviate server."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hash_embedder import HashEmbedder
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.search.document import dense_text
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Mode, Part, Pushdown, StoreQuery
from toolcrib_registry.search.errors import StoreUnavailable
from toolcrib_registry.search.store import CatalogStore

pytestmark = pytest.mark.anyio

EMBEDDER = HashEmbedder()
IDENTITY = identity_of(EMBEDDER)
EVERYTHING = Pushdown()
Opener = Callable[..., Awaitable[CatalogStore]]


@pytest.fixture(params=["embedded", pytest.param("weaviate", marks=pytest.mark.weaviate)])
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
            await store.wipe()
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
    return IndexEntry(
        tool_id=f"{namespace}/{name}", namespace=namespace, name=name, description=description, **fields
    )


async def put(store: CatalogStore, *entries: IndexEntry) -> None:
    """Upsert `entries` with vectors, where the store has any."""
    vectors = await EMBEDDER.embed_documents([dense_text(e) for e in entries])
    await store.upsert(entries, vectors if store.identity.dimension else None)


async def ask(store: CatalogStore, text: str, limit: int = 10, **fields: Any) -> list[str]:
    """Names of what a query finds, best first; unrestricted unless told."""
    if "ids" not in fields:
        fields.setdefault("within", EVERYTHING)
    vector = await EMBEDDER.embed_query(text) if store.identity.dimension else None
    query = StoreQuery(text=text, vector=vector, limit=limit, **fields)
    return [h.tool_id for h in await store.search(query)]


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
    assert await store.vectors(["tools/read_file"]) == {}
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


async def test_an_update_replaces_words_vector_filters_and_digest(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    changed = entry(
        "read_file", "Compose baroque music", digest="sha256:new", tags=("music",), scopes=("music:use",)
    )

    await put(store, changed)

    assert (await store.inventory())[READER.tool_id] == "sha256:new"
    assert await store.confirm([READER.tool_id]) == {READER.tool_id: "sha256:new"}
    assert await ask(store, "baroque", mode="lexical") == [READER.tool_id]
    assert READER.tool_id not in await ask(store, "shared folder", mode="lexical")
    assert await ask(store, "baroque music", within=Pushdown(scopes=frozenset({"read_file:use"}))) == []
    assert await ask(store, "baroque music", tags=("io",)) == []
    assert await ask(store, "folder", servers=("files",)) == [WRITER.tool_id]


async def test_removed_entries_are_gone_from_everything(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    await store.remove([READER.tool_id, "tools/unknown"])

    assert READER.tool_id not in await store.inventory()
    assert await store.confirm([READER.tool_id]) == {}
    assert READER.tool_id not in await ask(store, "read a file of the shared folder")


async def test_wiping_forgets_everything_and_the_store_goes_on(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    await store.wipe()

    assert await store.inventory() == {}
    assert await ask(store, "read a file") == []
    await put(store, READER)
    assert await ask(store, "read a file") == [READER.tool_id]


async def test_a_list_of_ids_restricts_the_answer_to_exactly_these(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    found = await ask(store, "read a file", ids=frozenset({WRITER.tool_id, SQL.tool_id, "tools/unknown"}))

    assert sorted(found) == sorted([WRITER.tool_id, SQL.tool_id])
    assert await ask(store, "read a file", ids=frozenset()) == []


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (Pushdown(), TOOLS),
        (Pushdown(scopes=frozenset({"read_file:use", "get_weather:use"})), (READER, WEATHER)),
        (Pushdown(scopes=frozenset()), ()),
        (Pushdown(namespaces=frozenset({"data"})), (SQL,)),
        (Pushdown(servers=frozenset({"files"})), (READER, WRITER)),
        (Pushdown(states=frozenset({"Disabled"})), ()),
        (Pushdown(states=frozenset({"Active"}), namespaces=frozenset({"tools"})), (READER, WRITER, WEATHER)),
        (Pushdown(scopes=frozenset({"read_file:use"}), servers=frozenset({"weather"})), ()),
    ],
)
async def test_a_pushdown_admits_what_passes_all_of_it(
    store: CatalogStore, within: Pushdown, expected: Sequence[IndexEntry]
) -> None:
    await put(store, *TOOLS)

    found = await ask(store, "file folder weather statement", within=within)

    assert sorted(found) == sorted(t.tool_id for t in expected)


async def test_tags_are_all_required_and_ignore_case(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    assert sorted(await ask(store, "folder", tags=("FILES",))) == sorted([READER.tool_id, WRITER.tool_id])
    assert await ask(store, "folder", tags=("files", "Danger")) == [WRITER.tool_id]
    assert await ask(store, "folder", tags=("files", "outdoor")) == []
    assert await ask(store, "folder", tags=("danger",), ids=frozenset({READER.tool_id})) == []


async def test_servers_are_alternatives_and_ignore_case(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    assert await ask(store, "forecast", servers=("Weather",)) == [WEATHER.tool_id]
    assert await ask(store, "forecast", servers=("tools/weather",)) == [WEATHER.tool_id]
    both = await ask(store, "folder", servers=("weather", "files"))
    assert sorted(both) == sorted([READER.tool_id, WRITER.tool_id, WEATHER.tool_id])


async def test_no_more_than_the_limit_is_answered_best_first(store: CatalogStore) -> None:
    await put(store, *TOOLS)

    assert await ask(store, "write a file", limit=1) == [WRITER.tool_id]
    assert len(await ask(store, "write a file", limit=2)) == 2
    assert len(await ask(store, "write a file", limit=1000)) == len(TOOLS)
    assert await ask(store, "write a file", limit=0) == []


async def test_each_mode_uses_its_own_evidence(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    vector = await EMBEDDER.embed_query("weather forecast")

    lexical = await store.search(StoreQuery(text="weather", limit=5, mode="lexical", within=EVERYTHING))
    dense = await store.search(StoreQuery(text="", vector=vector, limit=5, mode="dense", within=EVERYTHING))
    hybrid = await store.search(StoreQuery(text="weather", vector=vector, limit=5, within=EVERYTHING))

    assert [h.tool_id for h in lexical] == [WEATHER.tool_id]
    assert lexical[0].dense is None
    assert len(dense) == len(hybrid) == len(TOOLS)
    for hits in (dense, hybrid):
        assert hits[0].tool_id == WEATHER.tool_id
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    own = await EMBEDDER.embed_documents([dense_text(WEATHER)])
    assert hybrid[0].dense == pytest.approx(float(own[0] @ vector), abs=1e-4)


async def parts_of(*texts: str) -> tuple[Part, ...]:
    """Parts with their vectors."""
    rows = await EMBEDDER.embed_request(texts)
    return tuple(Part(text, row) for text, row in zip(texts, rows, strict=True))


async def test_a_request_of_several_parts_finds_what_suits_any_of_them(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    text = "run a SQL statement and then tell me the weather forecast of the city"
    vector = await EMBEDDER.embed_query(text)
    parts = await parts_of("run a SQL statement", "tell me the weather forecast of the city")

    hits = await store.search(StoreQuery(text=text, vector=vector, parts=parts, limit=2, within=EVERYTHING))

    assert {h.tool_id for h in hits} == {WEATHER.tool_id, SQL.tool_id}
    if not store.exact:
        own = (await EMBEDDER.embed_documents([dense_text(WEATHER)]))[0]
        (weather,) = [h for h in hits if h.tool_id == WEATHER.tool_id]
        assert weather.dense == pytest.approx(float(own @ vector), abs=1e-5)
        assert weather.parts == pytest.approx([float(own @ p.vector) for p in parts], abs=1e-5)


async def test_the_nearest_are_exact_and_bring_their_vectors(store: CatalogStore) -> None:
    """No tool that is left out is nearer to the request, or to a part of it, than the last that is told."""
    many = [entry(f"tool_{i}", f"{TOOLS[i % 4].description} {i * 7919}") for i in range(300)]
    await put(store, *many)
    rows = await EMBEDDER.embed_documents([dense_text(e) for e in many])
    vector = await EMBEDDER.embed_query("the weather of tomorrow")
    parts = await parts_of("read the folder", "a SQL statement")
    for own in ((), parts):
        wanted = np.stack([vector, *(p.vector for p in own)])
        cosines = rows @ wanted.T
        best = cosines.max(axis=1)

        hits = await store.search(
            StoreQuery(text="", vector=vector, parts=own, limit=40, mode="nearest", within=EVERYTHING)
        )

        assert len({h.tool_id for h in hits}) == 40
        assert [h.nearness for h in hits] == pytest.approx(sorted(best, reverse=True)[:40], abs=1e-5)
        for hit in hits:
            i = int(hit.tool_id.rpartition("_")[2])
            assert [hit.dense, *hit.parts] == pytest.approx(cosines[i].tolist(), abs=1e-5)
            assert hit.vector is not None
            np.testing.assert_array_equal(hit.vector, rows[i])


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense", "nearest"])
async def test_restrictions_and_filters_hold_in_every_mode_and_for_parts(
    store: CatalogStore, mode: Mode
) -> None:
    await put(store, *TOOLS)
    parts = await parts_of("read a file of the folder", "weather forecast", "SQL statement")

    async def found(**fields: Any) -> list[str]:
        return sorted(await ask(store, "file folder weather SQL", mode=mode, parts=parts, **fields))

    assert await found() == sorted(t.tool_id for t in TOOLS)
    assert await found(within=Pushdown(scopes=frozenset({"read_file:use"}))) == [READER.tool_id]
    assert await found(within=Pushdown(namespaces=frozenset({"data"}))) == [SQL.tool_id]
    assert await found(within=Pushdown(servers=frozenset())) == []
    assert await found(ids=frozenset({WRITER.tool_id, SQL.tool_id})) == [SQL.tool_id, WRITER.tool_id]
    assert await found(ids=frozenset()) == []
    assert await found(tags=("FILES",)) == [READER.tool_id, WRITER.tool_id]
    assert await found(servers=("weather",)) == [WEATHER.tool_id]
    assert len(await found(limit=2)) == 2


async def test_hits_carry_the_digest_that_the_store_holds(store: CatalogStore) -> None:
    await put(store, READER)
    vector = await EMBEDDER.embed_query("file")

    hits = await store.search(
        StoreQuery(text="file", vector=vector, limit=5, ids=frozenset({READER.tool_id}))
    )

    assert [(h.tool_id, h.digest) for h in hits] == [(READER.tool_id, READER.digest)]


async def test_vectors_come_back_as_they_were_given(store: CatalogStore) -> None:
    await put(store, *TOOLS)
    given = await EMBEDDER.embed_documents([dense_text(READER)])

    found = await store.vectors([READER.tool_id, "tools/unknown"])

    assert list(found) == [READER.tool_id]
    digest, vector = found[READER.tool_id]
    assert digest == READER.digest
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, given[0], atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\t ",
        "!?*&%$",
        "x" * 10_000,
        "file " * 2_000,
        "'; DROP TABLE entries; --",
        '{"operator": "Or", "valueText": "*"}',
        "read\x00file\x1b[31m\u202e\u200b",
        "lone \ud800 surrogate",
        "天气预报 Ωμέγα 🌦️ e\u0301",
        "who is it",
    ],
    ids=[
        "empty",
        "blank",
        "signs",
        "10k",
        "long",
        "sql",
        "json",
        "control",
        "surrogate",
        "unicode",
        "stop-words",
    ],
)
async def test_any_text_is_a_harmless_query(store: CatalogStore, text: str) -> None:
    await put(store, *TOOLS)

    assert set(await ask(store, text)) <= {t.tool_id for t in TOOLS}
    assert set(await ask(store, text, tags=(text or "t",), servers=(text or "s",))) == set()
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
    assert await ask(store, "天气", mode="lexical") == ["tools/chinese"]
    assert await ask(store, "éclair", mode="lexical") == ["tools/emoji"]
    assert await ask(store, "half", mode="lexical") == ["tools/surrogate"]


async def test_identifiers_are_found_by_their_parts_and_joined(store: CatalogStore) -> None:
    await put(store, entry("azmcp_getHTTPStatus_v2"), entry("unrelated", "something else"))

    for text in ("http status", "getHTTPStatus", "azmcp_gethttpstatus_v2", "GET_HTTP"):
        assert await ask(store, text, mode="lexical") == ["tools/azmcp_getHTTPStatus_v2"], text


async def test_entries_of_another_identity_do_not_count(opener: Opener, store: CatalogStore) -> None:
    await put(store, *TOOLS)
    if isinstance(store, EmbeddedStore):
        await store.aclose()

    other = await opener(IndexIdentity("another-model", EMBEDDER.dimension))

    assert await other.inventory() == {}
    assert await ask(other, "read a file") == []
    assert await other.confirm([READER.tool_id]) == {}


async def test_a_store_without_vectors_searches_by_words(opener: Opener) -> None:
    store = await opener(identity_of(NullEmbedder()))
    await put(store, *TOOLS)

    assert await store.confirm([t.tool_id for t in TOOLS]) == {t.tool_id: t.digest for t in TOOLS}
    assert await ask(store, "weather in a city") == [WEATHER.tool_id]
    assert await ask(store, "nothing of the kind") == []
    assert await store.vectors([READER.tool_id]) == {}


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
        await store.upsert([READER], np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="vector"):
        await store.upsert([READER], None)
    with pytest.raises(ValueError, match="finite"):
        await store.upsert([READER], np.full((1, EMBEDDER.dimension), np.nan, np.float32))
    assert await store.inventory() == {}


async def test_more_than_a_batch_goes_in_and_comes_back(store: CatalogStore) -> None:
    many = [entry(f"tool_{i}", f"does thing number {i}") for i in range(450)]

    await put(store, *many)

    assert await store.inventory() == {t.tool_id: t.digest for t in many}
    assert await store.confirm([t.tool_id for t in many]) == {t.tool_id: t.digest for t in many}
    assert len(await store.vectors([t.tool_id for t in many])) == 450
    assert (await ask(store, "number 333"))[0] == "tools/tool_333"
    await store.remove([t.tool_id for t in many[:400]])
    assert len(await store.inventory()) == 50
