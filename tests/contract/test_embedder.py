"""The contract of an Embedder: one suite, run on every one that there is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest

from embeddings_endpoint import EmbeddingsEndpoint, embeddings_endpoint, hashed
from hash_embedder import HashEmbedder
from toolcrib_registry import factories
from toolcrib_registry.search.embedding import QueryCache, identity_of
from toolcrib_registry.search.errors import EmbedderUnavailable
from toolcrib_registry.search.vectors import Embedder
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import EmbedderSettings
from vector_of import vector_of

pytestmark = pytest.mark.anyio

KINDS = ("packaged", "onnx", "openai", "hash", "cached", "none")
TEXTS = [
    "weather get forecast: Tomorrow's weather of a city",
    "files read file: Read a file of the shared folder",
    "payments create invoice: Bill a customer",
    "x",
    "",
    "   \n\t",
    "\x00\u202e 天气预报 \ud800",
    "'; DROP TABLE tools; -- {tools(where: {}) {id}} (a+)+$",
    "word " * 2_500,
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EmbeddingsEndpoint]:
    """An honest endpoint of 16 dimensions."""
    with embeddings_endpoint(hashed(16)) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a folder of its own."""
    folder = tmp_path_factory.mktemp("model")
    with as_file(files("toolcrib_registry") / "model") as packaged:
        for name in ("model.onnx", "tokenizer.json"):
            shutil.copy(packaged / name, folder)
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "find: "}}')
    return folder


def settings_of(kind: str, endpoint: EmbeddingsEndpoint, folder: Path) -> RegistrySettings:
    fields = {
        "openai": {"base_url": endpoint.url, "model": "m", "dimension": 16},
        "onnx": {"path": str(folder)},
    }
    return RegistrySettings(embedder=EmbedderSettings(kind=kind, **fields.get(kind, {})))


def made(kind: str, endpoint: EmbeddingsEndpoint, folder: Path) -> Embedder:
    if kind == "hash":
        return HashEmbedder()
    if kind == "cached":
        return QueryCache(HashEmbedder())
    return factories.embedder(settings_of(kind, endpoint, folder).embedder)


@pytest.fixture(scope="module", params=KINDS)
def embedder(
    request: pytest.FixtureRequest, endpoint: EmbeddingsEndpoint, folder: Path
) -> Iterator[Embedder]:
    """Each embedder in turn; a model is loaded once."""
    embedder = made(request.param, endpoint, folder)
    yield embedder
    asyncio.run(embedder.aclose())


async def test_each_text_has_one_row_of_the_dimension_that_is_named(embedder: Embedder) -> None:
    rows = await embedder.embed_documents(TEXTS)

    assert rows.shape == (len(TEXTS), embedder.dimension)
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    if embedder.dimension:
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


async def test_a_text_has_one_vector_whatever_it_is_embedded_with(embedder: Embedder) -> None:
    together = await embedder.embed_documents(TEXTS * 2)

    for i, text in enumerate(TEXTS):
        alone = (await embedder.embed_documents([text]))[0]
        assert (together[i] == alone).all()
        assert (together[i + len(TEXTS)] == alone).all()


async def test_no_texts_make_no_rows(embedder: Embedder) -> None:
    assert (await embedder.embed_documents([])).shape == (0, embedder.dimension)


async def test_a_request_and_what_is_no_part_of_it_have_the_vectors_that_each_has_alone(
    embedder: Embedder,
) -> None:
    if not embedder.dimension:
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed_request(TEXTS)
        with pytest.raises(EmbedderUnavailable):
            await vector_of(embedder, "x")
        return
    rows = await embedder.embed_request(TEXTS)

    assert (rows.shape, rows.dtype) == ((len(TEXTS), embedder.dimension), np.float32)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    for text, row in zip(TEXTS, rows, strict=True):
        assert (await vector_of(embedder, text) == row).all()


async def test_a_part_of_a_request_is_nearer_to_what_it_asks_for_than_the_other_part_is(
    embedder: Embedder,
) -> None:
    if embedder.dimension:
        whole = "read the shared file, then send an invoice to the customer"
        rows = await embedder.embed_request(
            [whole, "read the shared file", "send an invoice to the customer"]
        )
        files, invoices = await embedder.embed_documents(["read a shared file", "send an invoice"])

        assert rows[1] @ files > rows[2] @ files
        assert rows[2] @ invoices > rows[1] @ invoices


async def test_what_shares_words_is_nearer_than_what_does_not(embedder: Embedder) -> None:
    if embedder.dimension:
        documents = await embedder.embed_documents(TEXTS[:3])
        query = await vector_of(embedder, "read a shared file")

        assert int(np.argmax(documents @ query)) == 1


async def test_searches_go_on_while_documents_are_embedded(embedder: Embedder) -> None:
    if embedder.dimension:
        documents = asyncio.create_task(embedder.embed_documents(TEXTS[:3] * 30))

        alone = [await vector_of(embedder, f"query {i}") for i in range(3)]

        assert [(await vector_of(embedder, f"query {i}") == alone[i]).all() for i in range(3)] == [True] * 3
        await documents


async def test_the_same_settings_name_the_same_vectors_and_others_others(
    endpoint: EmbeddingsEndpoint, folder: Path
) -> None:
    async def identities() -> dict[str, object]:
        found = {}
        for kind in KINDS:
            embedder = made(kind, endpoint, folder)
            found[kind] = identity_of(embedder)
            await embedder.aclose()
        return found

    once = await identities()

    assert once == await identities()
    # the cache is nobody of its own
    assert once["cached"] == once["hash"]
    assert len(set(once.values())) == len(KINDS) - 1


@pytest.mark.parametrize("kind", ["packaged", "onnx", "openai"])
async def test_one_that_is_closed_says_so(kind: str, endpoint: EmbeddingsEndpoint, folder: Path) -> None:
    embedder = made(kind, endpoint, folder)
    await embedder.aclose()

    with pytest.raises(EmbedderUnavailable):
        await vector_of(embedder, "anything")
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_documents(["anything"])
