"""Uninstalling against a cluster in memory: the Lease is held for as long as the bindings take.

Time is the event loop's own: it passes only where everybody waits, so that a machine that stands still loses no Lease.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from toolcrib.resources.admission import FINALIZER
from toolcrib_operator import uninstall
from toolcrib_operator.elector import Elector
from toolcrib_operator.errors import ClusterUnavailable, Conflict
from toolcrib_operator.kinds.binding import BINDINGS
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import Event, Lease, Listing, Written
from toolcrib_operator.settings import ElectionSettings
from toolcrib_operator.uninstall import release

FAST = ElectionSettings(lease=0.8, renew=0.3, retry=0.05)
T = TypeVar("T")


class Patient(selectors.DefaultSelector):
    """Nobody is waited for: what would have been waited is added up."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all wait for something that never comes"
        self.passed += max(0.0, timeout)
        return super().select(0)


class TimeOfItsOwn(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._patient = Patient()
        super().__init__(self._patient)

    def time(self) -> float:
        return self._patient.passed


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(uninstall, "time", told)


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in no time."""
    with asyncio.Runner(loop_factory=TimeOfItsOwn) as runner:
        return runner.run(work)


class MemoryLease:
    """Compare-and-swap by resourceVersion, as the API server does it."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.failing = 0

    async def read(self) -> Lease | None:
        return self.lease

    async def write(self, lease: Lease, *, acquired: bool) -> Lease:
        if self.failing:
            self.failing -= 1
            raise ClusterUnavailable("away")
        if (self.lease.resource_version if self.lease else "") != lease.resource_version:
            raise Conflict("somebody was faster")
        return self.touch(lease)

    def touch(self, lease: Lease) -> Lease:
        self.version += 1
        self.lease = replace(lease, renewed=str(self.version), resource_version=str(self.version))
        return self.lease


class Bindings:
    """A number of bindings that hold our finalizer; every write takes its time."""

    def __init__(self, number: int, seconds: float, then: Callable[[int], None] = lambda n: None) -> None:
        self._held = {f"heist/b{i}": [FINALIZER, "example.com/kept"] for i in range(number)}
        self._seconds, self._then = seconds, then
        self.written = self.in_flight = self.most = 0

    async def list(self, kind: str) -> Listing:
        def one(key: str, finalizers: list[str]) -> dict[str, Any]:
            namespace, name = key.split("/")
            return {
                "metadata": {
                    "namespace": namespace,
                    "name": name,
                    "resourceVersion": "1",
                    "finalizers": finalizers,
                }
            }

        return Listing([one(*item) for item in self._held.items()] if kind == BINDINGS[0] else [], "1")

    async def versions(self, kind: str) -> dict[str, str]:
        raise NotImplementedError

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(self._seconds)
        self.in_flight -= 1
        self.written += 1
        self._held[ref.key] = list(finalizers)
        self._then(self.written)
        return Written("2", {}, tuple(finalizers))

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        raise NotImplementedError

    async def write_event(self, event: Event) -> None:
        raise NotImplementedError

    def left(self) -> int:
        return sum(FINALIZER in held for held in self._held.values())


async def led_by_another(leases: MemoryLease) -> None:
    await leases.write(Lease("leader", 7, "", FAST.lease, ""), acquired=True)


def test_a_standby_takes_nothing_over_while_more_bindings_are_released_than_one_lease_lasts() -> None:
    async def check() -> None:
        leases, bindings = MemoryLease(), Bindings(80, 0.2)
        await led_by_another(leases)
        stop, now = asyncio.Event(), asyncio.get_running_loop().time
        standby = asyncio.create_task(
            Elector(leases, "standby", settings=FAST, monotonic=now, wall=now).acquire(stop)
        )

        began = now()
        released = await release(bindings, bindings, leases, election=FAST, identity="uninstall")
        took = now() - began
        taken_over = standby.done()
        stop.set()
        await standby

        assert took - FAST.renew > 2 * FAST.lease - 0.01
        assert (released, bindings.left(), taken_over) == (80, 0, False)
        assert leases.lease is not None
        assert leases.lease.holder == "uninstall"

    run(check())


def test_several_bindings_are_written_at_a_time() -> None:
    leases, bindings = MemoryLease(), Bindings(40, 0.01)

    assert run(release(bindings, bindings, leases, election=FAST, identity="uninstall")) == 40
    assert bindings.most == 8


def test_the_lease_is_renewed_after_the_last_binding() -> None:
    leases = MemoryLease()
    run(led_by_another(leases))
    at_the_last: list[int] = []
    bindings = Bindings(1, 0.0, lambda _: at_the_last.append(leases.version))

    run(release(bindings, bindings, leases, election=FAST, identity="uninstall"))

    assert leases.version > at_the_last[0]


def test_releasing_ends_when_an_operator_takes_the_lease_back() -> None:
    leases = MemoryLease()
    run(led_by_another(leases))

    def operator_comes(written: int) -> None:
        if written == 1 and leases.lease:
            leases.touch(replace(leases.lease, holder="standby", transitions=leases.lease.transitions + 1))

    bindings = Bindings(800, 0.05, operator_comes)

    with pytest.raises(ClusterUnavailable, match="took the Lease again"):
        run(release(bindings, bindings, leases, election=FAST, identity="uninstall"))
    assert bindings.written < 100


def test_neither_a_touched_lease_nor_a_short_outage_ends_it() -> None:
    leases = MemoryLease()
    run(led_by_another(leases))

    def trouble(written: int) -> None:
        if written == 1 and leases.lease:
            leases.touch(leases.lease)
        if written == 9:
            leases.failing = 2

    bindings = Bindings(80, 0.05, trouble)

    assert run(release(bindings, bindings, leases, election=FAST, identity="uninstall")) == 80
    assert leases.failing == 0
