"""The collection of a store on a Weaviate server, for tests that look into it or break it."""

from toolcrib_registry.adapters.weaviate.store import WeaviateStore


def collection_of(store: WeaviateStore) -> str:
    """Its name: the installation's prefix, and what the index's identity is known by."""
    return f"{store._settings.collection_prefix}_{store.identity.key}"
