"""A store that somebody emptied."""

from toolcrib_registry.search.store import CatalogStore


async def empty(store: CatalogStore) -> None:
    """Take everything out."""
    await store.remove(await store.inventory())
