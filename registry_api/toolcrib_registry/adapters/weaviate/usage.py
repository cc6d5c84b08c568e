"""Collections of former identities: who still uses one, and which may go.

A change of the embedder or of the index's format makes a new collection, and the old one serves earlier replicas
until the last of them is replaced. Every replica leaves a mark of what it uses, from time to time, in one small
collection beside the others. A mark that has not changed for an hour, as this process has seen it, is of nobody: no
clock is compared with another.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import weaviate
from weaviate.classes.config import Configure, DataType, Property, Tokenization
from weaviate.classes.data import DataObject
from weaviate.exceptions import UnexpectedStatusCodeError

MARK_SECONDS = 600.0
"""How often a replica says what it uses, and how often it looks for what nobody does."""
UNUSED_SECONDS = 6 * MARK_SECONDS
_NAMESPACE = uuid.UUID("b2f5a7a2-5d0e-5c64-8a0b-6f5a3c1e9d77")
_SUFFIX = "Uses"


@dataclass(slots=True)
class Uses:
    """The marks beside the collections of one prefix."""

    prefix: str
    name: str
    """The collection that this process uses."""
    replicas: int = 1
    clock: Callable[[], float] = time.monotonic
    _marked: float | None = None
    _looked: float | None = None
    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Collection to its mark and since when that has not changed."""

    async def mark(self, client: weaviate.WeaviateAsyncClient) -> None:
        """Say that `name` is used, if that was not said lately.

        Raises:
            WeaviateBaseError: it could not be said.
        """
        now = self.clock()
        if self._marked is not None and now - self._marked < MARK_SECONDS:
            return
        await self._ensure(client)
        mark = DataObject(
            properties={"collection": self.name, "mark": str(uuid.uuid4())},
            uuid=uuid.uuid5(_NAMESPACE, self.name),
        )
        await client.collections.use(self._place).data.insert_many([mark])
        self._marked = now

    async def unused(self, client: weaviate.WeaviateAsyncClient) -> list[str]:
        """Collections of this prefix alone, of other identities, that nobody has used for an hour.

        Empty if it was looked lately.

        Raises:
            WeaviateBaseError: the server does not tell.
        """
        now = self.clock()
        if self._looked is not None and now - self._looked < MARK_SECONDS:
            return []
        self._looked = now
        names = await client.collections.list_all(simple=True)
        others = [n for n in names if n != self.name and re.fullmatch(f"{self.prefix}_[0-9a-f]{{12}}", n)]
        marks = await self._marks(client) if others and self._place in names else {}
        self._seen = {
            n: self._seen[n]
            if n in self._seen and self._seen[n][0] == marks.get(n, "")
            else (marks.get(n, ""), now)
            for n in others
        }
        return sorted(n for n, (_, since) in self._seen.items() if now - since >= UNUSED_SECONDS)

    @property
    def _place(self) -> str:
        return f"{self.prefix}_{_SUFFIX}"

    async def _marks(self, client: weaviate.WeaviateAsyncClient) -> dict[str, str]:
        found: dict[str, Any] = {}
        async for item in client.collections.use(self._place).iterator():
            found[str(item.properties.get("collection"))] = str(item.properties.get("mark"))
        return found

    async def _ensure(self, client: weaviate.WeaviateAsyncClient) -> None:
        if await client.collections.exists(self._place):
            return
        text = [
            Property(name=n, data_type=DataType.TEXT, tokenization=Tokenization.FIELD, index_searchable=False)
            for n in ("collection", "mark")
        ]
        try:
            await client.collections.create(
                self._place,
                properties=text,
                replication_config=Configure.replication(factor=self.replicas),
                vector_config=Configure.Vectors.self_provided(
                    vector_index_config=Configure.VectorIndex.flat()
                ),
            )
        except UnexpectedStatusCodeError:
            # another replica was faster
            if not await client.collections.exists(self._place):
                raise
