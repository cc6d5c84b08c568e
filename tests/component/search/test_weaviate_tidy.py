"""Collections of former identities in Weaviate: they serve those who use them, and go when nobody does."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from hash_embedder import HashEmbedder
from index_entries import entry
from realparts.weaviate import Weaviate
from toolcrib_registry.adapters.weaviate.connection import WeaviateSettings
from toolcrib_registry.adapters.weaviate.store import WeaviateStore
from toolcrib_registry.adapters.weaviate.usage import MARK_SECONDS, UNUSED_SECONDS
from toolcrib_registry.search.entry import INDEX_FORMAT, IndexIdentity
from weaviate_collection import collection_of

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ENTRY = entry("ns/read", digest="d")


class Replica:
    """A replica's store, with a clock that its reader moves."""

    def __init__(self, server: Weaviate, prefix: str, form: int) -> None:
        self.now = 0.0
        where = WeaviateSettings(
            "127.0.0.1",
            server.http_port,
            grpc_port=server.grpc_port,
            collection_prefix=prefix,
            search_seconds=20.0,
        )
        self.store = WeaviateStore(where, IndexIdentity("model", 8, form), clock=lambda: self.now)

    async def write(self) -> None:
        """Put a tool in, and be probed."""
        await self.store.put([ENTRY], await HashEmbedder(8).embed_documents(["read"]))
        await self.store.healthy()

    async def pass_time(self, *users: Replica) -> list[str]:
        """What is deleted in the next so many seconds, while `users` are probed."""
        gone: list[str] = []
        for _ in range(int(UNUSED_SECONDS / MARK_SECONDS) + 1):
            self.now += MARK_SECONDS
            for user in users:
                user.now += MARK_SECONDS
                await user.store.healthy()
            await self.store.healthy()
            gone += await self.store.tidy()
        return gone


@pytest.fixture
async def replicas(weaviate_server: Weaviate) -> AsyncIterator[tuple[Replica, Replica, Replica]]:
    """One of the new identity, one of the former, and one of another installation that has a longer prefix."""
    prefix = f"Tidy{secrets.token_hex(4)}"
    made = [
        Replica(weaviate_server, p, f) for p, f in ((prefix, INDEX_FORMAT), (prefix, 2), (f"{prefix}_b", 2))
    ]
    for replica in made:
        await replica.write()
    yield made[0], made[1], made[2]
    for replica in made:
        weaviate_server.client.delete(f"/v1/schema/{collection_of(replica.store)}")
        await replica.store.aclose()
    for name in (f"{prefix}_Uses", f"{prefix}_b_Uses"):
        weaviate_server.client.delete(f"/v1/schema/{name}")


async def test_a_former_identity_stays_while_a_replica_uses_it_and_goes_when_none_does(
    replicas: tuple[Replica, Replica, Replica],
) -> None:
    new, old, foreign = replicas
    assert await new.store.tidy() == []

    assert await new.pass_time(old) == [], "a rolling update may take its time"
    assert await old.store.inventory() == {ENTRY.tool_id: ENTRY.digest}

    assert await new.pass_time() == [collection_of(old.store)]
    assert await old.store.inventory() == {}
    assert await new.store.inventory() == await foreign.store.inventory() == {ENTRY.tool_id: ENTRY.digest}


async def test_what_another_installation_left_is_never_touched(
    replicas: tuple[Replica, Replica, Replica],
) -> None:
    new, old, foreign = replicas

    assert await foreign.pass_time() == []
    assert await new.pass_time(old) == []
    assert await foreign.store.inventory() == {ENTRY.tool_id: ENTRY.digest}
    await foreign.store.healthy()


async def test_a_replica_that_comes_back_to_a_former_identity_keeps_it(
    replicas: tuple[Replica, Replica, Replica],
) -> None:
    """Rolled back within the hour: its next mark counts, and then the new identity is the one that goes."""
    new, old, _ = replicas
    for _ in range(3):
        new.now += MARK_SECONDS
        assert await new.store.tidy() == []
    old.now += 3 * MARK_SECONDS
    await old.store.healthy()
    for _ in range(3):
        new.now += MARK_SECONDS
        assert await new.store.tidy() == []

    assert await old.pass_time() == [collection_of(new.store)]
