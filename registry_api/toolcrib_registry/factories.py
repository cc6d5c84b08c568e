"""The parts that settings name: embedder, shelf of vectors, store, counters, assertions; imported where they are chosen."""

from __future__ import annotations

import logging
from pathlib import Path

from toolcrib_registry.adapters.counters.memory import MemoryCounters
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.adapters.embedders.vector_file import VectorFile
from toolcrib_registry.calls.assertions.keys import AssertionKeys
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.clock import Clock
from toolcrib_registry.limits.counters import Counters
from toolcrib_registry.search.embedding import NullEmbedder
from toolcrib_registry.search.entry import IndexIdentity
from toolcrib_registry.search.index.document_vectors import MemoryShelf
from toolcrib_registry.search.store import CatalogStore
from toolcrib_registry.search.vectors import Embedder, VectorShelf
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_limits import CounterStore
from toolcrib_registry.settings_sections import EmbedderSettings, Store

log = logging.getLogger(__name__)
_SHELF_IN_MEMORY = 64 << 20
"""Bytes of vectors that are kept where there is no folder for them: 43,000 texts of the packaged model."""


def embedder(chosen: EmbedderSettings) -> Embedder:
    """The embedder that the settings name; its library is imported only then."""
    if chosen.kind == "none":
        return NullEmbedder()
    if chosen.kind == "openai":
        from toolcrib_registry.adapters.embedders.openai import OpenAIEmbedder

        assert chosen.base_url is not None
        assert chosen.model is not None
        assert chosen.dimension is not None
        return OpenAIEmbedder(
            base_url=chosen.base_url,
            model=chosen.model,
            dimension=chosen.dimension,
            api_key_file=chosen.api_key_file,
            seconds=chosen.request_seconds,
        )
    from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder

    if chosen.kind == "onnx":
        assert chosen.path is not None
        return OnnxEmbedder(Path(chosen.path))
    return OnnxEmbedder.packaged()


def shelf(settings: EmbedderSettings, store: Store | None) -> VectorShelf:
    """Where the vectors of tools' texts are kept; `store` None: it is not of the settings."""
    folder = settings.cache_path
    if folder is None and store is not None and store.kind == "embedded":
        folder = store.path
    if folder is None:
        return MemoryShelf(min(settings.cache_bytes, _SHELF_IN_MEMORY))
    return VectorFile(Path(folder), settings.cache_bytes)


async def store(settings: Store, identity: IndexIdentity) -> CatalogStore:
    """The store that the settings name."""
    if settings.kind == "embedded":
        return await EmbeddedStore.open(Path(settings.path), identity)
    from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
    from toolcrib_registry.adapters.weaviate.store import WeaviateStore

    return WeaviateStore(
        WeaviateSettings(
            http_host=settings.host,
            http_port=settings.http_port,
            grpc_host=settings.grpc_host or "",
            grpc_port=settings.grpc_port,
            secure=settings.tls,
            ca_file=settings.ca_file,
            api_key_file=settings.api_key_file,
            collection_prefix=settings.collection_prefix,
            replicas=settings.replicas,
        ),
        identity,
    )


def counters(settings: CounterStore, clock: Clock) -> Counters:
    """The store of counters that the settings name; nothing is connected to yet."""
    if settings.kind == "memory":
        return MemoryCounters(clock.elapsed, several=settings.several)
    from toolcrib_registry.adapters.counters.redis import RedisCounters, RedisPlace

    assert settings.url is not None
    return RedisCounters(
        RedisPlace(
            settings.url,
            username=settings.username,
            password_file=settings.password_file,
            ca_file=settings.ca_file,
            timeout=settings.timeout,
        )
    )


def assertions(settings: RegistrySettings, clock: Clock) -> Assertions:
    """What signs call assertions, with the keys of the settings' folder, else with one of this process."""
    folder = settings.assertion.keys
    if folder is None:
        log.warning(
            "assertion.keys is not set: each replica signs call assertions with its own key, so "
            "backends cannot verify those of several replicas"
        )
    keys = AssertionKeys(None if folder is None else Path(folder), clock.now, clock.elapsed)
    return Assertions(settings.assertion_issuer, keys, clock.now)
