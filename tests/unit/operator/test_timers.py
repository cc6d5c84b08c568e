"""Waiting for several things at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.counts.reach import ReachCounts
from toolcrib_operator.loop import Loop
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.status.escapes import Escapes
from toolcrib_operator.timers import passed_on, wait_any
from toolcrib_operator.world import World

Run = Callable[[asyncio.Event], Awaitable[None]]


def _loop() -> Run:
    world, publisher = World(), Publisher(1, FixedReplicas())
    return Loop(world, publisher, IndexSync(publisher), MemoryWriter(world)).run


def _reach() -> Run:
    return ReachCounts(Publisher(1, FixedReplicas())).run


def _escapes() -> Run:
    return Escapes({}, lambda ref: None).run  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [_loop, _reach, _escapes])
def test_what_has_nothing_to_do_ends_at_once_when_it_is_stopped(make: Callable[[], Run]) -> None:
    """Turns of the event loop are counted, and no time: a wait for half a second outlasts them."""

    async def work() -> bool:
        stop = asyncio.Event()
        running = asyncio.ensure_future(make()(stop))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not running.done()
        stop.set()
        for _ in range(100):
            await asyncio.sleep(0)
        ended = running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return ended

    assert asyncio.run(work())


def test_who_waits_without_an_end_learns_of_any_of_its_events() -> None:
    async def work() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        waiting = asyncio.create_task(wait_any((first, second)))
        second.set()
        await asyncio.wait_for(waiting, 30)

    asyncio.run(work())


def test_an_event_is_passed_on_to_others() -> None:
    async def work() -> None:
        stop, wake = asyncio.Event(), asyncio.Event()
        passing = asyncio.create_task(passed_on(stop, wake))
        stop.set()
        await asyncio.wait_for(wake.wait(), 30)
        await passing

    asyncio.run(work())
