"""What every store of counters promises: run on the memory of one replica and on the script in a real Redis.

Time is moved by hand: Redis' script is given another clock than the server's.
"""

import asyncio
import math
import random
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import ANY

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from realparts.redis_server import Redis as Server
from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.adapters.counters import redis, script
from toolcrib_registry.adapters.counters.memory import MemoryCounters
from toolcrib_registry.adapters.counters.redis import RedisCounters, RedisPlace
from toolcrib_registry.limits.counters import Charge, Counters, Demand, Limit, Shortage
from waiting import until

pytestmark = pytest.mark.anyio
LEASE = 30.0


class Hand:
    """A clock that is moved by hand; in whole microseconds."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


class ByHand(RedisCounters):
    """The script by another clock than the server's."""

    def __init__(self, place: RedisPlace, clock: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
        name, self._hand = f"clock-{secrets.token_hex(8)}", clock
        moved = script.CHARGE.replace("redis.call('TIME')", f"redis.call('LRANGE', '{name}', 0, 1)")
        assert moved != script.CHARGE
        monkeypatch.setattr(script, "CHARGE", moved)
        super().__init__(place)
        self._clock_name, self._own = name, Redis.from_url(place.url)

    async def charge(self, groups: Sequence[Sequence[Demand]], *, lease: float) -> Charge | Shortage:
        whole = int(self._hand.now)
        async with self._own.pipeline() as together:
            together.delete(self._clock_name)
            together.rpush(self._clock_name, whole, int((self._hand.now - whole) * 1e6))
            await together.execute()
        return await super().charge(groups, lease=lease)

    async def aclose(self) -> None:
        await super().aclose()
        await self._own.aclose()


@dataclass
class Subject:
    """The counters under test and their clock."""

    counters: Counters
    clock: Hand
    account: str

    async def charge(
        self, account: str | None = None, lease: float = LEASE, **limits: int
    ) -> Charge | Shortage:
        demand = Demand(account or self.account, PublishedLimits(**limits))
        return await self.counters.charge([[demand]], lease=lease)

    async def admitted(self, tries: int, account: str | None = None, **limits: int) -> int:
        """How many of so many calls, one after the other, are charged."""
        return sum([isinstance(await self.charge(account, **limits), Charge) for _ in range(tries)])


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.real)])
async def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Subject]:
    hand = Hand()
    counters: Counters
    if request.param == "memory":
        counters = MemoryCounters(hand)
    else:
        server = request.getfixturevalue("redis_server")
        counters = ByHand(RedisPlace(server.url, timeout=30.0), hand, monkeypatch)
    yield Subject(counters, hand, f"uid-{secrets.token_hex(8)}/who")
    await counters.aclose()


@pytest.mark.parametrize(
    ("field", "limit", "seconds"),
    [("per_minute", Limit.PER_MINUTE, 60), ("per_day", Limit.PER_DAY, 86_400)],
)
async def test_a_window_moves_and_says_when_there_is_room(
    stored: Subject, field: str, limit: Limit, seconds: int
) -> None:
    assert await stored.admitted(1, **{field: 3}) == 1
    stored.clock.now += seconds / 2
    assert await stored.admitted(5, **{field: 3}) == 2
    full = await stored.charge(**{field: 3})
    assert _says(full, limit, seconds / 2)

    stored.clock.now += seconds / 2 + 0.5
    assert await stored.admitted(3, **{field: 3}) == 1
    assert _says(await stored.charge(**{field: 3}), limit, seconds / 2 - 0.5)


async def test_what_one_window_refuses_is_not_counted_by_the_other(stored: Subject) -> None:
    assert await stored.admitted(9, per_minute=4, per_day=6) == 4
    assert _says(await stored.charge(per_minute=4, per_day=6), Limit.PER_MINUTE, 60)
    stored.clock.now += 61
    assert await stored.admitted(9, per_minute=4, per_day=6) == 2
    refused = await stored.charge(per_minute=4, per_day=6)
    assert isinstance(refused, Shortage)
    assert refused.limit is Limit.PER_DAY
    # the minute has counted two calls, none of the seven that the day refused
    assert await stored.admitted(9, per_minute=4) == 2


async def test_an_edited_limit_takes_effect_at_once_and_keeps_what_was_counted(stored: Subject) -> None:
    assert await stored.admitted(5, per_minute=5) == 5
    assert await stored.admitted(9, per_minute=7) == 2
    assert await stored.admitted(3, per_minute=3) == 0
    assert await stored.admitted(9, per_minute=8) == 1
    stored.clock.now += 61
    assert await stored.admitted(9, per_minute=3) == 3


