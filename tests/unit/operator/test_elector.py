"""The elector against a Lease in memory, with clocks that only the test moves."""

import asyncio
from dataclasses import replace

import pytest

from toolcrib_operator.elector import Elector
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.ports import Lease
from toolcrib_operator.settings import ElectionSettings

pytestmark = pytest.mark.anyio

SETTINGS = ElectionSettings(lease=15, renew=10, retry=0.001)


class MemoryLease:
    """Compare-and-swap by resourceVersion, as the API server does it."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.away = False

    async def read(self) -> Lease | None:
        if self.away:
            raise ClusterUnavailable("away")
        return self.lease

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        if self.away:
            raise ClusterUnavailable("away")
        if (self.lease.resource_version if self.lease else "") != lease.resource_version:
            raise Conflict("somebody was faster")
        self.version += 1
        self.lease = replace(lease, renewed=str(self.version), resource_version=str(self.version))
        return self.lease


class Clocks:
    def __init__(self) -> None:
        self.monotonic, self.wall = 1000.0, 1_790_000_000.0

    def move(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


def elector(leases: MemoryLease, name: str, clocks: Clocks) -> Elector:
    return Elector(
        leases, name, settings=SETTINGS, monotonic=lambda: clocks.monotonic, wall=lambda: clocks.wall
    )


async def acquired(candidate: Elector, seconds: float = 0.1) -> bool:
    stop = asyncio.Event()
    try:
        async with asyncio.timeout(seconds):
            return await candidate.acquire(stop)
    except TimeoutError:
        return False


async def test_one_leads_and_another_waits_a_whole_lease_of_its_own_clock() -> None:
    leases, clocks = MemoryLease(), Clocks()
    first, second = elector(leases, "first", clocks), elector(leases, "second", clocks)
    assert await acquired(first)
    assert not await acquired(second)
    clocks.move(14)
    assert not await acquired(second)
    clocks.move(1.1)
    assert await acquired(second)
    assert second.epoch > first.epoch
    assert not first.valid()


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
async def test_leadership_ends_at_the_renew_deadline_by_either_clock(clock: str) -> None:
    leases, clocks = MemoryLease(), Clocks()
    leader = elector(leases, "first", clocks)
    assert await acquired(leader)
    assert leader.valid()
    setattr(clocks, clock, getattr(clocks, clock) + 10)
    assert not leader.valid()


async def test_a_leader_that_cannot_renew_stops_before_another_may_begin() -> None:
    leases, clocks = MemoryLease(), Clocks()
    leader = elector(leases, "first", clocks)
    assert await acquired(leader)
    leases.away = True
    keeping = asyncio.create_task(leader.keep(asyncio.Event()))
    await asyncio.sleep(0.05)
    assert not keeping.done()
    clocks.move(10)
    async with asyncio.timeout(60):
        await keeping
    assert not leader.valid()


async def test_a_leader_whose_lease_was_taken_knows_at_the_next_renewal() -> None:
    leases, clocks = MemoryLease(), Clocks()
    leader = elector(leases, "first", clocks)
    assert await acquired(leader)
    assert leases.lease is not None
    await leases.write(
        replace(leases.lease, holder="thief", transitions=leases.lease.transitions + 1), acquired=True
    )
    async with asyncio.timeout(60):
        await leader.keep(asyncio.Event())
    assert not leader.valid()


async def test_a_released_lease_is_free_at_once() -> None:
    leases, clocks = MemoryLease(), Clocks()
    first, second = elector(leases, "first", clocks), elector(leases, "second", clocks)
    assert await acquired(first)
    await first.release()
    assert not first.valid()
    assert await acquired(second)


async def test_epochs_grow_even_if_the_lease_was_deleted() -> None:
    leases, clocks = MemoryLease(), Clocks()
    first = elector(leases, "first", clocks)
    assert await acquired(first)
    leases.lease = None
    clocks.move(20)
    second = elector(leases, "second", clocks)
    assert await acquired(second)
    assert second.epoch > first.epoch


async def test_epochs_grow_even_if_the_cluster_was_restored_from_a_backup() -> None:
    leases, clocks = MemoryLease(), Clocks()
    assert await acquired(elector(leases, "first", clocks))
    backup = leases.lease
    for name in ("second", "third"):
        clocks.move(20)
        latest = elector(leases, name, clocks)
        assert not await acquired(latest)
        clocks.move(20)
        assert await acquired(latest)
    leases.lease = backup
    clocks.move(60)
    after = elector(leases, "after", clocks)
    assert not await acquired(after)
    clocks.move(20)
    assert await acquired(after)
    assert after.epoch > latest.epoch


async def test_a_clock_that_is_behind_or_mad_does_not_turn_epochs_back() -> None:
    leases, clocks = MemoryLease(), Clocks()
    first = elector(leases, "first", clocks)
    assert await acquired(first)
    await first.release()
    for wall in (0.0, 9e9):
        clocks.wall = wall
        held = leases.lease
        assert held is not None
        other = elector(leases, f"at {wall}", clocks)
        assert await acquired(other)
        assert other.epoch == held.transitions + 1
        await other.release()


async def test_leadership_is_lost_in_a_busy_process_too() -> None:
    leases, clocks = MemoryLease(), Clocks()
    leader = elector(leases, "first", clocks)
    assert await acquired(leader)
    lost = asyncio.Event()
    running = asyncio.get_running_loop()

    def told() -> None:
        running.call_soon_threadsafe(lost.set)

    leader.guard(told)
    clocks.move(10)
    async with asyncio.timeout(60):
        await lost.wait()
