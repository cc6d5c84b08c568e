"""The port of the search index: definitions and vectors by digest. `adapters/embedded` and `adapters/weaviate` implement it.

One contract suite for both: `tests/contract/test_catalog_store.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, StoreHit, StoreQuery, Vector


class CatalogStore(Protocol):
    """The search index: definitions and vectors by digest. It may be wiped at any time and never decides anything.

    Every method may raise `StoreUnavailable` (try again) or `StoreDamaged` (rebuild).
    """

    @property
    def identity(self) -> IndexIdentity:
        """Entries of another identity do not count: not in the inventory, not in an answer."""
        ...

    @property
    def exact(self) -> bool:
        """True if any number of ids may be sent and the answer is the exact ranking over them, with evidence."""
        ...

    @property
    def state(self) -> int | None:
        """Another one after every change of what a search finds; None where others may write to the store as well."""
        ...

    async def inventory(self) -> dict[str, str]:
        """Tool id to digest of everything that is really in the store."""
        ...

    async def upsert(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Put `entries` in, each in the place of an entry with its id. Idempotent.

        `vectors` has one row an entry; None only where the identity has no dimension. Returns when a search finds
        them all and they are stored as durably as the store can: the embedded one survives `kill -9`; a killed
        Weaviate may lose the last second, which the inventory then shows. On an error some may be in: repeat the
        call.

        Raises:
            StoreRejected: the store refuses some of them for good; the others are in.
        """
        ...

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """Read `ids` back from what searches read: tool id to digest of those that a search can find."""
        ...

    async def remove(self, ids: Collection[str]) -> None:
        """Take `ids` out; unknown ones are ignored."""
        ...

    async def search(self, query: StoreQuery) -> list[StoreHit]:
        """The best of what the query's restriction and filters admit, best first, at most `query.limit`."""
        ...

    async def vectors(self, ids: Collection[str]) -> dict[str, tuple[str, Vector]]:
        """Tool id to (digest, vector) of those of `ids` that have one."""
        ...

    async def tidy(self) -> list[str]:
        """Delete what former identities left and nobody uses any more; what was deleted, by name. To be called again
        and again while this identity's index is complete. Never what another installation or replica uses."""
        ...

    async def wipe(self) -> None:
        """Forget everything of this identity."""
        ...

    async def healthy(self) -> None:
        """Return if the store can answer now.

        Raises:
            StoreUnavailable: it cannot; the message says why.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and files. The store is not used afterwards."""
        ...