async def test_accounts_are_apart(stored: Subject) -> None:
    other = f"{stored.account}-else"
    assert await stored.admitted(2, per_minute=1, concurrent=1) == 1
    assert isinstance(await stored.charge(other, per_minute=1, concurrent=1), Charge)


async def test_a_slot_is_free_again_when_it_is_released(stored: Subject) -> None:
    held = [await stored.charge(concurrent=2) for _ in range(2)]
    assert await stored.charge(concurrent=2) == Shortage(Limit.CONCURRENT, 1)
    assert isinstance(held[0], Charge)
    await stored.counters.release(held[0])
    assert await stored.admitted(3, concurrent=2) == 1


async def test_an_edited_number_of_slots_counts_those_that_are_held(stored: Subject) -> None:
    assert await stored.admitted(3, concurrent=3) == 3
    assert await stored.admitted(1, concurrent=2) == 0
    assert await stored.admitted(3, concurrent=5) == 2


async def test_a_slot_that_nobody_releases_is_free_when_its_lease_ends(stored: Subject) -> None:
    assert isinstance(await stored.charge(concurrent=1), Charge)
    stored.clock.now += LEASE - 1
    assert await stored.charge(concurrent=1) == Shortage(Limit.CONCURRENT, 1)
    stored.clock.now += 1
    assert isinstance(await stored.charge(concurrent=1), Charge)


async def test_what_a_window_refuses_holds_no_slot(stored: Subject) -> None:
    first = await stored.charge(concurrent=2, per_minute=1)
    assert isinstance(first, Charge)
    refused = await stored.charge(concurrent=2, per_minute=1)
    assert isinstance(refused, Shortage)
    assert refused.limit is Limit.PER_MINUTE
    assert await stored.admitted(3, concurrent=2) == 1


async def test_all_limits_of_a_call_are_taken_or_none(stored: Subject) -> None:
    full, first = f"{stored.account}-full", f"{stored.account}-first"
    assert await stored.admitted(1, full, per_day=1) == 1
    two = PublishedLimits(per_minute=2, per_day=2, concurrent=2)
    groups = [[Demand(first, two)], [Demand(full, PublishedLimits(per_day=1))]]
    for _ in range(3):
        refused = await stored.counters.charge(groups, lease=LEASE)
        assert _says(refused, Limit.PER_DAY, 86_400)
        assert isinstance(refused, Shortage)
        assert (refused.group, refused.place) == (1, 0)
    assert await stored.admitted(5, first, per_minute=2, per_day=2, concurrent=2) == 2


async def test_of_each_group_the_first_with_room_is_charged_and_one_in_two_groups_once(
    stored: Subject,
) -> None:
    a, b = (Demand(f"{stored.account}-{name}", PublishedLimits(per_minute=1, concurrent=9)) for name in "ab")
    free = Demand("free", None)
    ask = stored.counters.charge

    taken = await ask([[a, b], [b, a], [free]], lease=LEASE)
    assert isinstance(taken, Charge)
    assert (taken.places, taken.accounts) == ((0, 0, 0), (a.account, b.account))
    assert isinstance(refused := await ask([[free], [a, b]], lease=LEASE), Shortage)
    assert (refused.group, refused.place) == (1, 0)
    assert (await ask([[a, b, free], [b, free]], lease=LEASE)) == Charge((2, 1), (), ANY)

    stored.clock.now += 61
    taken = await ask([[a], [a, b]], lease=LEASE)
    assert isinstance(taken, Charge)
    assert (taken.places, taken.accounts) == ((0, 0), (a.account,))
    assert await stored.admitted(2, b.account, per_minute=1) == 1


async def test_of_several_that_are_full_the_one_with_room_first_is_told(stored: Subject) -> None:
    a, b, c = (Demand(f"{stored.account}-{name}", PublishedLimits(per_minute=1)) for name in "abc")
    for demand in (b, c, a):
        await stored.counters.charge([[demand]], lease=LEASE)
        stored.clock.now += 5

    refused = await stored.counters.charge([[a, b, c]], lease=LEASE)

    assert isinstance(refused, Shortage)
    assert (refused.group, refused.place) == (0, 1)
    assert _says(refused, Limit.PER_MINUTE, 45)


