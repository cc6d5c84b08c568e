"""What every store of counters promises: run on the memory of one replica and on a real Redis.

Time is moved by hand for the windows: of Redis' by the clock that `limits` reads in the replica. Leases in Redis end
by the server's own clock, which nobody moves, so those tests take short ones.
"""

import asyncio
import math
import random
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from limits.aio.storage.redis import redispy

from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.adapters.counters import redis
from toolcrib_registry.adapters.counters.memory import MemoryCounters
from toolcrib_registry.adapters.counters.redis import RedisCounters, RedisPlace
from toolcrib_registry.limits.counters import Charge, Counters, Limit, Shortage
from waiting import until

pytestmark = pytest.mark.anyio
LEASE = 30.0


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@dataclass
class Subject:
    """The counters under test, their clock, and whether leases end by it."""

    counters: Counters
    clock: Hand
    account: str
    leases_by_clock: bool

    async def charge(
        self, account: str | None = None, lease: float = LEASE, **limits: int
    ) -> Charge | Shortage:
        return await self.counters.charge(account or self.account, PublishedLimits(**limits), lease=lease)

    async def admitted(self, tries: int, **limits: int) -> int:
        """How many of so many calls, one after the other, are charged."""
        return sum([isinstance(await self.charge(**limits), Charge) for _ in range(tries)])


@pytest.fixture(params=["memory", "redis"])
async def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Subject]:
    hand = Hand()
    counters: Counters
    if request.param == "memory":
        counters = MemoryCounters(hand)
    else:
        server = request.getfixturevalue("redis_server")
        moved = SimpleNamespace(time=hand, monotonic=time.monotonic)
        monkeypatch.setattr(redispy, "time", moved)
        monkeypatch.setattr(redis, "time", moved)
        counters = RedisCounters(RedisPlace(server.url, timeout=30.0))
    yield Subject(counters, hand, f"uid-{secrets.token_hex(8)}/who", request.param == "memory")
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
    assert await stored.counters.room(stored.account, PublishedLimits(concurrent=2)) is not None
    await stored.counters.release([c for c in held[:1] if isinstance(c, Charge)])
    assert await stored.admitted(3, concurrent=2) == 1


async def test_an_edited_number_of_slots_counts_those_that_are_held(stored: Subject) -> None:
    assert await stored.admitted(3, concurrent=3) == 3
    assert await stored.admitted(1, concurrent=2) == 0
    assert await stored.admitted(3, concurrent=5) == 2


async def test_a_slot_that_nobody_releases_is_free_when_its_lease_ends(stored: Subject) -> None:
    lease = LEASE if stored.leases_by_clock else 0.3
    began = time.monotonic()
    assert isinstance(await stored.charge(concurrent=1, lease=lease), Charge)
    second = await stored.charge(concurrent=1, lease=lease)
    # on a machine that stood still meanwhile it may have ended
    assert second == Shortage(Limit.CONCURRENT, 1) or time.monotonic() > began + 0.3
    stored.clock.now += lease
    deadline = time.monotonic() + 30
    while isinstance(await stored.charge(concurrent=1, lease=lease), Shortage):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_what_a_window_refuses_holds_no_slot(stored: Subject) -> None:
    first = await stored.charge(concurrent=2, per_minute=1)
    assert isinstance(first, Charge)
    refused = await stored.charge(concurrent=2, per_minute=1)
    assert isinstance(refused, Shortage)
    assert refused.limit is Limit.PER_MINUTE
    assert await stored.admitted(3, concurrent=2) == 1


async def test_looking_for_room_counts_nothing(stored: Subject) -> None:
    limits = PublishedLimits(per_minute=2, per_day=2, concurrent=2)
    for _ in range(5):
        assert await stored.counters.room(stored.account, limits) is None
    assert await stored.admitted(5, per_minute=2, per_day=2) == 2
    assert _says(await stored.counters.room(stored.account, limits), Limit.PER_MINUTE, 60)


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
        if not task.cancel():
            charge = await task
            assert isinstance(charge, Charge)
            await stored.counters.release([charge])
        await asyncio.wait([task])
    deadline = time.monotonic() + 30
    while isinstance(await stored.charge(concurrent=1), Shortage):
        assert time.monotonic() < deadline, "a slot was left behind"
        await asyncio.sleep(0.02)


async def test_a_release_that_is_cancelled_goes_on_by_itself(stored: Subject) -> None:
    charges = [await stored.charge(concurrent=3) for _ in range(3)]
    task = asyncio.create_task(stored.counters.release([c for c in charges if isinstance(c, Charge)]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    async def is_room() -> bool:
        return await stored.counters.room(stored.account, PublishedLimits(concurrent=1)) is None

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


@pytest.mark.parametrize("stored", ["redis"], indirect=True)
async def test_a_replicas_clock_that_is_set_moves_its_windows_in_redis_and_is_bounded(
    stored: Subject,
) -> None:
    assert await stored.admitted(5, per_minute=3) == 3
    stored.clock.now -= 3600
    back = await stored.charge(per_minute=3)
    assert isinstance(back, Shortage)
    assert back.seconds <= 61
    stored.clock.now += 7200
    assert await stored.admitted(9, per_minute=3) == 3


def _says(answer: object, limit: Limit, wait: float) -> bool:
    """Whether it refuses for `limit` and names the next whole second; by rounding it may name the one after."""
    assert isinstance(answer, Shortage), answer
    return answer.limit is limit and answer.seconds - max(1, math.ceil(wait - 1e-3)) in (0, 1)
