"""The ports of vectors: what makes them (`adapters/embedders`, `search.embedding`), and what keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toolcrib_registry.search.entry import Vector


class Embedder(Protocol):
    """Text to vectors that can be compared by cosine."""

    @property
    def name(self) -> str:
        """Names model and version: vectors of two names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 means there are none and search is lexical."""
        ...

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """A request and the things it asks for, as normalised rows: the whole first, then its parts in their order.

        An embedder that can reads the parts out of the one encoding of the whole; the others encode each, in one turn.

        Raises:
            EmbedderUnavailable: no vectors could be made now.
        """
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows. The same text always gives the same vector.

        Raises:
            EmbedderUnavailable: no vectors could be made now.
        """
        ...

    async def aclose(self) -> None:
        """Release what the embedder holds."""
        ...


class VectorShelf(Protocol):
    """Where vectors lie that were made once, by a hash that names embedder and text. Losing them costs time alone."""

    async def get(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Those of `keys` that are held. Never raises for a failure: nothing is held then."""
        ...

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep `vectors`, if possible. The longest unused make room when there are too many."""
        ...

    async def aclose(self) -> None:
        """Release connections and files."""
        ...
