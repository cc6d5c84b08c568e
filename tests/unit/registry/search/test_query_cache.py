"""One query costs one encoding, however many ask it and whoever of them gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hash_embedder import HashEmbedder
from toolcrib_registry.search.embedding import QueryCache
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.search.errors import EmbedderUnavailable
from vector_of import vector_of

pytestmark = pytest.mark.anyio


class Slow(HashEmbedder):
    """Answers when it is let; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(8)
        self.turns: list[list[str]] = []
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = 0
        self.broken = False

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        self.turns.append(list(texts))
        self.asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.broken:
            raise EmbedderUnavailable("no model")
        return await super().embed_request(texts)


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_query_that_many_ask_at_one_time_is_embedded_once() -> None:
    slow = Slow()
    embedded: list[int] = []
    reused: list[int] = []
    cache = QueryCache(slow, on_embedded=embedded.append, on_reused=reused.append)

    asking = [asyncio.create_task(vector_of(cache, f"read  a{' ' * i} file")) for i in range(20)]
    await slow.asked.wait()
    slow.go_on.set()
    rows = await asyncio.gather(*asking)
    again = await vector_of(cache, "read a file")

    assert slow.turns == [["read a file"]]
    assert all((row == again).all() for row in rows)
    assert (sum(embedded), sum(reused)) == (1, 20)


async def test_a_request_and_its_parts_take_one_turn_and_parts_belong_to_their_request() -> None:
    slow = Slow()
    slow.go_on.set()
    cache = QueryCache(slow)

    rows = await cache.embed_request(["a  then b", "a", "b"])
    again = await cache.embed_request(["a then b", "a", "b"])
    await cache.embed_request(["b"])

    assert slow.turns == [["a then b", "a", "b"], ["b"]]
    assert (rows == again).all()
    assert (rows == await HashEmbedder(8).embed_request(["a then b", "a", "b"])).all()


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    slow = Slow()
    cache = QueryCache(slow)

    impatient = asyncio.create_task(vector_of(cache, "read"))
    await slow.asked.wait()
    patient = asyncio.create_task(vector_of(cache, "read"))
    await turns_of_the_loop()
    impatient.cancel()
    await turns_of_the_loop()
    slow.go_on.set()

    assert (await patient).shape == (8,)
    assert impatient.cancelled()
    assert (len(slow.turns), slow.cancelled) == (1, 0)


async def test_what_nobody_waits_for_is_given_up_and_asked_again_by_the_next() -> None:
    slow = Slow()
    cache = QueryCache(slow)

    asking = [asyncio.create_task(vector_of(cache, "read")) for _ in range(3)]
    await slow.asked.wait()
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)
    # at once: the turn that was given up may not have noticed yet
    next_one = asyncio.create_task(vector_of(cache, "read"))
    await turns_of_the_loop()
    slow.go_on.set()

    assert (await next_one).shape == (8,)
    assert (slow.turns, slow.cancelled) == ([["read"], ["read"]], 1)


async def test_a_deadline_is_kept_and_the_next_query_has_the_embedder_to_itself() -> None:
    slow = Slow()
    cache = QueryCache(slow)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cache.embed_request(["read", "write"])
    await turns_of_the_loop()
    slow.go_on.set()

    assert slow.cancelled == 1
    assert (await vector_of(cache, "write")).shape == (8,)


async def test_a_failure_is_told_to_all_who_wait_and_not_remembered() -> None:
    slow = Slow()
    slow.broken = True
    cache = QueryCache(slow)

    asking = [asyncio.create_task(vector_of(cache, "read")) for _ in range(3)]
    await slow.asked.wait()
    slow.go_on.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    slow.broken = False

    assert [type(r) for r in results] == [EmbedderUnavailable] * 3
    assert (await vector_of(cache, "read")).shape == (8,)


async def test_the_latest_queries_are_remembered_and_no_more() -> None:
    slow = Slow()
    slow.go_on.set()
    cache = QueryCache(slow, size=2)

    for text in ("a", "b", "a", "c", "a", "b"):
        await vector_of(cache, text)

    assert slow.turns == [["a"], ["b"], ["c"], ["b"]]


async def test_a_repeated_query_is_embedded_once() -> None:
    class Counting(HashEmbedder):
        asked = 0

        async def embed_request(self, texts: Sequence[str]) -> Vector:
            type(self).asked += 1
            return await super().embed_request(texts)

    cache = QueryCache(Counting(), size=2)

    first = await vector_of(cache, "read  a file")
    assert (await vector_of(cache, " read a\nfile ") == first).all()
    assert Counting.asked == 1
    await vector_of(cache, "b")
    await vector_of(cache, "c")
    await vector_of(cache, "read a file")
    assert Counting.asked == 4, "the oldest is forgotten"
