"""What composing a registry hands on from its settings."""

import pytest

from toolcrib.wire.backends import PublishedBackend
from toolcrib_registry import factories
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.compose import build
from toolcrib_registry.failures import Failure
from toolcrib_registry.search.embedding import NullEmbedder, identity_of
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.settings_sections import Store
from weaviate_collection import collection_of

pytestmark = pytest.mark.anyio


async def test_everything_that_the_settings_say_of_a_weaviate_reaches_it() -> None:
    settings = Store(
        kind="weaviate",
        host="w.crib.svc",
        http_port=1,
        grpc_host="g.crib.svc",
        grpc_port=2,
        tls=True,
        ca_file="ca.crt",
        api_key_file="key",
        replicas=3,
        collection_prefix="Ours",
    )

    store = await factories.store(settings, identity_of(NullEmbedder()))

    assert isinstance(store, WeaviateStore)
    assert store._settings == WeaviateSettings(
        http_host="w.crib.svc",
        http_port=1,
        grpc_host="g.crib.svc",
        grpc_port=2,
        secure=True,
        ca_file="ca.crt",
        api_key_file="key",
        replicas=3,
        collection_prefix="Ours",
    )
    assert collection_of(store).startswith("Ours_")
    await store.aclose()


async def test_calls_know_the_clusters_domain_and_the_stores_place() -> None:
    settings = RegistrySettings.model_validate(
        {
            "store": {"kind": "weaviate", "host": "weaviate.crib.svc.corp.local"},
            "embedder": {"kind": "none"},
            "egress": {"cluster_domain": "corp.local", "allow": ["*"]},
        }
    )
    registry = await build(settings)
    try:
        for backend in (
            PublishedBackend(service_name="weaviate", service_namespace="crib", service_port=80, path="/"),
            PublishedBackend(url="http://weaviate.crib.svc/"),
        ):
            with pytest.raises(Failure, match="store"):
                registry.deps.check_address(backend, "crib")
    finally:
        await registry.aclose()
