"""What is put off for a moment: nothing of it is lost, and its order stays."""

import asyncio
import threading

from toolcrib.telemetry.batch import Batch


def test_without_an_event_loop_each_item_is_taken_at_once() -> None:
    taken: list[list[int]] = []
    batch = Batch[int](taken.append)

    batch.add(1)
    batch.add(2)

    assert taken == [[1], [2]]


def test_on_an_event_loop_items_wait_for_each_other_and_are_taken_in_their_order() -> None:
    async def work() -> list[list[int]]:
        taken, done = [], asyncio.Event()

        def take(items: list[int]) -> None:
            taken.append(items)
            done.set()

        batch = Batch[int](take)
        batch.add(1)
        batch.add(2)
        before = list(taken)
        await asyncio.wait_for(done.wait(), 30)
        done.clear()
        batch.add(3)
        await asyncio.wait_for(done.wait(), 30)
        return [*before, *taken]

    assert asyncio.run(work()) == [[1, 2], [3]]


def test_the_lock_is_held_while_items_are_taken_on_the_loop() -> None:
    lock = threading.Lock()

    async def work() -> list[bool]:
        done = asyncio.Event()
        held: list[bool] = []

        def take(items: list[int]) -> None:
            held.append(lock.locked())
            done.set()

        batch = Batch[int](take, lock)
        with lock:
            batch.add(1)
        await asyncio.wait_for(done.wait(), 30)
        return held

    assert asyncio.run(work()) == [True]


def test_what_is_flushed_is_taken_now_and_once() -> None:
    taken: list[int] = []

    async def work() -> None:
        batch = Batch[int](taken.extend)
        batch.add(1)
        batch.flush()
        batch.add(2)
        batch.flush()
        batch.flush()

    asyncio.run(work())
    assert taken == [1, 2]


def test_what_an_event_loop_left_when_it_ended_is_taken_by_the_next() -> None:
    taken: list[int] = []
    done = asyncio.Event()

    def take(items: list[int]) -> None:
        taken.extend(items)
        done.set()

    batch = Batch[int](take)

    async def leave() -> None:
        batch.add(1)

    async def wait() -> None:
        batch.add(2)
        await asyncio.wait_for(done.wait(), 30)

    asyncio.run(leave())
    asyncio.run(wait())
    assert taken == [1, 2]
