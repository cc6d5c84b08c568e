"""Turns at the store of counters: shared among accounts, bounded, and never lost."""

import asyncio
import math

import pytest

from toolcrib_registry.limits.counters import CountersBusy
from toolcrib_registry.limits.fair_queue import Turns

pytestmark = pytest.mark.anyio


class Line:
    """Who asked and who had a turn, in order; each gives it back when told."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.had = turns, list[str]()

    async def ask(self, account: str) -> asyncio.Task[None]:
        async def one() -> None:
            await self.turns.take(account)
            self.had.append(account)

        task = asyncio.create_task(one())
        await asyncio.sleep(0)
        return task

    async def give(self, times: int) -> None:
        for _ in range(times):
            self.turns.give()
            await asyncio.sleep(0)


async def test_an_account_that_asks_much_waits_behind_itself() -> None:
    line = Line(Turns(1))
    tasks = [await line.ask("greedy") for _ in range(100)]
    tasks += [await line.ask("other"), await line.ask("third"), await line.ask("other")]
    await line.give(6)
    assert line.had == ["greedy", "greedy", "other", "third", "greedy", "other", "greedy"]
    await line.give(len(tasks))
    await asyncio.gather(*tasks)


async def test_as_many_as_there_are_turns_wait_for_nobody() -> None:
    line = Line(Turns(3, each=0))
    tasks = [await line.ask("a") for _ in range(3)]
    await asyncio.gather(*tasks)
    with pytest.raises(CountersBusy):
        await line.turns.take("a")
    await line.give(1)
    await line.turns.take("a")


async def test_how_many_wait_is_bounded_for_each_account_and_together() -> None:
    line = Line(Turns(1, each=2, together=3))
    tasks = [await line.ask(a) for a in ("a", "a", "a", "b")]
    for account in ("a", "b"):
        with pytest.raises(CountersBusy):
            await line.turns.take(account)
    await line.give(1)
    tasks.append(await line.ask("b"))
    await line.give(4)
    await asyncio.gather(*tasks)


async def test_nobody_waits_longer_than_the_bound_and_who_gave_up_has_no_turn() -> None:
    turns = Turns(1, seconds=0.01)
    await turns.take("a")
    with pytest.raises(CountersBusy):
        await turns.take("a")
    turns.give()
    await turns.take("b")


@pytest.mark.parametrize("granted", [False, True], ids=["waiting", "in the moment of its turn"])
async def test_a_turn_is_not_lost_with_who_gives_up(granted: bool) -> None:
    line = Line(Turns(1, each=1, seconds=math.inf))
    await line.ask("a")
    given_up = await line.ask("a")
    if granted:
        line.turns.give()
    given_up.cancel()
    await asyncio.wait([given_up])
    if not granted:
        line.turns.give()
    async with asyncio.timeout(5):
        await line.turns.take("a")
    assert given_up.cancelled()
