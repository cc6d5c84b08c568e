"""The port of the search index: entries and vectors by digest. `adapters/embedded` and `adapters/weaviate` implement it.

A store ranks nothing: it gives vectors back, by id or the nearest ones. One contract suite for both:
`tests/contract/test_catalog_store.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, Pushdown, Stored, Vector


class CatalogStore(Protocol):
    """The search index: entries and vectors by digest. It may be emptied at any time and never decides anything.

    Every method may raise `StoreUnavailable` (try again) or `StoreDamaged` (rebuild).
    """

    @property
    def identity(self) -> IndexIdentity:
        """Entries of another identity do not count: not in the inventory, not in an answer."""
        ...

    async def get(self, ids: Collection[str]) -> list[Stored]:
        """The vectors of those of `ids` that are there, in no order; none where the identity has no dimension."""
        ...

    async def put(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Put `entries` in, each in the place of an entry with its id. Idempotent.

        `vectors` has one row an entry; None only where the identity has no dimension. Returns when `nearest` finds
        them all and they are stored as durably as the store can: the embedded one survives `kill -9`; a killed
        Weaviate may lose the last second, which the inventory then shows. On an error some may be in: repeat the
        call.

        Raises:
            StoreRejected: the store refuses some of them for good; the others are in.
        """
        ...

    async def remove(self, ids: Collection[str]) -> None:
        """Take `ids` out; unknown ones are ignored."""
        ...

    async def inventory(self) -> dict[str, str]:
        """Tool id to digest of everything that `nearest` can find."""
        ...

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """The same of `ids` alone, read back from what `nearest` reads."""
        ...

    async def nearest(self, vectors: Vector, limit: int, within: Pushdown) -> list[Stored]:
        """Of what `within` admits, the `limit` with the best cosine with any row of `vectors`, best first.

        Exact: what is left out of a full answer is no nearer than the last in it.
        """
        ...

    async def tidy(self) -> list[str]:
        """Delete what former identities left and nobody uses any more; what was deleted, by name.

        To be called again and again while this identity's index is complete. Never what another installation or replica uses.
        """
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
