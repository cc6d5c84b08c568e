"""The catalog store on a Weaviate server; only the modules of this folder import the client library.

The server holds our vectors and what filters read, and tells the nearest; it ranks nothing. Every request has a deadline of
ours, and is retried here alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import weaviate
from weaviate.classes.config import ConsistencyLevel
from weaviate.classes.data import DataObject
from weaviate.classes.query import Filter, TargetVectors
from weaviate.exceptions import (
    UnexpectedStatusCodeError,
    WeaviateBaseError,
    WeaviateInsertManyAllFailedError,
)

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.adapters.weaviate import schema
from toolcrib_registry.adapters.weaviate.connection import (
    ConnectionLost,
    WeaviateConnection,
    WeaviateSettings,
)
from toolcrib_registry.adapters.weaviate.usage import Uses
from toolcrib_registry.search.entry import (
    IndexEntry,
    IndexIdentity,
    Pushdown,
    Stored,
    Vector,
)
from toolcrib_registry.search.errors import StoreRejected, StoreUnavailable, brief

log = logging.getLogger(__name__)

BATCH = 200
_VECTOR = "default"
"""The name that Weaviate gives to a collection's one vector."""
_LEAST_SECONDS = 0.1
"""Left of a deadline, so that trying again makes sense."""
_QUICK = (0.0, 0.1, 0.3)
"""Seconds before each retry of a search on a new connection. A Service may still route to the lost node for a moment.
The sum stays well below a second: where no node answers, search goes on by words."""
_PATIENT = (0.1, 0.5, 1.0, 2.0)
"""Seconds before each retry of a write: it may wait longer for the nodes to settle."""
_TRY_SECONDS = 20.0
"""For one attempt: a node that waits for one that is lost may never answer, and another does."""
_NOT_THERE = ("non-existing index", "cannot find index", "could not find class")
"""What Weaviate (1.39) says of a collection that it has not made yet or not deleted wholly."""
_PASSES = re.compile(
    r"rpc error: code = (Aborted|Canceled|DeadlineExceeded|Unavailable)\b|context (canceled|deadline exceeded)"
    r"|leader not found|connection re(fused|set)|cannot (reach enough replicas|achieve consistency level)"
)
_T = TypeVar("_T")
_Collection: TypeAlias = "weaviate.collections.CollectionAsync[Any, None]"


class _Unsettled(StoreUnavailable):
    """The collection is just being made or deleted, or the nodes have lost one of them: a moment later all is well."""