async def test_a_release_frees_the_slot_on_every_account_of_the_call(stored: Subject) -> None:
    one = PublishedLimits(concurrent=1)
    groups = [[Demand(f"{stored.account}-{name}", one)] for name in "ab"]
    for _ in range(3):
        taken = await stored.counters.charge(groups, lease=LEASE)
        assert isinstance(taken, Charge)
        await stored.counters.release(taken)


async def test_of_many_callers_at_once_exactly_as_many_as_the_limit_are_charged(stored: Subject) -> None:
    by_minute = await asyncio.gather(*(stored.charge(per_minute=20, per_day=100) for _ in range(50)))
    assert sum(isinstance(c, Charge) for c in by_minute) == 20
    at_once = await asyncio.gather(*(stored.charge(concurrent=7) for _ in range(50)))
    assert sum(isinstance(c, Charge) for c in at_once) == 7


async def test_callers_that_give_up_leave_no_slot_behind(stored: Subject) -> None:
    for steps in range(40):
        task = asyncio.create_task(stored.charge(concurrent=100, per_minute=10_000, per_day=10_000))
        for _ in range(steps):
            await asyncio.sleep(0 if steps < 20 else 0.0001)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():  # it came through: this test's own client may swallow a cancellation
            charge = task.result()
            assert isinstance(charge, Charge)
            await stored.counters.release(charge)
    deadline = time.monotonic() + 30
    while isinstance(await stored.charge(concurrent=1), Shortage):
        assert time.monotonic() < deadline, "a slot was left behind"
        await asyncio.sleep(0.02)


async def test_a_release_that_is_cancelled_goes_on_by_itself(stored: Subject) -> None:
    charge = await stored.charge(concurrent=1)
    assert isinstance(charge, Charge)
    task = asyncio.create_task(stored.counters.release(charge))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    async def is_room() -> bool:
        return isinstance(await stored.charge(concurrent=1), Charge)

    await until(is_room)


async def test_random_histories_never_exceed_a_window_and_never_refuse_without_need(stored: Subject) -> None:
    rng = random.Random(20261122)
    for history in range(3):
        account, inside = f"{stored.account}-{history}", deque[float]()
        for _ in range(150):
            stored.clock.now += rng.choice((0.0, 0.01, 0.5, 3.0, 20.0))
            most = rng.choice((1, 3, 8))
            while inside and inside[0] < stored.clock.now - 60:
                inside.popleft()
            answer = await stored.charge(account, per_minute=most)
            assert isinstance(answer, Charge) == (len(inside) < most), (history, most, list(inside))
            if isinstance(answer, Charge):
                inside.append(stored.clock.now)
            else:
                assert _says(answer, Limit.PER_MINUTE, inside[-most] + 60 - stored.clock.now)


@pytest.mark.real
@pytest.mark.parametrize("stored", ["redis"], indirect=True)
async def test_the_script_and_the_memory_answer_random_questions_alike(stored: Subject) -> None:
    rng, memory, held = random.Random(20261123), MemoryCounters(stored.clock), deque[tuple[Charge, Charge]]()
    seen: set[Limit | int] = set()
    for number in range(400):
        stored.clock.now += rng.choice((0.0, 0.25, 3.0, 20.0, 20_000.0 if number % 50 == 0 else 0.5))
        demands = [
            Demand("free", None) if rng.random() < 0.05 else _some(rng, stored.account) for _ in range(4)
        ]
        by_account = {d.account: d for d in demands}  # one binding has one set of limits
        groups = [
            [by_account[rng.choice(demands).account] for _ in range(rng.randint(1, 3))]
            for _ in range(rng.randint(1, 3))
        ]
        ours = await memory.charge(groups, lease=LEASE)
        theirs = await stored.counters.charge(groups, lease=LEASE)
        if isinstance(ours, Charge) and isinstance(theirs, Charge):
            assert (ours.places, ours.accounts) == (theirs.places, theirs.accounts), (number, groups)
            held.append((ours, theirs))
            seen.update(ours.places)
        else:
            assert ours == theirs, (number, groups)
            assert isinstance(ours, Shortage)
            seen.add(ours.limit)
        if held and rng.random() < 0.6:
            one, other = held.popleft()
            await memory.release(one)
            await stored.counters.release(other)
    assert seen == {0, 1, 2, Limit.PER_MINUTE, Limit.PER_DAY, Limit.CONCURRENT}


