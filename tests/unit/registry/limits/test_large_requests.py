"""Room and turns for large requests: one caller's leave room for others', nobody waits for ever, nothing is lost."""

import asyncio

import pytest

from toolcrib_registry.limits.large_requests import (
    EACH,
    TOGETHER,
    UNREAD_EACH,
    UNREAD_TOGETHER,
    LargeRequests,
    NoRoom,
)

pytestmark = pytest.mark.anyio
MB = 1 << 20


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_callers_large_requests_leave_room_for_anothers() -> None:
    large = LargeRequests(seconds=600)
    for _ in range(EACH // MB):
        await large.enter("greedy", MB)
    waiting = asyncio.create_task(large.enter("greedy", MB))
    await settle()
    assert not waiting.done()
    await large.enter("modest", MB)
    assert large.held == EACH + MB
    large.leave("greedy", MB)
    await waiting
    assert large.held == EACH + MB


async def test_all_together_hold_no_more_than_there_is() -> None:
    large = LargeRequests(seconds=600)
    for caller in range(TOGETHER // EACH):
        await large.enter(str(caller), EACH)
    late = asyncio.create_task(large.enter("late", MB))
    await settle()
    assert not late.done()
    large.leave("0", EACH)
    await late


async def test_who_waits_too_long_is_told_and_leaves_no_trace() -> None:
    large = LargeRequests(seconds=0)
    await large.enter("greedy", EACH)
    with pytest.raises(NoRoom):
        await large.enter("greedy", 1)
    large.leave("greedy", EACH)
    assert large.held == 0
    await large.enter("greedy", 1)
    assert large.held == 1


async def test_who_gives_up_while_waiting_takes_no_room() -> None:
    large = LargeRequests(seconds=600)
    await large.enter("greedy", EACH)
    gone = [asyncio.create_task(large.enter("greedy", MB)) for _ in range(2)]
    await settle()
    gone[0].cancel()
    await settle()
    gone[1].cancel()
    large.leave("greedy", EACH)  # in the moment in which the second gives up
    await asyncio.gather(*gone, return_exceptions=True)
    assert large.held == 0


async def test_a_body_larger_than_a_callers_share_is_let_in_alone() -> None:
    large = LargeRequests(together=10, each=4, seconds=600)
    await large.enter("a", 20)
    other = asyncio.create_task(large.enter("b", 1))
    await settle()
    assert not other.done()
    large.leave("a", 20)
    await other


async def test_turns_are_one_at_a_time_and_callers_take_them_in_turn() -> None:
    large, order, at_once = LargeRequests(), list[str](), [0]

    async def work(account: str) -> None:
        async with large.turn(account):
            at_once[0] += 1
            assert at_once[0] == 1
            order.append(account)
            await asyncio.sleep(0)
            at_once[0] -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(work("greedy"))
        await asyncio.sleep(0)
        group.create_task(work("modest"))
    assert order.index("modest") <= 3
    assert len(order) == 6


async def test_of_answers_that_nobody_reads_the_oldest_of_who_has_the_most_are_cut() -> None:
    large, kept, cut = LargeRequests(), list[tuple[str, int]](), list[tuple[str, int]]()

    async def send(account: str, number: int) -> None:
        try:
            async with large.sending(account, 4 * MB):
                kept.append((account, number))
                await asyncio.Event().wait()
        except TimeoutError:
            cut.append((account, number))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(send("modest", 0))]
        tasks += [group.create_task(send("greedy", number)) for number in range(20)]
        await settle()
        assert len(kept) == 21
        assert cut == [("greedy", number) for number in range(20 - UNREAD_EACH // (4 * MB))]
        for task in tasks:
            task.cancel()


async def test_a_body_that_many_get_at_one_time_counts_once_and_goes_last() -> None:
    large, sharing, cut = LargeRequests(), list[str](), list[str]()

    async def send(account: str, size: int, body: str | None) -> None:
        try:
            async with large.sending(account, size, body):
                sharing.append(account)
                await asyncio.Event().wait()
        except TimeoutError:
            cut.append(account)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(send(f"agent-{i}", UNREAD_EACH, "the same")) for i in range(50)]
        await settle()
        assert (len(sharing), cut) == (50, [])
        others = UNREAD_TOGETHER // UNREAD_EACH
        tasks += [group.create_task(send(f"alone-{i}", UNREAD_EACH, None)) for i in range(others)]
        await settle()
        assert cut == ["alone-0"]
        for task in tasks:
            task.cancel()