class WeaviateStore:
    """A `CatalogStore` on a Weaviate server. Making one does not connect."""

    def __init__(
        self,
        settings: WeaviateSettings,
        identity: IndexIdentity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` tells how long collections of former identities have been unused."""
        self._settings = settings
        self._identity = identity
        self._name = f"{settings.collection_prefix}_{identity.key}"
        self._connection = WeaviateConnection(settings)
        self._uses = Uses(settings.collection_prefix, self._name, settings.replicas, clock)
        self._unmarked = Trouble(log)
        self._checked: object = None
        """The client over which the collection was last seen to be ours."""

    @property
    def identity(self) -> IndexIdentity:
        """The identity of the index that the store was made for."""
        return self._identity

    async def inventory(self) -> dict[str, str]:
        """Walk through the collection, then search for what was there: what no search finds does not count."""

        async def walk(collection: _Collection) -> dict[str, str]:
            found = {}
            async for item in collection.iterator(return_properties=["tool_id", "digest"], cache_size=1000):
                found[str(item.properties["tool_id"])] = str(item.properties["digest"])
            return found

        stored: dict[str, str] = await self._read(walk, {}, self._settings.write_seconds)
        found = await self.confirm(stored)
        return {tool_id: digest for tool_id, digest in stored.items() if found.get(tool_id) == digest}

    async def put(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Write in batches of 200 and return once a search finds them all."""
        vectors = self._identity.checked(len(entries), vectors)
        refused: dict[str, str] = {}
        for start in range(0, len(entries), BATCH):
            part = entries[start : start + BATCH]
            rows = None if vectors is None else vectors[start : start + BATCH]
            objects = await asyncio.to_thread(_objects, part, rows)
            refused |= await self._written(part, objects)
        if refused:
            raise StoreRejected(refused)

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """Search for `ids`, by vector where the index has vectors: what is found is in every index it needs."""
        found: dict[str, str] = {}
        probe = np.full(self._identity.dimension, 1.0, np.float32).tolist()

        for part in _parts(ids):
            condition = schema.tool_filter(part)
            only = ["tool_id", "digest"]

            async def ask(
                collection: _Collection, condition: Any = condition, only: Any = only, limit: int = len(part)
            ) -> Any:
                if probe:
                    return await collection.query.near_vector(
                        probe, filters=condition, limit=limit, return_properties=only
                    )
                return await collection.query.fetch_objects(
                    filters=condition, limit=limit, return_properties=only
                )

            answer = await self._read(ask, None, self._settings.write_seconds, _PATIENT)
            for item in answer.objects if answer else ():
                found[str(item.properties["tool_id"])] = str(item.properties["digest"])
        return found

    async def remove(self, ids: Collection[str]) -> None:
        """Delete by tool id."""
        for part in _parts(ids):
            condition = Filter.by_id().contains_any([schema.object_id(i) for i in part])

            async def delete(collection: _Collection, condition: Any = condition) -> None:
                answer = await collection.data.delete_many(where=condition)
                if answer.failed:
                    raise StoreUnavailable(f"{answer.failed} objects could not be deleted")

            await self._read(delete, None, self._settings.write_seconds, _PATIENT)

    async def get(self, ids: Collection[str]) -> list[Stored]:
        """Fetch vectors, 200 at a time."""
        found: list[Stored] = []
        for part in _parts(ids) if self._identity.dimension else ():
            wanted = [schema.object_id(i) for i in part]

            async def ask(collection: _Collection, wanted: Any = wanted) -> Any:
                return await collection.query.fetch_objects_by_ids(
                    wanted, limit=len(wanted), include_vector=True, return_properties=["tool_id", "digest"]
                )

            answer = await self._read(ask, None, self._settings.search_seconds)
            found += await asyncio.to_thread(_stored, answer.objects if answer else ())
        return found

    async def nearest(self, vectors: Vector, limit: int, within: Pushdown) -> list[Stored]:
        """One search of the server, also for several vectors: half as dear as one for each (measured with four)."""
        try:
            condition = schema.filter_of(within)
        except schema.NothingPasses:
            return []
        if limit < 1 or not self._identity.dimension:
            return []

        async def ask(collection: _Collection) -> Any:
            near, target = vectors[0].tolist(), None
            if len(vectors) > 1:
                near, target = {_VECTOR: vectors.tolist()}, TargetVectors.minimum([_VECTOR])
            return await collection.query.near_vector(
                near,
                target_vector=target,
                limit=limit,
                filters=condition,
                include_vector=True,
                return_properties=["tool_id", "digest"],
            )

        answer = await self._read(ask, None, self._settings.search_seconds)
        return await asyncio.to_thread(_stored, answer.objects if answer else ())

    async def tidy(self) -> list[str]:
        """Delete collections of former identities that no replica has used for an hour."""
        async with self._connection.session(self._settings.write_seconds) as client:
            unused = await self._uses.unused(client)
            for name in unused:
                await client.collections.delete(name)
                log.info(
                    "search index: deleted collection %s: it belongs to a previous embedder or index format, and no replica uses it",
                    name,
                )
        return unused

    async def healthy(self) -> None:
        """Ask for one object through the search path, and leave a mark that this collection is in use."""

        async def ask(collection: _Collection) -> Any:
            return await collection.query.fetch_objects(limit=1, return_properties=["tool_id"])

        await self._read(ask, None, self._settings.search_seconds, ())
        try:
            async with self._connection.session(self._settings.search_seconds) as client:
                await self._uses.mark(client)
            self._unmarked.over("weaviate: collections can be marked as in use again")
        except StoreUnavailable as error:
            # the index itself answers
            self._unmarked.failed("%s; this collection cannot be marked as in use", error)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _read(
        self,
        ask: Callable[[_Collection], Awaitable[_T]],
        missing: _T,
        seconds: float,
        pauses: Sequence[float] = _QUICK,
    ) -> _T:
        """The answer of `ask`, or `missing` where there is no collection: then nothing is stored."""
        return await self._again(lambda left: self._once(ask, missing, left), seconds, pauses)

    async def _again(
        self, work: Callable[[float], Awaitable[_T]], seconds: float, pauses: Sequence[float]
    ) -> _T:
        """What `work` gives within `seconds`, retried while connections are lost or the server is unsettled: a node that
        is lost takes its connections with it, and others answer. `work` is told the seconds it has. Each of `pauses`
        counts from the start of the attempt that failed, so that slow attempts do not add up with pauses."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for pause in pauses:
            began = loop.time()
            try:
                return await work(min(deadline - began, _TRY_SECONDS))
            except (ConnectionLost, _Unsettled):
                wait = max(0.0, began + pause - loop.time())
                if deadline - loop.time() < wait + _LEAST_SECONDS:
                    raise
            await asyncio.sleep(wait)
        return await work(deadline - loop.time())

    async def _once(self, ask: Callable[[_Collection], Awaitable[_T]], missing: _T, seconds: float) -> _T:
        async with self._connection.session(seconds) as client:
            try:
                return await ask(self._collection(client))
            except WeaviateBaseError as error:
                if await client.collections.exists(self._name):
                    if any(words in str(error) for words in _NOT_THERE):
                        raise _Unsettled(f"weaviate: {brief(error)}") from error
                    raise
                self._checked = None
                return missing

    async def _written(
        self, entries: Sequence[IndexEntry], objects: list[DataObject[Any, None]]
    ) -> dict[str, str]:
        """Write one batch until searches find it; the ids that the server refuses, with its reasons."""
        refused: dict[str, str] = {}
        missing: dict[str, int] = {e.tool_id: i for i, e in enumerate(entries)}
        deadline = asyncio.get_running_loop().time() + self._settings.write_seconds
        writes = 0
        while missing:
            if writes < 2:
                # a server that was killed may hold an object that its vector index lost, and writing the same
                # again does nothing then (Weaviate 1.39): the second time it is deleted first
                if writes:
                    await self.remove(missing)
                rows = sorted(missing.values())
                part = [entries[i] for i in rows], [objects[i] for i in rows]
                refused |= await self._again(
                    partial(self._put, *part), self._settings.write_seconds, _PATIENT
                )
                writes += 1
            elif asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailable("written entries are not found by searches")
            else:
                # a server that indexes asynchronously needs a moment
                await asyncio.sleep(0.05)
            found = await self.confirm(missing)
            missing = {
                tool_id: i
                for tool_id, i in missing.items()
                if tool_id not in refused and found.get(tool_id) != entries[i].digest
            }
        return refused

    async def _put(
        self, entries: Sequence[IndexEntry], objects: Sequence[DataObject[Any, None]], seconds: float
    ) -> dict[str, str]:
        async with self._connection.session(seconds) as client:
            collection = await self._ensured(client)
            return await _insert(collection, entries, objects)

    def _collection(self, client: weaviate.WeaviateAsyncClient) -> _Collection:
        collection = client.collections.use(self._name)
        if self._settings.replicas > 1:
            return collection.with_consistency_level(ConsistencyLevel.QUORUM)
        return collection

    async def _ensured(self, client: weaviate.WeaviateAsyncClient) -> _Collection:
        # without this a write into a missing collection would make one with Weaviate's own idea of a schema
        collection = self._collection(client)
        exists = await client.collections.exists(self._name)
        if exists and self._checked is not client:
            config = await collection.config.get(simple=False)
            kinds = {p.name: p.tokenization.value if p.tokenization else "" for p in config.properties}
            if wrong := schema.differences(kinds):
                log.error(
                    "search index: collection %s does not match (%s); recreating it", self._name, wrong[0]
                )
                await client.collections.delete(self._name)
                exists = False
        if not exists:
            try:
                await client.collections.create(
                    self._name,
                    **schema.collection_settings(self._identity.dimension, self._settings.replicas),
                )
            except UnexpectedStatusCodeError:
                # another replica was faster
                if not await client.collections.exists(self._name):
                    raise
        self._checked = client
        return collection


def _objects(entries: Sequence[IndexEntry], vectors: Vector | None) -> list[DataObject[Any, None]]:
    return [
        DataObject(
            properties=schema.properties_of(entry),
            uuid=schema.object_id(entry.tool_id),
            vector=None if vectors is None else vectors[i].tolist(),
        )
        for i, entry in enumerate(entries)
    ]


def passes(message: str) -> bool:
    """Whether Weaviate refuses an entry only since its nodes have just lost each other: a moment later it takes it."""
    return _PASSES.search(message) is not None


async def _insert(
    collection: _Collection, entries: Sequence[IndexEntry], objects: Sequence[DataObject[Any, None]]
) -> dict[str, str]:
    """Write one batch; the ids that Weaviate refuses, with its reasons. Raises `_Unsettled`: refused for the moment."""
    try:
        answer = await collection.data.insert_many(list(objects))
    except WeaviateInsertManyAllFailedError as error:
        refused = {e.tool_id: str(error) for e in entries}
    else:
        refused = {entries[i].tool_id: e.message for i, e in answer.errors.items()}
    for message in filter(passes, refused.values()):
        raise _Unsettled(f"weaviate: {brief(ValueError(message))}")
    return {tool_id: brief(ValueError(message)) for tool_id, message in refused.items()}


def _stored(items: Iterable[Any]) -> list[Stored]:
    return [
        Stored(str(item.properties["tool_id"]), str(item.properties["digest"]), vector)
        for item in items
        if (vector := _vector(item)) is not None
    ]


def _vector(item: Any) -> Vector | None:
    numbers = item.vector.get(_VECTOR) if item.vector else None
    return np.array(numbers, np.float32) if numbers else None


def _parts(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), schema.IDS_PER_REQUEST):
        yield ordered[start : start + schema.IDS_PER_REQUEST]