def _some(rng: random.Random, account: str) -> Demand:
    def most(most: int) -> int | None:
        return rng.randint(1, most) if rng.random() < 0.7 else None

    limits = PublishedLimits(per_minute=most(6), per_day=most(30), concurrent=most(3))
    return Demand(f"{account}-{rng.choice('abcd')}", limits)


@pytest.mark.real
@pytest.mark.parametrize("stored", ["redis"], indirect=True)
async def test_a_servers_clock_that_is_set_moves_its_windows_and_is_bounded(stored: Subject) -> None:
    assert await stored.admitted(5, per_minute=3) == 3
    stored.clock.now -= 3600
    back = await stored.charge(per_minute=3)
    assert isinstance(back, Shortage)
    assert back.seconds <= 61
    stored.clock.now += 7200
    assert await stored.admitted(9, per_minute=3) == 3


async def test_a_call_asks_the_server_once_for_all_its_limits_and_once_to_release(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    send = AbstractConnection.send_packed_command

    async def noted(connection: AbstractConnection, command: Any, **how: Any) -> None:
        sent.append(command)
        await send(connection, command, **how)

    counters = RedisCounters(RedisPlace(redis_server.url, timeout=30.0))
    stored = Subject(counters, Hand(), f"uid-{secrets.token_hex(8)}/who")
    await stored.charge(per_minute=1)
    monkeypatch.setattr(AbstractConnection, "send_packed_command", noted)
    charge = await stored.charge(per_minute=5, per_day=50, concurrent=5)
    assert isinstance(charge, Charge)
    assert len(sent) == 1
    await counters.release(charge)
    assert len(sent) == 2
    await counters.aclose()


async def test_a_question_that_a_new_connection_repeats_takes_no_second_slot(redis_server: Server) -> None:
    account = f"uid-{secrets.token_hex(8)}/who"
    groups = [[Demand(account, PublishedLimits(concurrent=1))]]
    _, asked = script.question(groups, "slot", LEASE)
    keys = [f"{account}/{of}" for of in ("day", "minute", "slots")]
    async with Redis.from_url(redis_server.url) as own:
        charge = own.register_script(script.CHARGE)
        answers = [script.answer(groups, "slot", await charge(keys=keys, args=[asked])) for _ in range(2)]
        held = await own.zcard(keys[2])
        _, other = script.question(groups, "other", LEASE)
        refused = script.answer(groups, "other", await charge(keys=keys, args=[other]))
    assert answers == [Charge((0,), (account,), "slot")] * 2
    assert held == 1
    assert refused == Shortage(Limit.CONCURRENT, 1)


async def test_a_server_that_forgot_the_script_is_given_it_again(redis_server: Server) -> None:
    counters = RedisCounters(RedisPlace(redis_server.url, timeout=30.0))
    stored = Subject(counters, Hand(), f"uid-{secrets.token_hex(8)}/who")
    assert await stored.admitted(2, per_minute=3) == 2
    async with Redis.from_url(redis_server.url) as own:
        await own.script_flush()
    assert await stored.admitted(2, per_minute=3) == 1
    await counters.aclose()


async def test_what_an_earlier_version_counted_is_neither_read_nor_broken(redis_server: Server) -> None:
    counters = RedisCounters(RedisPlace(redis_server.url, timeout=30.0))
    stored = Subject(counters, Hand(), f"uid-{secrets.token_hex(8)}/who")
    async with Redis.from_url(redis_server.url) as own:
        for of in ("slots", "minute", "day"):
            await own.set(f"toolcrib:{stored.account}/{of}", "of before")
        assert await stored.admitted(2, per_minute=1, per_day=1, concurrent=1) == 1
        kept = [key async for key in own.scan_iter(f"*{stored.account}*")]
        values = [await own.get(key) for key in kept if not key.startswith(redis._PREFIX.encode())]
        assert values == [b"of before"] * 3
        lasting = [await own.pttl(key) for key in kept if key.startswith(redis._PREFIX.encode())]
    assert len(lasting) == 3
    assert all(0 < milliseconds <= 86_401_000 for milliseconds in lasting)
    await counters.aclose()


def _says(answer: object, limit: Limit, wait: float) -> bool:
    """Whether it refuses for `limit` and names the next whole second; by rounding it may name the one after."""
    assert isinstance(answer, Shortage), answer
    return answer.limit is limit and answer.seconds - max(1, math.ceil(wait - 1e-3)) in (0, 1)
