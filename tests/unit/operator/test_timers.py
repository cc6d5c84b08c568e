"""Waiting for several things at once."""

import asyncio

from toolcrib_operator.timers import passed_on, wait_any


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
